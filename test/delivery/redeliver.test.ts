import t from 'tap'
import { completer } from '../../src/delivery/complete.ts'
import { redeliver } from '../../src/delivery/operate.ts'
import { createMetrics } from '../../src/runtime/metrics.ts'
import { only } from '../support/only.ts'
import { lockWaits } from '../support/postgres.ts'
import { failed } from '../support/scripted.ts'
import { setup } from '../support/setup.ts'
import { until } from '../support/until.ts'

t.test('what FAILED is delivered again with a fresh limit, and its alarm is resolved', async t => {
  const { post, redeliver, downstream, quiet, dispatch, delivery, sql } = await setup(t)
  downstream.next(failed)
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  t.match(await delivery(taskNo), { status: 'FAILED' })
  t.match(await redeliver(taskNo), {
    status: 'SENDING',
    deliveries: [{ phase: 'WAITING', triesLeft: 1, attempt: 1 }]
  })
  t.equal((await sql`select from alarm where resolved_at is null`).length, 0)
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2, triesLeft: 0 })
})

t.test('what is HANDLED is delivered again with force only', async t => {
  const { post, redeliver, quiet, dispatch, delivery, downstream } = await setup(t)
  const taskNo = await post()
  await quiet()
  t.equal(await redeliver(taskNo), 'nothing')
  t.match(await redeliver(taskNo, { force: true }), { status: 'SENDING' })
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
  t.equal(downstream.requests.length, 2)
})

t.test('a receipt that overtakes a redelivery without force stays: HANDLED is for ever', async t => {
  const story = await setup(t, { downstream: { needCallback: true } })
  const { post, quiet, later, dispatch, delivery, receive, sql } = story
  // A second process is needed: one process writes its batches one after the other.
  const another = completer({
    sql,
    metrics: createMetrics({ processMetrics: false }),
    giveUp: new AbortController().signal
  })
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  await later('61 s')
  await dispatch()
  t.match(await delivery(taskNo), { status: 'FAILED' })
  // Both read FAILED. The receipt is written first.
  let release = (): void => {}
  await new Promise<void>(locked => {
    void sql.begin(async held => {
      await held`select from delivery for update`
      locked()
      await new Promise<void>(resolve => (release = resolve))
    })
  })
  const received = receive({ taskNo })
  await until('the receipt waits', async () => (await lockWaits(sql)) === 1)
  const again = redeliver(
    { sql, complete: another, handlers: story.handlers, wake: () => {} },
    { taskNo, force: false, who: { name: 'operator' } },
    async () => {}
  )
  await until('both wait', async () => (await lockWaits(sql)) === 2)
  release()
  t.match(await received, { status: 'HANDLED', applied: true })
  t.equal(await again, 'nothing')
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 1 })
})

t.test('one that was never tried still waits for its start time; one that was tried does not', async t => {
  const { post, queue, redeliver, remove, quiet, later, dispatch, delivery, downstream, sql } = await setup(t)
  queue.mode = 'hold'
  const first = await post()
  const start = new Date(Date.now() + 3_600_000)
  const taskNo = await post({ after: { taskNos: [first], codes: null }, startAt: start, retryTimes: 1 })
  await remove(first)
  await quiet()
  queue.mode = 'deliver'
  t.match(await delivery(taskNo), { status: 'FAILED', reason: 'DEPENDENCY_DELETED', attempt: 0 })
  await redeliver(taskNo, { force: true })
  await dispatch()
  t.same(downstream.requests, [])
  t.match(await delivery(taskNo), { phase: 'WAITING' })
  const [clock] = await sql<[{ off: number }]>`
    select extract(epoch from next_action_at - deliver_start_time)::float8 as off
    from delivery join task on id = task_id where task_no = ${taskNo}`
  // A little later: the time to the start is read before the statement that adds it to its own now().
  t.ok(clock.off > -0.01 && clock.off < 1_800, `${clock.off} s from the start time, and an hour from now`)
  downstream.next(failed)
  await later('3601 s')
  await dispatch()
  // `later` does not move the start time of the task.
  t.match(await delivery(taskNo), { status: 'FAILED', attempt: 1 })
  await redeliver(taskNo)
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
})

t.test('past its deliverBefore it needs force, and is then delivered', async t => {
  const { post, redeliver, quiet, later, dispatch, delivery, downstream } = await setup(t)
  downstream.next(failed)
  const taskNo = await post({ deliverBefore: new Date(Date.now() + 5_000) })
  await quiet()
  await later('6 s')
  await dispatch()
  t.match(await delivery(taskNo), { status: 'FAILED', reason: 'EXPIRED' })
  t.equal(await redeliver(taskNo), 'expired')
  t.match(await redeliver(taskNo, { force: true }), { status: 'SENDING' })
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
})

t.test('one downstream of several is redelivered alone; unknown ones are nothing', async t => {
  const { post, redeliver, quiet, downstream, dispatch, read } = await setup(t, {
    downstreams: { points: {}, warehouse: {} }
  })
  downstream.usual = failed
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  downstream.usual = { kind: 'delivered' }
  t.equal(await redeliver('nobody'), 'not_found')
  t.equal(await redeliver(taskNo, { downstream: 'audit' }), 'nothing')
  await redeliver(taskNo, { downstream: 'points' })
  await dispatch()
  t.match(await read(taskNo), {
    status: 'FAILED',
    deliveries: only({ status: 'HANDLED' }, { status: 'FAILED' })
  })
})

t.test('the same redelivery asked 20 times at once is one round', async t => {
  const { post, redeliver, quiet, downstream, dispatch, delivery } = await setup(t)
  downstream.next(failed)
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  const answers = await Promise.all(Array.from({ length: 20 }, () => redeliver(taskNo)))
  t.equal(answers.filter(answer => typeof answer === 'object').length, 1)
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
})
