#!/usr/bin/env -S node --max-semi-space-size=32 --heap-growing-percent=80 --no-maglev --no-allocation-site-pretenuring --v8-pool-size=2
// The program `ackbox`: finds the command and runs it. Node's flags stand above, so that no second process is needed.
import { nearest } from '../runtime/nearest.ts'
import { version } from '../runtime/package.ts'

/** What a file of this folder exports. */
interface Command {
  help: string
  run(args: string[]): Promise<void>
}

const commands: Record<string, { does: string; load: () => Promise<Command> }> = {
  init: { does: 'writes a small project into this folder', load: () => import('./init.ts') },
  start: { does: 'runs the service until Ctrl-C', load: () => import('./start.ts') },
  dev: { does: 'runs it, and again when a handler changes', load: () => import('./dev.ts') },
  migrate: { does: 'brings the tables of DATABASE_URL up to date', load: () => import('./migrate.ts') },
  key: { does: 'makes, lists and revokes API keys', load: () => import('./key.ts') },
  doctor: { does: 'looks for what is wrong with this setup', load: () => import('./doctor.ts') },
  handlers: { does: 'lists and checks the handlers', load: () => import('./handlers.ts') },
  demo: { does: 'posts tasks and watches them end', load: () => import('./demo.ts') },
  generate: { does: 'writes the generated pages of a clone of Ackbox', load: () => import('./generate.ts') }
}

const help = `ackbox <command> [options]    Ackbox ${version}

${Object.entries(commands)
  .map(([name, { does }]) => `  ${name.padEnd(10)}${does}`)
  .join('\n')}

ackbox <command> --help says more. Settings come from the environment and a file .env: docs/config.md lists them.`

await main(process.argv.slice(2))

async function main([name, ...args]: string[]): Promise<void> {
  if (name === undefined || name === 'help' || name === '--help' || name === '-h') return console.log(help)
  if (name === '--version' || name === '-v') return console.log(version)
  const command = Object.hasOwn(commands, name) ? await commands[name]?.load() : undefined
  if (!command) {
    const meant = nearest(name, Object.keys(commands))
    return refuse(`There is no command ${name}.${meant ? ` Did you mean ${meant}?` : ''}\n\n${help}`)
  }
  if (args.some(word => word === '--help' || word === '-h')) return console.log(command.help)
  try {
    await command.run(args)
  } catch (err) {
    if (!(err instanceof TypeError && 'code' in err && String(err.code).startsWith('ERR_PARSE_ARGS')))
      throw err
    refuse(`${err.message}\n\n${command.help}`)
  }
}

function refuse(text: string): void {
  console.error(text)
  process.exitCode = 1
}
