// SIGTERM: running sends end, other work is left to other processes, and no client notices.
// Takes long: npm run test:long.
import { once } from 'node:events'
import { connect } from 'node:net'
import path from 'node:path'
import t from 'tap'
import { openDb } from '../../src/db/pool.ts'
import { balancer } from '../support/balancer.ts'
import { only } from '../support/only.ts'
import { call, eachOf, settled, start } from '../support/service.ts'
import { numbered, post, repeated, stage, taken, tally } from '../support/stage.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)
t.jobs = 2

const support = path.resolve(import.meta.dirname, '../support')

t.test(
  'a rolling restart under load, behind a balancer that heeds readyz, is seen by nobody',
  { buffered: true },
  async t => {
    const on = await stage(t, { redis: true, patient: true })
    if (!on) return
    const { downstream, sql } = on
    const first = await start(t, on.env)
    const second = await start(t, on.env)
    const gate = await balancer(t, [first.url, second.url])
    const posted: string[] = []
    const failed: unknown[] = []
    let ended = false
    t.teardown(() => {
      ended = true
    })
    t.teardown(() => {
      ended = true // also if the test fails: otherwise it would post for ever
    })
    const producer = async (_: unknown, me: number): Promise<void> => {
      for (let n = 0; !ended; n++) {
        const taskNo = `rolling-${me}-${n}`
        const messageCode = n % 2 === 0 ? 'test.plain' : 'test.receipt'
        const answer = await post(gate.url, taskNo, { messageCode }).catch((err: unknown) => err)
        if ((answer as { status?: number }).status === 201) posted.push(taskNo)
        else failed.push(answer)
        await new Promise(resolve => setImmediate(resolve))
      }
    }
    const producing = Promise.all(Array.from({ length: 4 }, producer))
    await downstream.received(100)

    const leaving = first.kill('SIGTERM')
    await until('readyz says no', async () => (await call(`${first.url}/readyz`)).status === 503)
    t.equal((await post(first.url, 'straggler')).status, 201, 'while it says so, it still takes what comes')
    posted.push('straggler')
    t.same(await leaving, { code: 0, signal: null }, 'it ends politely')
    const then = downstream.requests.length
    await downstream.received(then + 50)
    ended = true
    await producing

    t.same(failed, [], 'no POST failed')
    const ends = await eachOf(posted, taskNo => settled(second.url, taskNo))
    t.same(
      new Set(ends.map(end => end.body?.['status'])),
      new Set(['HANDLED']),
      `${posted.length} tasks ended`
    )
    t.same(await repeated(sql, downstream), [], 'each was delivered exactly once')
  }
)

t.test(
  'what is under way ends, what is loaded is handed back, what is posted waits for others',
  { buffered: true },
  async t => {
    let open = (): void => {}
    const opened = new Promise<number>(resolve => {
      open = () => resolve(200)
    })
    const on = await stage(t, { answer: () => opened })
    if (!on) return
    const { downstream, sql } = on
    // A timeout that even a busy machine does not reach.
    const env = { ...on.env, HANDLERS_DIR: path.resolve(support, 'long') }
    const service = await start(t, env)
    const tasks = numbered('held', 80)
    await eachOf(tasks, taskNo => taken(service.url, taskNo))
    await downstream.received(50)
    const waiting = settled(service.url, 'held-0', 30)

    const leaving = service.kill('SIGTERM')
    await until('readyz says no', async () => (await call(`${service.url}/readyz`)).status === 503)
    t.match(
      await waiting,
      { status: 200, body: { status: 'SENDING' } },
      'who waits is answered with the state of now'
    )
    t.match(
      await post(service.url, 'straggler'),
      { status: 201, body: { deliveries: [{ phase: 'WAITING', attempt: 0 }] } },
      'what is posted now is kept, and left to others'
    )
    open()
    t.same(await leaving, { code: 0, signal: null }, 'it ends politely')
    t.equal(downstream.requests.length, 50, 'what had no slot was not sent')
    // A job that is still in its queue is not handed back: the next worker takes it. It may be of a second claim, if the first found no queue in time.
    const [left] = await sql<{ handed_back: number; queued: number; handled: number }[]>`
    select count(*) filter (where phase = 'WAITING' and next_action_at <= now() and tries_left = 10)::int as handed_back,
      count(*) filter (where phase = 'IN_FLIGHT' and tries_left = 9)::int as queued,
      count(*) filter (where status = 1)::int as handled
    from delivery`
    t.equal(left?.handled, 50, 'what was under way has ended')
    t.ok((left?.handed_back ?? 0) >= 2, `what was loaded waits for anybody, due now: ${left?.handed_back}`)
    t.equal((left?.handed_back ?? 0) + (left?.queued ?? 0), 31, 'and that is all there is')
    t.same(await sql`select id from node`, [], 'nobody counts on it any more')

    const next = await start(t, env)
    await eachOf([...tasks, 'straggler'], taskNo => settled(next.url, taskNo))
    t.same(await tally(sql), { HANDLED: 81 }, 'the next start delivers the rest')
    t.equal(downstream.requests.length, 81, 'each exactly once')
    t.same(await sql`select from delivery where tries_left <> 9`, [], 'and no try was burnt')
  }
)

t.test(
  'a downstream that hangs is cut off at SHUTDOWN_MS, and tried again by the next start',
  { buffered: true },
  async t => {
    let hangs = true
    const on = await stage(t, { answer: () => (hangs ? 'hang' : 200) })
    if (!on) return
    const { downstream, sql } = on
    // A timeout that even a busy machine does not reach: only our own shutdown may cut off these sends.
    const env = { ...on.env, HANDLERS_DIR: path.resolve(support, 'long') }
    const service = await start(t, { ...env, SHUTDOWN_MS: '1000' })
    const tasks = numbered('cut', 5)
    await eachOf(tasks, taskNo => taken(service.url, taskNo, { retryTimes: 1 }))
    await downstream.received(5)
    t.same(await service.kill('SIGTERM'), { code: 0, signal: null }, 'it ends politely')
    const cut = await sql<{ reason: string; phase: string; tries_left: number; due: boolean }[]>`
    select distinct a.reason, d.phase, d.tries_left, d.next_action_at <= now() as due
    from attempt a join delivery d using (task_id, downstream)`
    t.same(
      cut.map(row => ({ ...row })),
      [{ reason: 'shutdown', phase: 'WAITING', tries_left: 1, due: true }],
      'they are due now, and the only try of each is not burnt by our own end'
    )
    hangs = false
    const next = await start(t, env)
    await eachOf(tasks, taskNo => settled(next.url, taskNo))
    t.same(await tally(sql), { HANDLED: 5 })
    const headers = downstream.requests.slice(5).map(request => request.headers['ackbox-attempt'])
    t.same(new Set(headers), new Set(['2']), 'by their second attempts')
  }
)

t.test(
  'without SHUTDOWN_MS a stop waits as long as its longest time-out asks, and knows what it cut off',
  { buffered: true },
  async t => {
    const on = await stage(t, { answer: () => 'hang' })
    if (!on) return
    const { downstream, sql } = on
    const HANDLERS_DIR = path.resolve(support, 'long')
    const service = await start(t, { ...on.env, HANDLERS_DIR }, path.resolve(support, 'hasty.js'))
    await post(service.url, 'long')
    await downstream.received(1)
    t.same(await service.kill('SIGTERM'), { code: 0, signal: null }, 'it ends politely')
    t.match(await sql`select reason from attempt`, only({ reason: 'shutdown' }))
  }
)

t.test('a second SIGTERM ends it at once, and nothing is lost', { buffered: true }, async t => {
  let hangs = true
  const on = await stage(t, { answer: () => (hangs ? 'hang' : 200) })
  if (!on) return
  const { downstream, sql } = on
  const service = await start(t, { ...on.env, SHUTDOWN_MS: '60000' })
  await post(service.url, 'impatient')
  await downstream.received(1)
  const began = stopwatch(t)
  const leaving = service.kill('SIGTERM')
  await until('it heard the first', () => /"msg":"stop"/.test(service.output()))
  void service.kill('SIGTERM')
  t.equal((await leaving).code, 1, 'not politely')
  // SHUTDOWN_MS is 60 s.
  t.ok(began() < 10_000, 'but at once')
  hangs = false
  const next = await start(t, on.env)
  t.match(await settled(next.url, 'impatient'), { body: { status: 'HANDLED' } })
  t.same(await tally(sql), { HANDLED: 1 })
})

t.test(
  'PostgreSQL takes too long in a drain: once it does not, tasks are taken again',
  { buffered: true },
  async t => {
    let open = (): void => {}
    const opened = new Promise<number>(resolve => {
      open = () => resolve(200)
    })
    const on = await stage(t, { answer: () => opened, patient: true })
    if (!on) return
    const { downstream, sql } = on
    const service = await start(t, { ...on.env, SHUTDOWN_MS: '30000' })
    await post(service.url, 'held')
    await downstream.received(1)
    let leaving: Promise<unknown> | undefined
    await sql.begin(async held => {
      // The lock blocks the write of the outcome, so that the drain lasts as long as this test needs.
      await held`select from delivery for update`
      open()
      leaving = service.kill('SIGTERM')
      await until('readyz says no', async () => (await call(`${service.url}/readyz`)).status === 503)
      await sql.begin(async locked => {
        await locked`lock table task in access exclusive mode`
        t.equal((await post(service.url, 'slow')).status, 503)
      })
      await until('a task is taken', async () => (await post(service.url, 'straggler')).status < 300)
    })
    t.same(await leaving, { code: 0, signal: null }, 'it ends politely')
    t.match(await tally(sql), { HANDLED: 1 }, 'and what was under way has ended')
  }
)

t.test('an idle process says no for a second before it shuts its door', { buffered: true }, async t => {
  const on = await stage(t)
  if (!on) return
  const service = await start(t, on.env)
  const began = performance.now()
  const leaving = service.kill('SIGTERM')
  let said = false
  await until('the door is shut', async () => {
    const answer = await call(`${service.url}/readyz`).catch(() => null)
    said ||= answer?.status === 503
    return answer === null
  })
  const shut = performance.now() - began
  t.ok(said && shut > 1_000, `a balancer that looks once a second has heard it: ${shut.toFixed(0)} ms`)
  t.same(await leaving, { code: 0, signal: null }, 'it ends politely')
})

t.test('who sent half a request does not hold up the end', { buffered: true }, async t => {
  const on = await stage(t)
  if (!on) return
  const service = await start(t, on.env)
  const head =
    'POST /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 50\r\n'
  for (const bytes of ['', 'POST /tasks HTT', head, `${head}\r\n`, `${head}\r\n{"taskNo":`]) {
    const socket = connect(Number(new URL(service.url).port), '127.0.0.1')
    socket.on('error', () => {})
    t.teardown(() => socket.destroy())
    await once(socket, 'connect')
    socket.write(bytes)
  }
  // After this round trip their bytes have arrived.
  await call(`${service.url}/healthz`)
  const began = stopwatch(t)
  t.same(await service.kill('SIGTERM'), { code: 0, signal: null }, 'it ends politely')
  const seconds = began() / 1_000
  t.ok(seconds < 12, `after ${seconds.toFixed(1)} s`)
})

t.test(
  'a worker whose loops do not end takes no more jobs after SHUTDOWN_MS: it could not send them',
  { buffered: true },
  async t => {
    const on = await stage(t, { redis: true })
    if (!on) return
    const first = await start(t, { ...on.env, SHUTDOWN_MS: '1000' })
    const second = await start(t, { ...on.env, ROLE: 'api,dispatcher' })
    const other = openDb(on.env['DATABASE_URL'] ?? '', { max: 1 })
    t.teardown(() => other.end())
    await other.unsafe('begin; lock table operation in access exclusive mode')
    await until('a loop of each waits for the table', async () => {
      const [row] = await on.sql<[{ waiting: number }]>`
        select count(distinct pid)::int as waiting from pg_locks where relation = 'operation'::regclass and not granted`
      return row.waiting >= 2
    })
    let ended = false
    const leaving = first.kill('SIGTERM').then(exit => {
      ended = true
      return exit
    })
    const posted: string[] = []
    for (let n = 0; !ended; n++) {
      const taskNo = `late-${n}`
      if ((await post(second.url, taskNo)).status === 201) posted.push(taskNo)
    }
    t.same(await leaving, { code: 0, signal: null })
    await other.unsafe('rollback')
    await start(t, on.env)
    await eachOf(posted, taskNo => settled(second.url, taskNo))
    // What it was sending at that moment is cut off. Times are whole milliseconds.
    const late = await on.sql`
      with cut as (select min(started_at + ms * interval '1 ms') as at from attempt where reason = 'shutdown')
      select task_id from attempt, cut where reason = 'shutdown' and started_at > cut.at + interval '2 ms'`
    t.same(late, [])
    t.ok(posted.length > 0)
  }
)
