// ackbox start: runs main.ts in this process.
import { readArguments } from './arguments.ts'
import { commandLine, version } from '../runtime/package.ts'

export const help = `${commandLine('start')}    runs Ackbox ${version}: API, worker and dispatcher in one process, or the roles of ROLE

Settings come from the environment and a file .env: see docs/config.md. Without settings it uses an embedded PostgreSQL
under .ackbox/, the sample handlers and a demo receiver. Other commands: ${commandLine('demo')}, handlers, key, doctor, migrate.
Ctrl-C finishes the work in progress, then stops. A second Ctrl-C stops at once.

Exit: 0 stopped by Ctrl-C or SIGTERM · 1 an error, which is printed, or stopped at once`

export async function run(args: string[]): Promise<void> {
  readArguments({ args })
  await import('../main.ts')
}
