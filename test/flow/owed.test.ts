import t from 'tap'
import type { Loaded } from '../../src/db/load.ts'
import { owed } from '../../src/flow/owed.ts'
import { setup } from '../support/setup.ts'

const loaded = (taskNo: string, attempt = 1): Loaded =>
  ({
    task: { id: `id of ${taskNo}`, taskNo, messageCode: 'order.paid' },
    downstream: 'warehouse',
    attempt
  }) as Loaded

t.test('what was sent is given once, for its last attempt only', t => {
  const kept = owed()
  kept.keep(loaded('a'))
  kept.keep(loaded('a', 2))
  t.equal(kept.take('a', 'warehouse', 1), undefined)
  t.equal(kept.take('a', 'points', 2), undefined)
  t.match(kept.take('a', 'warehouse', 2), { taskId: 'id of a', messageCode: 'order.paid' })
  t.equal(kept.take('a', 'warehouse', 2), undefined)
  t.end()
})

t.test('of too many the first are kept, for they come first; what never comes makes room', t => {
  let now = 0
  const kept = owed(() => now)
  for (let n = 0; n < 10_001; n++) kept.keep(loaded(`${n}`))
  t.ok(kept.take('0', 'warehouse', 1))
  t.equal(kept.take('10000', 'warehouse', 1), undefined, 'there was no room')
  kept.keep(loaded('a'))
  now = 59_999
  kept.keep(loaded('b'))
  t.equal(kept.take('b', 'warehouse', 1), undefined, 'there is none yet')
  t.ok(kept.take('1', 'warehouse', 1))
  kept.keep(loaded('a', 2))
  now = 60_000
  kept.keep(loaded('c'))
  kept.keep(loaded('d'))
  t.equal(kept.take('2', 'warehouse', 1), undefined, 'it never came')
  t.ok(kept.take('a', 'warehouse', 2), 'sent again just now')
  t.ok(kept.take('d', 'warehouse', 1), 'and there is room again')
  t.end()
})

t.test('the receipt of what was sent from here is taken without a look, and its double with one', async t => {
  const story = await setup(t, { downstream: { needCallback: true } })
  const { post, quiet, receive, delivery, around, sql } = story
  const taskNo = await post()
  await quiet()
  // A look would fail now.
  await sql`alter table task rename column scene_type to hidden`
  t.same(await receive({ taskNo }), { kind: 'ok', taskNo, status: 'HANDLED', applied: true })
  await t.rejects(receive({ taskNo }), /scene_type/)
  await sql`alter table task rename column hidden to scene_type`
  t.same(await receive({ taskNo }), { kind: 'ok', taskNo, status: 'HANDLED', applied: false })
  t.match(await delivery(taskNo), { status: 'HANDLED', receipts: [{ applied: true }, { applied: false }] })
  const other = await post()
  await quiet()
  around.setAway()
  await t.rejects(receive({ taskNo: other }), { name: 'Unavailable' })
  await around.refresh()
  t.match(await receive({ taskNo: other }), { status: 'HANDLED', applied: true }, 'and again')
})

t.test('what was deleted since, or comes under another code, is not taken for what it was', async t => {
  const { post, quiet, receive, remove, delivery } = await setup(t, { downstream: { needCallback: true } })
  const taskNo = await post()
  await quiet()
  await remove(taskNo)
  t.equal(await receive({ taskNo }), 'deleted')
  const wrong = await post()
  await quiet()
  t.equal(await receive({ taskNo: wrong, messageCode: 'order.gone' }), 'wrong_code')
  t.match(await delivery(wrong), { phase: 'AWAITING_RECEIPT' })
  t.match(await receive({ taskNo: wrong }), { status: 'HANDLED', applied: true })
})
