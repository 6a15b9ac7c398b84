// Mistakes of the classic implementations that fit in no other test file. The others are tested where they belong.
import t from 'tap'
import { openDb } from '../../src/db/pool.ts'
import { only } from '../support/only.ts'
import { delivered, failed } from '../support/scripted.ts'
import { taskRequest } from '../support/task-request.ts'
import { setup } from '../support/setup.ts'
import { testDb } from '../support/postgres.ts'
import { stopwatch } from '../support/stopwatch.ts'

t.test(
  'a remote call holds no connection: with 200 requests open a pool of one accepts and reads',
  async t => {
    const { url } = await testDb(t, { max: 1 })
    const sql = openDb(url, { max: 1 })
    t.teardown(() => sql.end())
    const { accept, post, downstream, delivery, quiet } = await setup(t, {
      sql,
      downstream: { limit: { concurrency: 500, timeoutMs: 10_000 } }
    })
    downstream.holds = true
    await accept.many(Array.from({ length: 200 }, () => taskRequest()))
    await downstream.received(200)
    const [{ open }] = await sql<[{ open: number }]>`
    select count(*)::int as open from pg_stat_activity
    where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()`
    t.equal(open, 0, 'nobody is in a transaction')
    const began = stopwatch(t)
    t.match(await delivery(await post()), { phase: 'IN_FLIGHT' })
    t.ok(began() < 1_000)
    while (downstream.open > 0) downstream.answer()
    downstream.holds = false
    await quiet()
  }
)

t.test('the work is handed over after the commit: whoever gets a job finds its row', async t => {
  const { accept, queue, sql, quiet } = await setup(t)
  const missing: string[] = []
  const add = queue.add.bind(queue)
  queue.add = async deliveries => {
    const ids = deliveries.map(one => one.taskId)
    const found = await sql<
      { task_id: string }[]
    >`select task_id from delivery where task_id = any(${ids}::uuid[])`
    missing.push(...ids.filter(id => !found.some(row => row.task_id === id)))
    return add(deliveries)
  }
  await Promise.all(
    Array.from({ length: 30 }, () => accept.many(Array.from({ length: 10 }, () => taskRequest())))
  )
  await quiet()
  t.same(missing, [])
})

t.test('nothing is handed over of what was not committed', async t => {
  const { accept, queue, quiet } = await setup(t)
  queue.mode = 'hold'
  await t.rejects(accept(taskRequest({ createdBy: 'a\0b' })))
  await quiet()
  t.same(queue.jobs, [])
})

t.test('the errors of the first send do not vanish: each is an attempt, a log line and a state', async t => {
  const { post, quiet, delivery, logged } = await setup(t, {
    downstream: {
      request: () => {
        throw new Error('no url')
      }
    }
  })
  const taskNo = await post()
  await quiet()
  t.match(await delivery(taskNo), {
    phase: 'WAITING',
    attempts: only({ outcome: 'failed', reason: 'hook: no url' })
  })
  t.match(
    logged('attempt.done'),
    only({ level: 'info', taskNo, attempt: 1, move: 'retry', reason: 'hook: no url' })
  )
})

t.test('a sweep has done what it says: when it has stopped all it decided is written', async t => {
  const { accept, queue, later, dispatching, sql, quiet } = await setup(t)
  queue.mode = 'lose'
  await accept.many(Array.from({ length: 300 }, () => taskRequest()))
  await quiet()
  await later('21 s')
  const stop = new AbortController()
  const { done } = dispatching(stop.signal)
  stop.abort()
  await done
  const [{ waiting }] = await sql<[{ waiting: number }]>`
    select count(*)::int as waiting from delivery where phase = 'WAITING' and lost = 1`
  t.equal(waiting, 300)
})

t.test('a look takes what has room, never all ids that are due', async t => {
  const { accept, queue, quiet, dispatch, sql, downstream } = await setup(t)
  queue.roomLeft = 0
  await accept.many(Array.from({ length: 1_000 }, () => taskRequest()))
  await quiet()
  queue.roomLeft = 30
  queue.mode = 'hold'
  await dispatch()
  t.equal(queue.jobs.flat().length, 30)
  t.equal((await sql`select from delivery where phase = 'IN_FLIGHT'`).length, 30)
  t.equal(downstream.requests.length, 0)
})

t.test('without faults a healthy downstream gets each task exactly once, in one attempt', async t => {
  const { accept, downstream, quiet, sql, dispatching } = await setup(t, { sweepMs: 20 })
  dispatching()
  const batches = Array.from({ length: 20 }, () => Array.from({ length: 100 }, () => taskRequest()))
  await Promise.all(batches.map(batch => accept.many(batch)))
  await downstream.received(2_000)
  await quiet()
  t.equal(new Set(downstream.requests.map(one => one.taskNo)).size, 2_000)
  t.equal(downstream.requests.length, 2_000)
  const rows =
    await sql`select status, attempt, count(*)::int as count from delivery group by status, attempt`
  t.same([...rows], [{ status: 1, attempt: 1, count: 2_000 }])
})

t.test('a downstream that hangs stops nobody else, not even of the same task', async t => {
  const { accept, downstream, quiet, sql } = await setup(t, {
    downstreams: {
      points: { limit: { concurrency: 2, timeoutMs: 10_000 } },
      warehouse: { limit: { concurrency: 2, timeoutMs: 10_000 } }
    }
  })
  const send = downstream.send.bind(downstream)
  downstream.send = (request, context, accepted) => {
    downstream.holds = context.downstream === 'points'
    return send(request, context, accepted)
  }
  await accept.many(Array.from({ length: 100 }, () => taskRequest()))
  await downstream.received(102)
  const [row] = await sql<[{ open: number }]>`
    select count(*)::int as open from delivery where downstream = 'points' and status = 0`
  t.equal(row.open, 100)
  downstream.send = send
  downstream.holds = false
  while (downstream.open > 0) downstream.answer(delivered)
  await quiet()
})

t.test(
  'an outage of a downstream does not become a flood: each delivery waits for its own backoff',
  async t => {
    const { accept, downstream, quiet, dispatch, later } = await setup(t)
    downstream.usual = failed
    await accept.many(Array.from({ length: 100 }, () => taskRequest()))
    await quiet()
    for (let sweep = 0; sweep < 5; sweep++) await dispatch()
    t.equal(downstream.requests.length, 100)
    await later('11 s')
    for (let sweep = 0; sweep < 5; sweep++) await dispatch()
    t.equal(downstream.requests.length, 200)
  }
)
