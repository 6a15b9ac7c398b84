#!/usr/bin/env node
// The program `ackbox`: finds the command and runs it.
import { commandLine, isClone, version } from '../runtime/package.ts'
import { SlipError, unknownCommand, UsageError } from './arguments.ts'

/** The exports of each file in this folder. */
interface Command {
  help: string
  run(args: string[]): Promise<void>
  /** It runs code of users, which may keep a timer or a connection open: the process ends when the command has. */
  runsHandlers?: true
}

const commands: Record<string, { does: string; load: () => Promise<Command> }> = {
  init: { does: 'creates a small project in this folder', load: () => import('./init.ts') },
  start: { does: 'runs the service until Ctrl-C', load: () => import('./start.ts') },
  dev: { does: 'runs the service, restarts it when a handler changes', load: () => import('./dev.ts') },
  migrate: { does: 'applies the missing migrations to DATABASE_URL', load: () => import('./migrate.ts') },
  key: { does: 'creates, lists and revokes API keys', load: () => import('./key.ts') },
  tasks: { does: 'lists, pushes, settles and redelivers tasks', load: () => import('./tasks.ts') },
  archive: { does: 'finds and restores tasks that retention removed', load: () => import('./archive.ts') },
  outbox: { does: 'lets a role enqueue tasks by SQL', load: () => import('./outbox.ts') },
  alarms: { does: 'lists the channels of alarms and tests one', load: () => import('./alarms.ts') },
  doctor: { does: 'checks the setup and prints the fixes', load: () => import('./doctor.ts') },
  handlers: { does: 'lists and checks the handlers', load: () => import('./handlers.ts') },
  demo: { does: 'posts sample tasks and shows their results', load: () => import('./demo.ts') },
  relay: { does: "moves tasks from a producer's own database", load: () => import('./relay.ts') },
  import: { does: 'copies a home-grown message table to tasks', load: () => import('./import.ts') },
  consumer: { does: "prints the tables of a receiver's own database", load: () => import('./consumer.ts') },
  generate: { does: 'writes the generated pages of a clone of Ackbox', load: () => import('./generate.ts') }
}

const help = `ackbox <command> [options]    Ackbox ${version}

${Object.entries(commands)
  .filter(([name]) => isClone || name !== 'generate')
  .map(([name, { does }]) => `  ${name.padEnd(10)}${does}`)
  .join('\n')}

ackbox <command> --help shows the options of a command. Settings come from the environment and a file .env: see docs/config.md.`

// A reader such as `head` closes the pipe after its first lines. The command still runs to its end.
for (const stream of [process.stdout, process.stderr])
  stream.on('error', (err: NodeJS.ErrnoException) => {
    if (err.code !== 'EPIPE') throw err
  })

await main(process.argv.slice(2))

async function main([name, ...args]: string[]): Promise<void> {
  if (name === 'help' && args[0] !== undefined) return await main([args[0], '--help'])
  if (name === undefined || name === 'help' || name === '--help' || name === '-h') return console.log(help)
  if (name === '--version' || name === '-v') return console.log(version)
  const command = Object.hasOwn(commands, name) ? await commands[name]?.load() : undefined
  if (!command)
    return refuse(`${unknownCommand(name, Object.keys(commands))}\nackbox --help lists the commands`)
  if (args.some(word => word === '--help' || word === '-h')) return console.log(command.help)
  try {
    await command.run(args)
  } catch (err) {
    if (err instanceof SlipError)
      refuse(`${err.message}\n${commandLine(`${name} --help`)} shows the words and options`)
    else if (err instanceof UsageError) refuse(err.message)
    // Imported only here: it takes longer than most commands.
    else refuse((await import('./explain.ts')).explain(err))
  }
  if (command.runsHandlers) await exit()
}

/** Ends the process when its output is written. */
async function exit(): Promise<void> {
  for (const stream of [process.stdout, process.stderr])
    await new Promise(resolve => stream.write('', resolve))
  process.exit()
}

function refuse(text: string): void {
  console.error(text)
  process.exitCode = 1
}
