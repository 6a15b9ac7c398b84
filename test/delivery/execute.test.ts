import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import fc from 'fast-check'
import t from 'tap'
import { writeNode } from '../../src/db/cluster.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { httpTransport } from '../../src/transport/http/http.ts'
import { only } from '../support/only.ts'
import { delivered, failed } from '../support/scripted.ts'
import { taskRequest } from '../support/task-request.ts'
import { backAgain, throughBlackHole } from '../support/away.ts'
import { setup } from '../support/setup.ts'

t.test('every attempt brings the very bytes that were posted', async t => {
  const bodies: string[] = []
  const heads: IncomingHttpHeaders[] = []
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      bodies.push(Buffer.concat(chunks).toString('latin1'))
      heads.push(request.headers)
      response.writeHead(bodies.length % 3 === 0 ? 200 : 503).end()
    })
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const transport = httpTransport({ guard: guard({ allow: undefined, embedded: true, deny: [] }) })
  t.teardown(async () => {
    await transport.close()
    server.close()
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  const { post, dispatch, later, quiet } = await setup(t, {
    transport,
    downstream: { request: ({ raw }) => ({ url, body: raw }) }
  })
  const posted = [
    '{"a":1.0,"b":1e2,"c":12345678901234567890}',
    ' { "z" : 1 ,\n"a":"\\u0041\\ud83d\\ude00 日本 😀", "__proto__": {"x":[]} } ',
    '"just a text"',
    '[{},[],"{\\"x\\":1}"]',
    '-0',
    'false'
  ]
  for (const messageBody of posted) {
    bodies.length = heads.length = 0
    await post({ messageBody })
    for (let n = 0; n < 3; n++) {
      await quiet()
      await later('1 minute')
      await dispatch()
    }
    const bytes = Buffer.from(messageBody).toString('latin1')
    t.same(bodies, [bytes, bytes, bytes], messageBody)
    t.equal(new Set(heads.map(head => head['webhook-id'])).size, 1)
    t.same(
      heads.map(head => head['ackbox-attempt']),
      ['1', '2', '3']
    )
  }
})

t.test(
  '{…} first, then "{…}": the first send and the retry deliver the same text, whatever was posted',
  async t => {
    const { accept, downstream, quiet, later, dispatch, read } = await setup(t)
    const posted = fc.sample(fc.json(), { numRuns: 60, seed: 7 }).filter(text => !text.includes('\\u0000'))
    downstream.usual = failed
    const tasks = posted.map(messageBody => taskRequest({ messageBody, retryTimes: 2 }))
    await accept.many(tasks)
    await quiet()
    await later('1 minute')
    await dispatch()
    for (const { taskNo, messageBody } of tasks) {
      const seen = downstream.requests.filter(one => one.taskNo === taskNo).map(one => one.raw)
      t.same(seen, [messageBody, messageBody])
      t.equal((await read(taskNo)).messageBody, messageBody)
    }
  }
)

t.test('the attempt is in the database before the request leaves', async t => {
  const { post, downstream, delivery } = await setup(t)
  downstream.holds = true
  const taskNo = await post()
  const [first] = await downstream.received(1)
  t.equal(first?.attempt, 1)
  t.match(await delivery(taskNo), { phase: 'IN_FLIGHT', attempt: 1, triesLeft: 9 })
  downstream.answer()
})

t.test('one slow request in a job of many holds up none of the others', async t => {
  const { accept, downstream, sql, record } = await setup(t, {
    downstream: { limit: { concurrency: 2, timeoutMs: 10_000 } }
  })
  downstream.holds = true
  await accept.many(Array.from({ length: 20 }, () => taskRequest()))
  await downstream.received(2)
  // The first request stays without an answer. The other slot sends all the rest.
  downstream.holds = false
  const slow = downstream.requests[0]?.taskNo
  downstream.answer(delivered, 1)
  await downstream.received(20)
  await record.idle()
  const open = await sql<{ task_no: string }[]>`
    select task_no from task join delivery on task_id = id where status = 0`
  t.same(
    open.map(row => row.task_no),
    [slow]
  )
  downstream.answer()
})

t.test('an old job is harmless: what is terminal, not due or claimed anew is not sent again', async t => {
  const { post, deliver, downstream, quiet, sql, later, dispatch } = await setup(t)
  downstream.next(failed)
  const taskNo = await post()
  await quiet()
  const [{ id }] = await sql<[{ id: string }]>`select id from task where task_no = ${taskNo}`
  const old = () => deliver({ downstream: 'warehouse', deliveries: [{ taskId: id, attempt: 1 }] }).then(quiet)
  await old()
  t.equal(downstream.requests.length, 1, 'it waits for its backoff')
  downstream.holds = true
  await later('1 minute')
  await dispatch()
  await downstream.received(2)
  await deliver({ downstream: 'warehouse', deliveries: [{ taskId: id, attempt: 1 }] })
  t.equal(downstream.requests.length, 2, 'attempt 2 is in flight')
  downstream.answer()
  downstream.holds = false
  await quiet()
  await old()
  await deliver({
    downstream: 'warehouse',
    deliveries: [
      { taskId: id, attempt: 2 },
      { taskId: id, attempt: 3 }
    ]
  })
  await quiet()
  t.equal(downstream.requests.length, 2, 'it is HANDLED')
})

t.test(
  'a worker that was stopped beyond its lease writes nothing: its answer is stale, and kept',
  async t => {
    const { post, downstream, delivery, later, dispatch, quiet, logged, queue } = await setup(t)
    downstream.holds = true
    const taskNo = await post()
    await downstream.received(1)
    await later('21 s')
    queue.mode = 'lose'
    await dispatch()
    await dispatch()
    t.match(await delivery(taskNo), { phase: 'IN_FLIGHT', attempt: 2, triesLeft: 9 })
    downstream.answer()
    downstream.holds = false
    await quiet()
    t.match(await delivery(taskNo), {
      phase: 'IN_FLIGHT',
      attempt: 2,
      attempts: only({ attempt: 1, outcome: 'delivered' })
    })
    t.match(logged('attempt.stale'), only({ taskNo, attempt: 1, applied: 'stale' }))
  }
)

t.test('a job that comes with too little lease is given back, uncounted and unsent', async t => {
  const { post, queue, later, delivery, quiet, downstream } = await setup(t, {
    hasWorker: false,
    downstream: { limit: { concurrency: 5, timeoutMs: 10_000 } }
  })
  queue.mode = 'hold'
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  await later('15 s')
  await queue.run()
  await quiet()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1, triesLeft: 1, attempts: { length: 0 } })
  t.equal(downstream.requests.length, 0)
})

t.test('paused: what waits in the queue is given back, what is in flight finishes', async t => {
  const { post, queue, sql, around, downstream, delivery, quiet } = await setup(t)
  downstream.holds = true
  const flying = await post()
  await downstream.received(1)
  queue.mode = 'hold'
  const queued = await post({ retryTimes: 1 })
  await sql`insert into downstream (name, paused_at, paused_by) values ('warehouse', now(), 'me')`
  await around.refresh()
  await queue.run()
  downstream.answer()
  await quiet()
  t.match(await delivery(flying), { status: 'HANDLED' })
  t.match(await delivery(queued), { phase: 'WAITING', triesLeft: 1, attempts: { length: 0 } })
  t.equal(downstream.requests.length, 1)
})

t.test(
  'no handler here: put off uncounted with one alarm, later and later, resolved at its next send',
  async t => {
    const { post, handlers, delivery, dispatch, later, quiet, sql, downstream } = await setup(t)
    const [known] = handlers.values()
    const taskNo = await post({ retryTimes: 2 })
    await quiet()
    downstream.next(failed)
    const orphan = await post({ retryTimes: 2, delayMs: 1 })
    handlers.clear()
    await later('1 s')
    const waits: number[] = []
    for (let n = 0; n < 5; n++) {
      await dispatch()
      const { phase, triesLeft, nextActionAt = '' } = await delivery(orphan)
      t.match({ phase, triesLeft }, { phase: 'WAITING', triesLeft: 2 })
      waits.push(Math.round((Date.parse(nextActionAt) - Date.now()) / 10_000) * 10)
      await later('1 hour')
    }
    t.equal(waits[0], 60)
    t.equal(waits.at(-1), 3_600)
    const alarms = () => sql<{ kind: string; open: boolean }[]>`
    select kind, resolved_at is null as open from alarm`
    t.same([...(await alarms())], [{ kind: 'NO_HANDLER', open: true }])
    const roles = 'worker,dispatcher'
    await writeNode(sql, { id: 'new', roles, version: 'test', handles: ['order.paid warehouse'] })
    await dispatch()
    await later('6 s') // not an hour: another process has the handler
    if (known) handlers.set('order.paid', known)
    await dispatch()
    t.match(await delivery(orphan), { phase: 'WAITING', triesLeft: 1, attempts: only({ outcome: 'failed' }) })
    t.same([...(await alarms())], [{ kind: 'NO_HANDLER', open: false }], 'it was sent, though in vain')
    t.match(await delivery(taskNo), { status: 'HANDLED' })
  }
)

t.test('SIGTERM: what waits for a slot is given back, what is on its way ends', async t => {
  const { post, downstream, stopping, delivery, quiet } = await setup(t, {
    downstream: { limit: { concurrency: 1, timeoutMs: 10_000 } }
  })
  downstream.holds = true
  const flying = await post()
  await downstream.received(1)
  const waiting = await post({ retryTimes: 1 })
  await until(async () => (await delivery(waiting)).phase === 'IN_FLIGHT')
  stopping.abort()
  downstream.answer()
  await quiet()
  t.match(await delivery(flying), { status: 'HANDLED' })
  t.match(await delivery(waiting), { phase: 'WAITING', triesLeft: 1, attempts: { length: 0 } })
})

t.test(
  'what the end of our patience cuts off is recorded as shutdown, due at once and uncounted',
  async t => {
    const { post, downstream, stopping, cutOff, delivery, quiet } = await setup(t)
    downstream.holds = true
    const taskNo = await post({ retryTimes: 1 })
    await downstream.received(1)
    stopping.abort()
    cutOff.abort()
    await quiet()
    const cut = await delivery(taskNo)
    const attempts = only({ outcome: 'failed', reason: 'shutdown' })
    t.match(cut, { phase: 'WAITING', triesLeft: 1, attempts })
    t.ok(Date.parse(cut.nextActionAt ?? '') <= Date.now())
  }
)

t.test(
  'PostgreSQL goes away while an answer is in hand: it is written when it is back, and nothing new is sent',
  async t => {
    const { hole, sql, direct } = await throughBlackHole(t)
    const { post, downstream, around, queue, quiet, read, later, dispatch } = await setup(t, { sql })
    downstream.holds = true
    const flying = await post()
    await downstream.received(1)
    queue.mode = 'hold'
    const queued = await post({ retryTimes: 1 })
    await direct`select pg_terminate_backend(pid) from pg_stat_activity
    where pid <> pg_backend_pid() and datname = current_database()`
    hole.swallow()
    around.setDatabaseAway()
    t.notOk(around.isDatabaseUnreachable())
    downstream.answer()
    const delivering = queue.run()
    hole.heal()
    await delivering
    t.equal(downstream.requests.length, 1, 'nothing new while it is away')
    await backAgain(around)
    downstream.holds = false
    await quiet()
    t.match(await read(flying), { status: 'HANDLED' })
    // Its job is gone. The end of its lease leads to a new attempt, and costs no try.
    queue.mode = 'deliver'
    await later('21 s')
    await dispatch()
    await dispatch()
    t.match((await read(queued)).deliveries, only({ status: 'HANDLED', attempt: 2, triesLeft: 0 }))
  }
)

async function until(is: () => Promise<boolean>): Promise<void> {
  while (!(await is())) await new Promise(resolve => setTimeout(resolve, 5))
}
