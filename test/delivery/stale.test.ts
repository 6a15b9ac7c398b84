import t from 'tap'
import { only } from '../support/only.ts'
import { taskRequest } from '../support/task-request.ts'
import { failed } from '../support/scripted.ts'
import { setup } from '../support/setup.ts'

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
