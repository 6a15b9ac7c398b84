import t from 'tap'
import { cursorAt } from '../../src/db/overdue.ts'
import { createMetrics } from '../../src/runtime/metrics.ts'
import { completer, type Complete } from '../../src/delivery/complete.ts'
import { rescueOverdue, rescueOwned, type RescueDeps } from '../../src/delivery/rescue.ts'
import { only } from '../support/only.ts'
import { taskRequest } from '../support/task-request.ts'
import { failed } from '../support/scripted.ts'
import { setup, type Story } from '../support/setup.ts'

t.test('a worker whose delivery was taken back fails nothing, even with its last try', async t => {
  const { post, downstream, later, dispatch, quiet, queue, logged, sql, around } = await setup(t)
  downstream.holds = true
  await post({ retryTimes: 1 })
  await downstream.received(1)
  await later('21 s')
  queue.mode = 'lose'
  await sql`insert into downstream (name, paused_at, paused_by) values ('warehouse', now(), 'ops-1')`
  await around.refresh()
  await dispatch()
  const taken = { phase: 'WAITING', status: 0, attempt: 1, tries_left: 1, reason: null }
  const state = () => sql`select phase, status, attempt, tries_left, reason from delivery`
  t.match(await state(), only(taken), 'its lease was lost, which counts as no try')
  downstream.holds = false
  downstream.answer(failed)
  await quiet()
  t.match(await state(), only(taken))
  t.equal(logged('attempt.stale').length, 1)
  t.match(await sql`select outcome from attempt`, only({ outcome: 'failed' }), 'its answer is kept')
})

t.test('an answer that is later than a redelivery does not end the new round', async t => {
  const { post, downstream, receive, quiet, logged, sql, redeliver } = await setup(t, {
    downstream: { needCallback: true }
  })
  downstream.holds = true
  const taskNo = await post({ retryTimes: 1 })
  await downstream.received(1)
  await receive({ taskNo, result: 'FAILED' })
  await redeliver(taskNo)
  const state = () => sql`select status, round_from, reason from delivery`
  t.match(await state(), only({ status: 0, round_from: 2, reason: null }))
  downstream.holds = false
  downstream.answer(failed)
  await quiet()
  t.match(await state(), only({ status: 0, round_from: 2, reason: null }))
  t.equal(logged('attempt.stale').length, 1)
})

t.test('a receipt that was read before a redelivery does not move the new round', async t => {
  const story = await setup(t, { downstream: { needCallback: true } })
  const { accept, downstream, quiet, sql, record, redeliver } = story
  await accept(taskRequest({ taskNo: 'a', retryTimes: 1 }))
  await downstream.received(1)
  await quiet()
  const [at] = await sql<[{ task_id: string }]>`select task_id from delivery`
  const key = { taskId: at.task_id, downstream: 'warehouse', attempt: 1 }
  await record({ move: { ...key, name: 'fail', reason: 'RECEIPT_FAILED' } })
  await redeliver('a')
  const receipt = { ...key, result: 'PROCESSING', reason: null, data: null, remote: '' } as const
  t.equal(await record({ move: { ...key, name: 'extend', afterMs: 60_000 }, receipt }), 'stale')
  t.match(await sql`select phase, round_from from delivery`, only({ phase: 'WAITING', round_from: 2 }))
})

/** A dispatcher that is stopped between what it reads and what it writes: meanwhile `act` happens. */
function slowDispatcher(story: Story, act: () => Promise<unknown>): RescueDeps {
  const { sql, handlers, around, log } = story
  const write = completer({
    sql,
    metrics: createMetrics({ processMetrics: false }),
    giveUp: new AbortController().signal
  })
  const complete: Complete = Object.assign(
    async (item: Parameters<Complete>[0]) => {
      await act()
      return write(item)
    },
    { idle: write.idle }
  )
  return { sql, handlers, complete, cluster: around, random: () => 0.5, log }
}
const warehouse = [cursorAt('warehouse', undefined)]

t.test('a missing receipt that was found before a redelivery does not end the new round', async t => {
  const story = await setup(t, { downstream: { needCallback: true } })
  const { post, later, quiet, record, redeliver, sql } = story
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  await later('2 minutes')
  const [row] = await sql<[{ task_id: string }]>`select task_id from delivery`
  await rescueOverdue(
    slowDispatcher(story, async () => {
      const key = { taskId: row.task_id, downstream: 'warehouse', attempt: 1 }
      await record({ move: { ...key, name: 'fail', reason: 'RECEIPT_TIMEOUT' } })
      await redeliver(taskNo)
    }),
    warehouse
  )
  t.match(await sql`select status, round_from from delivery`, only({ status: 0, round_from: 2 }))
})

t.test('a deliverBefore that had passed before a forced redelivery does not end the new round', async t => {
  const story = await setup(t)
  const { accept, redeliver, record, sql } = story
  await accept(
    taskRequest({
      taskNo: 'a',
      delayMs: 3_600_000,
      deliverBefore: new Date(Date.now() + 7_200_000)
    })
  )
  await sql`update delivery set next_action_at = now() - interval '1 s', deliver_before = now() - interval '1 s'`
  const [row] = await sql<[{ task_id: string }]>`select task_id from delivery`
  await rescueOverdue(
    slowDispatcher(story, async () => {
      const key = { taskId: row.task_id, downstream: 'warehouse', attempt: 0 }
      await record({ move: { ...key, name: 'fail', reason: 'EXPIRED' } })
      await redeliver('a', { force: true })
      await sql`update delivery set next_action_at = now()`
    }),
    warehouse
  )
  t.match(await sql`select phase, round from delivery`, only({ phase: 'WAITING', round: 2 }))
})

t.test('what its dead process delivered meanwhile is not sent again', async t => {
  const story = await setup(t)
  const { post, queue, sql } = story
  queue.mode = 'hold'
  await post({ retryTimes: 3 })
  await sql`update delivery set owner = 7, lost = 2`
  await rescueOwned(
    {
      ...slowDispatcher(
        story,
        () => sql`update delivery set phase = 'AWAITING_RECEIPT', next_action_at = now() + interval '1 h'`
      ),
      downstreams: [{ name: 'warehouse', leaseMs: 20_000 }],
      takenBy: async () => []
    },
    { number: 7, node: 'dead', isWorker: true }
  )
  t.match(await sql`select phase, attempt from delivery`, only({ phase: 'AWAITING_RECEIPT', attempt: 1 }))
})
