// npm run test:schemathesis: an outside tool reads our API description and looks for answers of the service that break it.
import { spawn, spawnSync } from 'node:child_process'
import { existsSync, rmSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { cache } from '../interop/server.ts'
import { startService } from './service.ts'

const help = `npm run test:schemathesis -- [options]

Runs schemathesis against /openapi.json of a service of its own, with keys asked for: no 5xx, and every answer of a status, a
type and a form that the description says. Needs python3 (3.11 or newer) with venv and pip; schemathesis is installed once,
pinned by test/schemathesis/requirements.txt. What cannot run is said and skipped; with CI=true it fails.

  --seconds N   how long to look for something (60)
  --seed N      another choice of requests (1)
  --help

INTEROP_CACHE=folder   where schemathesis is kept (.interop)`

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    seed: { type: 'string', default: '1' },
    help: { type: 'boolean', short: 'h' }
  }
})
if (values.help) {
  console.log(help)
  process.exit(0)
}

const folder = resolve('test/schemathesis')
const program = install()
if (program === null) process.exit(process.env['CI'] === 'true' ? 1 : 0)

const service = await startService()
console.error(`schemathesis, seed ${values.seed}, for ${values.seconds} s against ${service.url}`)
const code = await judge(program)
const wrong = await service.stop()
for (const line of wrong) console.error(line)
process.exitCode = code === 0 && wrong.length === 0 ? 0 : 1

/** The path of schemathesis. Null if it cannot be installed. Replaces an incomplete installation. */
function install(): string | null {
  const home = join(cache, 'schemathesis')
  const ready = join(home, 'requirements.txt')
  const wanted = join(folder, 'requirements.txt')
  const found = join(home, 'bin', 'st')
  if (existsSync(ready) && spawnSync('cmp', ['-s', ready, wanted]).status === 0) return found
  rmSync(home, { recursive: true, force: true })
  console.error(`schemathesis is installed into ${home}`)
  const steps: [string, string[]][] = [
    ['python3', ['-m', 'venv', home]],
    [join(home, 'bin', 'pip'), ['install', '--quiet', '--disable-pip-version-check', '-r', wanted]],
    ['cp', [wanted, ready]]
  ]
  for (const [command, args] of steps) {
    const { status, error } = spawnSync(command, args, { stdio: ['ignore', 'inherit', 'inherit'] })
    if (status === 0) continue
    const why = error ? error.message : `ended with ${status}`
    console.error(`skipped: schemathesis cannot be installed here (${command} ${args[0]}: ${why})`)
    return null
  }
  return found
}

/** Returns the exit code: 0, or 1 after a finding. Schemathesis prints a curl line for each finding. */
async function judge(st: string): Promise<number> {
  // Schemathesis writes files to its working folder.
  const cwd = await mkdtemp(join(tmpdir(), 'schemathesis-'))
  const run = ['run', `${service.url}/openapi.json`, '--seed', values.seed, '--max-time', values.seconds]
  const child = spawn(st, ['--config-file', join(folder, 'schemathesis.toml'), ...run, '--no-color'], {
    cwd,
    env: { ...process.env, ACKBOX_KEY: service.key, ACKBOX_TOKEN: service.token },
    stdio: ['ignore', 'inherit', 'inherit'],
    timeout: (Number(values.seconds) + 120) * 1000,
    killSignal: 'SIGKILL'
  })
  const ended = await new Promise<number>(done => {
    child.once('error', () => done(1))
    child.once('exit', exit => done(exit ?? 1))
  })
  await rm(cwd, { recursive: true, force: true })
  return ended
}
