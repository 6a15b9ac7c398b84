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

t.test('what was sent is given once, to who brings its token for its task', t => {
  const kept = owed()
  kept.keep('one', loaded('a'))
  kept.keep('two', loaded('a', 2))
  t.equal(kept.take('one', 'b'), undefined)
  t.equal(kept.take('three', 'a'), undefined)
  t.equal(kept.take(undefined, 'a'), undefined)
  const known = { taskId: 'id of a', taskNo: 'a', messageCode: 'order.paid', downstream: 'warehouse' }
  t.match(kept.take('two', 'a'), { ...known, attempt: 2 })
  t.match(kept.take('one', 'a'), { ...known, attempt: 1 })
  t.equal(kept.take('one', 'a'), undefined)
  t.end()
})

t.test('receipts that never come leave nothing behind for ever', t => {
  let now = 0
  const kept = owed(() => now)
  const keep = (taskNo: string) => kept.keep(`token of ${taskNo}`, loaded(taskNo))
  const take = (taskNo: string) => kept.take(`token of ${taskNo}`, taskNo)
  for (let n = 0; n < 16_000; n++) keep(`${n}`)
  t.ok(take('0'), 'two generations are there')
  keep('16000')
  t.equal(take('1'), undefined, 'the elder went')
  t.ok(take('8000'))
  t.ok(take('16000'))
  now = 3_600_000
  t.equal(take('8001'), undefined, 'too old to be taken without proof')
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
