// Runs an example of examples/ by its command, as a user does.
import path from 'node:path'
import type { Test } from 'tap'
import { program, type Program } from './program.ts'

const runner = path.resolve(import.meta.dirname, '../../examples/run.js')

/** Starts `npm run example -- …`, without the build. */
export function example(t: Test, ...args: string[]): Program {
  const running = program(t, process.execPath, [runner, ...args], { env: {} })
  // SIGTERM before the SIGKILL: it must end the processes that it started.
  t.teardown(() => running.stop('SIGTERM'))
  return running
}

/** Runs it to its end, and asserts that its own checks passed. Returns its output. */
export async function holds(t: Test, ...args: string[]): Promise<readonly string[]> {
  const { exited, lines } = example(t, ...args)
  const code = await exited
  t.equal(code, 0, lines.join('\n'))
  t.ok(
    lines.some(line => line.includes('It holds: ')),
    'it was checked'
  )
  return lines
}

/** How often each program was killed. */
export function killed(lines: readonly string[]): { [name: string]: number } {
  const times: { [name: string]: number } = {}
  for (const line of lines) {
    const [, name] = / {2}(\S+) was killed, and is started again$/.exec(line) ?? []
    if (name) times[name] = (times[name] ?? 0) + 1
  }
  return times
}
