import t from 'tap'
import { stoppedClaims } from '../../src/delivery/stopped-claims.ts'
import { completer, type Complete } from '../../src/delivery/complete.ts'
import { remove } from '../../src/delivery/operate.ts'
import { createMetrics } from '../../src/runtime/metrics.ts'
import { only } from '../support/only.ts'
import { failed } from '../support/scripted.ts'
import { setup } from '../support/setup.ts'

t.test('a deleted task is not sent any more; nothing is left to stop the second time', async t => {
  const { post, remove, dispatch, later, downstream, read } = await setup(t)
  const taskNo = await post({ delayMs: 60_000 })
  t.match(await remove(taskNo), { status: 'DELETED', deliveries: [{ status: 'DELETED', reason: 'DELETED' }] })
  await later('2 minutes')
  await dispatch()
  t.equal(downstream.requests.length, 0)
  t.equal(await remove(taskNo), 'nothing')
  t.equal(await remove('nobody'), 'not_found')
  t.match(await read(taskNo), { status: 'DELETED' })
})

t.test('one in flight at that moment ends where it is, and changes nothing any more', async t => {
  const { post, remove, downstream, quiet, delivery } = await setup(t)
  downstream.holds = true
  const taskNo = await post()
  await downstream.received(1)
  t.match(await remove(taskNo), { status: 'DELETED' })
  downstream.answer()
  await quiet()
  t.match(await delivery(taskNo), { status: 'DELETED', attempts: only({ outcome: 'delivered' }) })
})

t.test('what was in the queue when it was deleted is not sent', async t => {
  const { post, remove, queue, downstream, quiet } = await setup(t)
  queue.mode = 'hold'
  const taskNo = await post()
  await quiet()
  await remove(taskNo)
  await queue.run()
  await quiet()
  t.equal(downstream.requests.length, 0)
})

t.test('of a task with one part HANDLED the other part is stopped', async t => {
  const { post, remove, downstream, quiet } = await setup(t, { downstreams: { points: {}, warehouse: {} } })
  downstream.next({ kind: 'delivered' }, failed)
  const taskNo = await post()
  await quiet()
  t.match(await remove(taskNo), { status: 'HANDLED' })
})

t.test('the alarm of a task that nobody wants any more is resolved', async t => {
  const { post, remove, downstream, quiet, sql } = await setup(t)
  downstream.usual = { kind: 'failed', reason: 'blocked_target', alarm: 'BLOCKED_TARGET' }
  const taskNo = await post()
  await quiet()
  t.equal((await sql`select from alarm where resolved_at is null`).length, 1)
  await remove(taskNo)
  t.equal((await sql`select from alarm where resolved_at is null`).length, 0)
})

t.test('what only a later turn deletes is in the audit too', async t => {
  const story = await setup(t, { downstreams: { warehouse: {}, points: {} } })
  const { queue, sql, record } = story
  queue.mode = 'hold'
  const taskNo = await story.post()
  const [{ id }] = await sql<[{ id: string }]>`select id from task`
  const points = { taskId: id, downstream: 'points', attempt: 1 }
  await record({ move: { ...points, name: 'fail', reason: 'SEND_EXHAUSTED' } })
  const write = completer({
    sql,
    metrics: createMetrics({ processMetrics: false }),
    giveUp: new AbortController().signal
  })
  let isFirst = true
  const complete: Complete = Object.assign(
    async (item: Parameters<Complete>[0]) => {
      if (isFirst) {
        isFirst = false
        await sql`update delivery set attempt = 2 where downstream = 'warehouse'`
        await story.redeliver(taskNo, { downstream: 'points' })
      }
      return write(item)
    },
    { idle: write.idle }
  )
  const audits: object[] = []
  const who = { name: 'ops-1' }
  await remove({ sql, complete, stoppedClaims: stoppedClaims() }, taskNo, who, async (before, after) => {
    audits.push({ before, after })
  })
  t.match(await sql`select status from delivery`, only({ status: -1 }, { status: -1 }))
  t.same(audits, [
    { before: { warehouse: 'SENDING' }, after: { warehouse: 'DELETED' } },
    { before: { points: 'SENDING' }, after: { points: 'DELETED' } }
  ])
})
