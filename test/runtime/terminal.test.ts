// The log on a terminal: short lines that a person can follow, however much happens.
import path from 'node:path'
import { mock } from 'node:test'
import t, { type Test } from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { openTerminal } from '../../src/runtime/terminal.ts'
import { program, without } from '../support/program.ts'
import { call, folder, start } from '../support/service.ts'

function terminal(t: Test) {
  mock.timers.enable({ apis: ['setTimeout'] })
  t.teardown(() => mock.timers.reset())
  const printed: string[] = []
  return { ...openTerminal(text => printed.push(text), false), printed }
}
const line = (fields: object): string => JSON.stringify({ level: 30, time: 0, ...fields })
const handled = { status: 'HANDLED', taskNo: 'hello-1', downstream: 'warehouse', attempt: 1 }

t.test('each delivery that ended is one line that says how', t => {
  const { write, ended, printed } = terminal(t)
  ended({ ...handled, by: 'receipt' })
  const attempt = { msg: 'attempt.done', taskNo: 'hello-2', downstream: 'points', attempt: 3, ms: 12 }
  write(line({ ...attempt, move: 'retry', afterMs: 40_000, reason: 'HTTP 503' }))
  write(line({ ...attempt, move: 'fail', reason: 'HTTP 410' }))
  t.same(
    printed.map(text => text.slice(9)),
    [
      'HANDLED  hello-1 → warehouse, attempt 1, by receipt\n',
      'RETRY    hello-2 → points, attempt 3, 12 ms, again in 40 s: HTTP 503\n',
      'FAILED   hello-2 → points, attempt 3, 12 ms: HTTP 410\n'
    ]
  )
  t.end()
})

t.test('beyond 20 lines a second the rest is counted, but no warning is left out', t => {
  const { write, ended, printed } = terminal(t)
  for (let n = 0; n < 332; n++) ended(handled)
  write(line({ level: 40, msg: 'queue.unavailable' }))
  t.equal(printed.length, 21)
  t.match(printed.at(-1), 'WARN     queue.unavailable')
  mock.timers.tick(1_000)
  t.match(printed.at(-1), '… and 312 more')
  ended(handled)
  t.equal(printed.length, 23, 'the next second has room again')
  t.end()
})

t.test('a taskNo cannot write colors, move the cursor, or make a line of its own', t => {
  const { ended, printed } = terminal(t)
  ended({ ...handled, taskNo: 'a\u001B[2J\nERROR b\u202E' })
  t.match(printed[0]?.slice(9), 'HANDLED  a�[2J ERROR b� → warehouse, attempt 1\n')
  t.end()
})

t.test('an error shows its stack, a warning its message only', t => {
  const { write, printed } = terminal(t)
  const err = { type: 'Error', message: 'no room', stack: 'Error: no room\n    at here', code: 'E1' }
  write(line({ level: 50, msg: 'crash', err }))
  write(line({ level: 40, msg: 'receipt.failed', taskNo: 'x', err }))
  t.same(
    printed.map(text => text.slice(9)),
    [
      'ERROR    crash type=Error code=E1 no room\nError: no room\n    at here\n',
      'WARN     receipt.failed taskNo=x type=Error code=E1 no room\n'
    ]
  )
  t.end()
})

t.test(
  'the first task leaves a line on the terminal, and names the demo of this port',
  { skip: without('script') },
  async t => {
    const port = await freePort()
    const start = `${process.execPath} ${path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')} start`
    const env = { DATA_DIR: folder(t), PORT: String(port), NO_COLOR: '1' }
    const shown = program(t, 'script', ['-qefc', start, '/dev/null'], { env })
    await shown.said(new RegExp(`Demo {8}npm run demo -- --url http://127\\.0\\.0\\.1:${port}`))
    await shown.said(/INFO {5}ready /)
    const task = {
      taskNo: 'hello-1',
      messageCode: 'order.paid',
      messageBody: { orderId: '1001', cents: 4200 }
    }
    t.equal((await call(`http://127.0.0.1:${port}/tasks`, task)).status, 201)
    // The demo receiver sometimes answers that it is busy. If its answer is the receipt, the line has a time instead of `by receipt`.
    await shown.said(/HANDLED {2}hello-1 → warehouse, attempt \d+, (?:by receipt|\d+ ms)/)
    // SIGKILL for the terminal would leave the service and its PostgreSQL running.
    await shown.stop('SIGTERM')
  }
)

t.test('in a pipe each line of stdout is JSON, and the greeting is on stderr', async t => {
  const service = await start(t, { DATA_DIR: folder(t) })
  t.same(await service.kill('SIGTERM'), { code: 0, signal: null })
  const lines = service.stdout().trimEnd().split('\n')
  t.same(
    lines.filter(line => !isJson(line)),
    []
  )
  t.ok(lines.length > 1)
  t.match(service.output(), `Dashboard   ${service.url}/`)
})

function isJson(line: string): boolean {
  try {
    JSON.parse(line)
    return true
  } catch {
    return false
  }
}
