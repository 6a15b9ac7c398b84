import t from 'tap'
import { only } from '../support/only.ts'
import { failed } from '../support/scripted.ts'
import { setup } from '../support/setup.ts'

t.test('a deleted task is not sent any more; nothing is left to stop the second time', async t => {
  const { post, remove, dispatch, later, downstream, read } = await setup(t)
  const taskNo = await post({ start: { delayMs: 60_000 } })
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
