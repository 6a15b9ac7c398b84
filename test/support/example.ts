// An example of examples/, run by its command as a user runs it.
import path from 'node:path'
import type { Test } from 'tap'
import { program, type Program } from './program.ts'

const runner = path.resolve(import.meta.dirname, '../../examples/run.js')

/** Starts `npm run example -- …`, but for the build. */
export function example(t: Test, ...args: string[]): Program {
  const running = program(t, process.execPath, [runner, ...args], { env: {} })
  // Asked to end before it is killed: it ends what it started.
  t.teardown(() => running.stop('SIGTERM'))
  return running
}

/** Runs it to its end, and asserts that what must hold holds. Gives what it said. */
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
