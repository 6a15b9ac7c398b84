import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { json, text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { demoTask } from '../../src/cli/demo/tasks.ts'
import { count, percentile, surprises, type SeenTask } from '../../src/cli/demo/tally.ts'
import { progressLine } from '../../src/cli/demo/show.ts'
import { only } from '../support/only.ts'

interface Service {
  /** How a task ended. Undefined while it is SENDING. */
  ends: (
    taskNo: string,
    due: { ends: string; reason?: string }
  ) => { status: string; reason?: string } | undefined
  key?: string
  /** The statuses that refuse the first POSTs. */
  refuses?: number[]
}

/** A fake of the few API routes that the demo calls. */
async function service(t: Test, { ends, key, refuses = [] }: Service) {
  const tasks: SeenTask[] = []
  let posted = () => {}
  const server = createServer((request, response) => {
    void (async () => {
      const url = new URL(request.url ?? '/', 'http://service')
      const reply = (status: number, body: object, headers = {}) =>
        response.writeHead(status, headers).end(JSON.stringify(body))
      if (url.pathname === '/readyz') return reply(200, {})
      if (key && request.headers.authorization !== `Bearer ${key}`)
        return reply(401, { code: 'UNAUTHORIZED' })
      if (request.method === 'POST') {
        const body = (await json(request)) as { taskNo: string; messageCode: string; sceneType: string }
        const refused = refuses.shift()
        if (refused) return reply(refused, { code: 'REFUSED' }, { 'retry-after': '1' })
        const at = new Date().toISOString()
        const due = demoTask(body.sceneType, Number(body.taskNo.split('-').at(-1)))
        const { status = 'SENDING', reason } = ends(body.taskNo, due) ?? {}
        tasks.unshift({
          ...body,
          status,
          createdAt: at,
          deliveries: [
            {
              downstream: 'd',
              status,
              triesLeft: (due.post.retryTimes ?? 10) - 2,
              ...(reason ? { reason } : {}),
              ...(status === 'HANDLED' ? { handledAt: at } : {})
            }
          ]
        })
        posted()
        return reply(201, {})
      }
      const from = Number(url.searchParams.get('cursor') ?? 0)
      const page = tasks.slice(from, from + 200)
      return reply(200, {
        tasks: page,
        ...(from + 200 < tasks.length ? { nextCursor: String(from + 200) } : {})
      })
    })()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  const firstPost = new Promise<void>(resolve => {
    posted = resolve
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, tasks, firstPost }
}

function demo(args: string[], env: Record<string, string> = {}) {
  const child = spawn(
    process.execPath,
    [join(import.meta.dirname, '../../src/cli/ackbox.js'), 'demo', ...args],
    {
      env: { PATH: process.env['PATH'], ...env },
      stdio: ['ignore', 'pipe', 'pipe']
    }
  )
  const ended = Promise.all([once(child, 'exit'), text(child.stdout), text(child.stderr)]).then(
    ([[code], out, err]) => ({ code: code as number, out, err })
  )
  return { child, ended }
}

const asDue: Service['ends'] = (_, { ends, reason }) => ({ status: ends, ...(reason ? { reason } : {}) })

t.test('when every task ends as it should, the demo says so, in a table, and exits 0', async t => {
  const { url, tasks } = await service(t, { ends: asDue })
  const { code, out } = await demo(['--url', url, '--tasks', '250']).ended
  t.equal(code, 0, out)
  t.equal(tasks.length, 250)
  t.match(out, /all +250 +243 +7 +0 +250 +500 +250 /)
  t.match(out, /Every task ended as expected\. 7 FAILED on purpose\./)
  t.match(out, /accepted 250 .*HANDLED 243 .*FAILED 7 /)
})

t.test('a task that ends another way is named, and the demo exits 1', async t => {
  const { url } = await service(t, {
    ends: (taskNo, due) =>
      taskNo.endsWith('-7')
        ? { status: 'FAILED', reason: 'REFUSED' }
        : taskNo.endsWith('-3')
          ? { status: 'FAILED' }
          : asDue(taskNo, due)
  })
  const { code, out } = await demo(['--url', url, '--tasks', '10']).ended
  t.equal(code, 1)
  t.match(out, /2 did not end as expected:/)
  t.match(out, /-3 \(audit\.log\) is FAILED, expected HANDLED/)
  t.match(out, /-7 \(order\.paid\) is FAILED REFUSED, expected FAILED SEND_EXHAUSTED/)
})

t.test('a task that never ends makes the demo end at its timeout, with 1', async t => {
  const { url } = await service(t, { ends: () => undefined })
  const { code, out } = await demo(['--url', url, '--tasks', '3', '--timeout', '1']).ended
  t.equal(code, 1)
  t.match(out, /3 did not end as expected/)
})

t.test('Ctrl-C prints the table so far and exits 130', async t => {
  const { url, firstPost } = await service(t, { ends: () => undefined })
  const { child, ended } = demo(['--url', url, '--tasks', '300'])
  await firstPost
  child.kill('SIGINT')
  const { code, out, err } = await ended
  t.equal(code, 130, err)
  t.match(out, /deliveries +attempts/)
  t.match(out, /Stopped after/)
  t.equal(err, '')
})

t.test('a service that has no room for a moment gets the same task again', async t => {
  const { url, tasks } = await service(t, { ends: asDue, refuses: [503, 429] })
  const { code } = await demo(['--url', url, '--tasks', '5']).ended
  t.equal(code, 0)
  t.equal(new Set(tasks.map(({ taskNo }) => taskNo)).size, 5)
})

t.test('what keeps the demo from running is said in one line with what to do', async t => {
  const { url } = await service(t, { ends: asDue, key: 'right' })
  const refusing = await service(t, { ends: asDue, refuses: [422, 422, 422, 422] })
  const table: [args: string[], says: RegExp][] = [
    [['--url', 'http://127.0.0.1:1'], /No service answers at http:\/\/127\.0\.0\.1:1 .*npm start/],
    [['--url', url], /401.*\n.*--key/],
    [['--url', refusing.url], /422.*\n.*without HANDLERS_DIR/],
    [['--tasks', 'many'], /--tasks must be a whole number/],
    [['--taks', '5'], /Unknown option '--taks'\nnpm run demo -- --help/],
    [['--url', 'ftp://x'], /not an http or https URL/]
  ]
  for (const [args, says] of table) {
    const { code, err } = await demo(args).ended
    t.equal(code, 1, args.join(' '))
    t.match(err, says)
    t.notMatch(err, /\n {4}at /, 'no stack')
  }
})

t.test('the key comes from --key, the environment, or the file that the service wrote', async t => {
  const { url } = await service(t, { ends: asDue, key: 'right' })
  const dir = mkdtempSync(join(tmpdir(), 'demo-'))
  t.teardown(() => rmSync(dir, { recursive: true }))
  writeFileSync(join(dir, 'demo-key'), 'right\n')
  const base = ['--url', url, '--tasks', '2']
  t.match(await demo([...base, '--key', 'right']).ended, { code: 0 })
  t.match(await demo([...base, '--key', 'right\n']).ended, { code: 0 })
  t.match(await demo([...base, '--key-file', join(dir, 'demo-key')]).ended, { code: 0 })
  t.match(await demo(base, { ACKBOX_KEY: 'right', ACKBOX_DEMO_KEY: 'wrong' }).ended, { code: 0 })
  t.match(await demo(base, { ACKBOX_DEMO_KEY: 'right' }).ended, { code: 0 })
  t.match(await demo(base, { DATA_DIR: dir }).ended, { code: 0 })
  t.match(await demo([...base, '--key', 'wrong'], { DATA_DIR: dir }).ended, { code: 1 })
})

t.test('--help says how', async t => {
  t.match(await demo(['--help']).ended, { code: 0, out: /--tasks N/ })
})

t.test('of a thousand tasks a few fail on purpose, each kind alike, and all are of the samples', async t => {
  const tasks = Array.from({ length: 1_000 }, (_, i) => demoTask('run', i))
  const failing = tasks.flatMap(({ reason }) => (reason ? [reason] : []))
  t.same([...new Set(failing)].toSorted(), ['RECEIPT_FAILED', 'RECEIPT_TIMEOUT', 'REFUSED', 'SEND_EXHAUSTED'])
  t.equal(failing.length, 20)
  t.equal(new Set(tasks.map(({ post }) => post.taskNo)).size, 1_000)
  t.same([...new Set(tasks.map(({ post }) => post.messageCode))].toSorted(), [
    'audit.log',
    'material.sync',
    'order.paid'
  ])
})

t.test('what was SKIPPED is no delivery, and a task takes as long as its last downstream', async t => {
  const at = (s: number) => new Date(s * 1_000).toISOString()
  const task: SeenTask = {
    taskNo: 'a',
    messageCode: 'm',
    status: 'HANDLED',
    createdAt: at(0),
    deliveries: [
      { downstream: 'x', status: 'HANDLED', triesLeft: 7, handledAt: at(5) },
      { downstream: 'y', status: 'HANDLED', triesLeft: 9, handledAt: at(2) },
      { downstream: 'z', status: 'DELETED', reason: 'SKIPPED', triesLeft: 10 }
    ]
  }
  t.match(count([task]), {
    tasks: 1,
    handled: 1,
    deliveries: 2,
    delivered: 2,
    attempts: 4,
    retried: 2,
    latencies: only(5_000)
  })
  t.equal(count([task], 'other').tasks, 0)
  t.same(
    surprises(
      [{ post: { taskNo: 'b', messageCode: 'm', sceneType: '', messageBody: {} }, ends: 'HANDLED' }],
      new Map()
    ),
    ['b (m) is not found, expected HANDLED']
  )
})

t.test('percentiles and the line of progress hold for nothing at all', async t => {
  t.equal(percentile([], 0.99), undefined)
  t.equal(percentile([1, 2, 3], 0.99), 3)
  t.match(progressLine(0, 0, count([]), 0, 200), /accepted 0 .* p99 –$/)
  t.equal(progressLine(10, 5, count([]), 0, 40).length, 40)
})
