// Somebody else holds a lock on one row, as a `select … for update` left open in psql does. All other work goes on.
import t from 'tap'
import { openDb } from '../../src/db/pool.ts'
import { Unavailable } from '../../src/runtime/errors.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'
import { lock, refuse } from '../support/row-faults.ts'
import { setup } from '../support/setup.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { taskRequest } from '../support/task-request.ts'
import { until } from '../support/until.ts'

t.test('a delivery with a locked row keeps no dispatcher from its work, and is rescued later', async t => {
  const { sql, post, queue, later, quiet, dispatching, downstream, delivery } = await setup(t, {
    sweepMs: 50
  })
  queue.mode = 'lose'
  const [locked, lost] = [await post(), await post()]
  await quiet()
  await later('21 s')
  const free = await lock(t, sql, locked)
  queue.mode = 'deliver'
  const { wake } = dispatching()
  await until('the other one is rescued', async () => (await delivery(lost)).status === 'HANDLED')
  const scheduled = await post({ delayMs: 300 })
  wake()
  await until('a start is not missed', async () => (await delivery(scheduled)).status === 'HANDLED')
  t.match(await delivery(locked), { phase: 'IN_FLIGHT', attempt: 1 })
  await free()
  await until('it is rescued', async () => (await delivery(locked)).status === 'HANDLED')
  t.equal(downstream.requests.length, 3)
})

t.test('a row that is locked after a dispatcher has found it keeps it from nothing either', async t => {
  const { sql: whole } = await testDb(t, { max: 8 })
  let found = (_rows: readonly unknown[]): Promise<void> => Promise.resolve()
  const looking = async (looks: Promise<readonly unknown[]>): Promise<unknown> => {
    const rows = await looks
    await found(rows)
    return rows
  }
  const sql = new Proxy(whole, {
    apply(target, self, args: [TemplateStringsArray, ...unknown[]]) {
      const statement = Reflect.apply(target, self, args) as Promise<readonly unknown[]>
      return args[0].join('').includes('as h (task_id, downstream, index)') ? looking(statement) : statement
    }
  })
  const { post, queue, later, quiet, dispatching, delivery } = await setup(t, { sql, sweepMs: 50 })
  queue.mode = 'lose'
  const taskNo = await post()
  await quiet()
  await later('21 s')
  queue.mode = 'deliver'
  let free: (() => Promise<void>) | undefined
  found = async rows => {
    if (rows.length > 0) free ??= await lock(t, whole, taskNo)
  }
  const { wake } = dispatching()
  await until('it is found', () => free !== undefined)
  const scheduled = await post({ delayMs: 300 })
  wake()
  await until('a start is not missed', async () => (await delivery(scheduled)).status === 'HANDLED')
  t.match(await delivery(taskNo), { phase: 'IN_FLIGHT', attempt: 1 })
  await free?.()
  await until('it is rescued', async () => (await delivery(taskNo)).status === 'HANDLED')
})

t.test('a lost delivery that cannot be written keeps no other from being rescued', async t => {
  const { sql, post, queue, later, quiet, dispatching, delivery, logged } = await setup(t, { sweepMs: 50 })
  queue.mode = 'lose'
  const [bad, lost] = [await post(), await post()]
  await quiet()
  await later('21 s')
  await refuse(sql, bad)
  queue.mode = 'deliver'
  const { wake } = dispatching()
  await until('the other one is rescued', async () => (await delivery(lost)).status === 'HANDLED')
  const scheduled = await post({ delayMs: 300 })
  wake()
  await until('a start is not missed', async () => (await delivery(scheduled)).status === 'HANDLED')
  t.match(logged('rescue.failed')[0], { taskNo: bad, downstream: 'warehouse', err: { code: '23514' } })
  t.same(logged('dispatcher.failed'), [])
})

t.test('a dependent with a locked row keeps no other waiting, and goes when the lock ends', async t => {
  const { sql, post, dispatching, downstream, quiet, delivery, receive, succession } = await setup(t, {
    downstream: { needCallback: true }
  })
  dispatching()
  const first = await post()
  const locked = await post({ after: { taskNos: [first], codes: null } })
  const other = await post({ after: { taskNos: [first], codes: null } })
  await quiet()
  const free = await lock(t, sql, locked)
  await receive({ taskNo: first })
  await until('the other one goes', () => downstream.requests.some(one => one.taskNo === other))
  const last = await post({ needCallback: false, after: { taskNos: [first], codes: null } })
  await until('a later one goes too', async () => (await delivery(last)).status === 'HANDLED')
  t.match(await delivery(locked), { phase: 'BLOCKED' })
  await succession.sweep()
  await free()
  await succession.sweep()
  await until('it goes', () => downstream.requests.some(one => one.taskNo === locked))
})

t.test(
  'the receipt of a delivery with a locked row is refused, and turns no other call into a 503',
  async t => {
    const { sql, post, quiet, receive, delivery, around } = await setup(t, {
      downstream: { needCallback: true }
    })
    const [locked, other] = [await post(), await post()]
    await quiet()
    const free = await lock(t, sql, locked)
    await t.rejects(receive({ taskNo: locked }), Unavailable)
    t.notOk(around.isDatabaseAway())
    t.match(await receive({ taskNo: other }), { status: 'HANDLED' })
    await post()
    await free()
    await until('its first receipt is written', async () => (await delivery(locked)).status === 'HANDLED')
  }
)

t.test(
  'a worker that meets a locked row sends the rest of the job, and that delivery after its lease',
  async t => {
    const owner = { number: () => 7, isSilent: () => false, since: () => -Infinity }
    const { sql, accept, queue, downstream, quiet, delivery, later, dispatch, around } = await setup(t, {
      owner,
      hasWorker: false
    })
    queue.mode = 'hold'
    const taskNos = ['first', 'second', 'third']
    await accept.many(taskNos.map(taskNo => taskRequest({ taskNo })))
    await quiet()
    t.equal(queue.jobs.length, 1)
    // Another process has claimed and queued them.
    await sql`update delivery set owner = 8`
    const free = await lock(t, sql, 'second')
    const began = stopwatch(t)
    await queue.run()
    await downstream.received(2)
    t.ok(began() < 8_000, 'no statement ran into its limit')
    t.notOk(around.isDatabaseAway())
    t.same(new Set(downstream.requests.map(one => one.taskNo)), new Set(['first', 'third']))
    await free()
    await quiet()
    t.match(await delivery('second'), { phase: 'IN_FLIGHT', attempt: 1 })
    queue.mode = 'deliver'
    await later('21 s')
    await dispatch()
    await dispatch()
    t.match(await delivery('second'), { status: 'HANDLED', attempt: 2 })
  }
)

t.test('a locked outbox or table of deliveries does not mean that the database is away', async t => {
  const { url } = await testDb(t)
  const sql = openDb(url, { max: 8, statementTimeoutMs: 2_000 })
  t.teardown(() => sql.end())
  const { acceptRows, accept, queue, quiet, around, logged } = await setup(t, { sql, hasWorker: false })
  queue.mode = 'hold'
  await accept(taskRequest())
  await quiet()
  await sql.begin(async transaction => {
    await transaction`lock table outbox in access exclusive mode`
    await acceptRows()
    t.match(logged('outbox.failed')[0], { err: { code: '57014' } })
    await transaction`lock table delivery in access exclusive mode`
    await queue.run()
    t.match(logged('job.failed'), only({ err: { code: '57014' } }))
  })
  t.notOk(around.isDatabaseAway())
})
