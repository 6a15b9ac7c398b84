// The counts behind the charts of the dashboard, for each messageCode.
import t from 'tap'
import { setup, type Story } from '../support/setup.ts'
import { failed } from '../support/scripted.ts'

/** The counts of `warehouse` by messageCode. */
async function counted({ counts }: Story) {
  const ofWarehouse = (await counts()).filter(one => one.downstream === 'warehouse')
  return ofWarehouse.map(({ messageCode, attempts, failed: failures }) => [messageCode, attempts, failures])
}

t.test('a delivery that may not be sent any more fails under its messageCode', async t => {
  const story = await setup(t, { forgetMs: 0 })
  const taskNo = await story.post()
  await story.quiet()
  t.match(await story.delivery(taskNo), { status: 'FAILED', reason: 'EXPIRED' })
  t.same(await counted(story), [['order.paid', 0, 1]])
})

t.test('an attempt on a broken way is counted under its messageCode though it is released', async t => {
  const story = await setup(t, { reach: { recordAttempt: () => true, isSuspended: () => false } })
  story.downstream.usual = failed
  const taskNo = await story.post()
  await story.quiet()
  t.match(await story.delivery(taskNo), { phase: 'WAITING' })
  t.same(await counted(story), [['order.paid', 1, 0]])
})

t.test('a task whose prerequisite was deleted fails under its messageCode', async t => {
  const story = await setup(t)
  story.queue.mode = 'hold'
  const first = await story.post()
  const second = await story.post({ after: { taskNos: [first], codes: null } })
  await story.remove(first)
  await story.quiet()
  t.match(await story.delivery(second), { status: 'FAILED', reason: 'DEPENDENCY_DELETED' })
  t.same(await counted(story), [['order.paid', 0, 1]])
})
