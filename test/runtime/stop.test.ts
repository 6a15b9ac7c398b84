import { execFile } from 'node:child_process'
import path from 'node:path'
import t from 'tap'
import { only } from '../support/only.ts'

const stop = path.resolve(import.meta.dirname, '../../src/runtime/stop.js')
/** Prints each request to stop, and ends at the second. */
const program = `
  import { onStop } from ${JSON.stringify(stop)}
  let asked = 0
  onStop(why => {
    console.log(JSON.stringify(why))
    if (++asked === 2) process.exit()
  })
  setInterval(() => {}, 1_000)
  console.log(process.pid)`

/** The lines that the program printed. `act` gets its pid and the pid of the shell that started it. */
async function said(
  env: Record<string, string>,
  act: (pid: number, shell: number) => void
): Promise<string[]> {
  return await new Promise(resolve => {
    const shell = execFile(
      'sh',
      ['-c', '"$0" --input-type=module -e "$1" & wait', process.execPath, program],
      { env },
      (_error, out) => resolve(out.trim().split('\n').slice(1))
    )
    shell.stdout?.once('data', (pid: string) => act(Number(pid), shell.pid ?? 0))
  })
}

t.test('without npm each signal is a request', async t => {
  const signals = await said({}, pid => {
    process.kill(pid, 'SIGINT')
    process.kill(pid, 'SIGTERM')
  })
  t.strictSame(signals.toSorted(), ['{"signal":"SIGINT"}', '{"signal":"SIGTERM"}'])
})

t.test('under npm a signal and its echo are one request, and the end of npm is one', async t => {
  const signals = await said({ npm_lifecycle_event: 'npx' }, (pid, shell) => {
    // Both signals are pending when the program continues, even on a busy machine.
    for (const signal of ['SIGSTOP', 'SIGINT', 'SIGTERM', 'SIGCONT']) process.kill(pid, signal)
    process.kill(shell, 'SIGKILL')
  })
  t.match(signals, only(/^\{"signal":"SIG(?:INT|TERM)"\}$/, '{"parent":"gone"}'))
})
