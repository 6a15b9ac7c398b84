// ackbox start: the process of main.ts.
import { parseArgs } from 'node:util'
import { commandLine, version } from '../runtime/package.ts'

export const help = `${commandLine('start')}    runs Ackbox ${version}: API, workers and dispatcher in one process, or what ROLE says

Settings come from the environment; docs/config.md lists them all. Without any it runs on an embedded PostgreSQL
under .ackbox/ with the sample handlers and a demo receiver. Other commands: ${commandLine('demo')}, handlers, key, doctor, migrate.
Ctrl-C drains and ends; a second Ctrl-C ends at once.`

export async function run(args: string[]): Promise<void> {
  parseArgs({ args })
  await import('../main.ts')
}
