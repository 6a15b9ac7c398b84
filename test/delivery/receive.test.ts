import fc from 'fast-check'
import t from 'tap'
import { Unavailable } from '../../src/runtime/errors.ts'
import type { LoadedDelivery } from '../../src/db/deliveries.ts'
import { deliveryHeaders } from '../../src/delivery/headers.ts'
import { tokens } from '../../src/domain/tokens.ts'
import { only } from '../support/only.ts'
import { failed } from '../support/scripted.ts'
import { backAgain, throughBlackHole } from '../support/away.ts'
import { setup, type SetupOptions } from '../support/setup.ts'
import { stopwatch } from '../support/stopwatch.ts'

const owing: SetupOptions = { downstream: { needCallback: true } }

t.test('HANDLED means acknowledged where a receipt is owed, and sent where none is', async t => {
  const { post, quiet, delivery, receive } = await setup(t, {
    downstreams: { points: {}, warehouse: { needCallback: true } }
  })
  const taskNo = await post()
  await quiet()
  t.match(await delivery(taskNo, 'points'), { status: 'HANDLED', handledBy: 'send' })
  t.match(await delivery(taskNo), { phase: 'AWAITING_RECEIPT' })
  t.same(await receive({ taskNo }), { kind: 'ok', taskNo, status: 'HANDLED', applied: true })
  t.match(await delivery(taskNo), {
    status: 'HANDLED',
    handledBy: 'receipt',
    receipts: only({ applied: true, late: false })
  })
})

t.test('a late 503 cannot undo a receipt that overtook it: a state is never written by id alone', async t => {
  const { post, downstream, receive, delivery, quiet, logged } = await setup(t, owing)
  downstream.holds = true
  const taskNo = await post()
  await downstream.received(1)
  t.match(await receive({ taskNo }), { status: 'HANDLED', applied: true })
  downstream.answer(failed)
  await quiet()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 1, attempts: only({ outcome: 'failed' }) })
  t.equal(logged('attempt.stale').length, 1)
})

t.test('50 receipts at once, before our own record: one transition, the same answer for all', async t => {
  const { post, downstream, receive, delivery, quiet, sql } = await setup(t, owing)
  await sql`create table seen (at timestamptz, old int, new int)`
  await sql`create function watch() returns trigger language plpgsql as $$
    begin insert into seen values (now(), old.status, new.status); return new; end $$`
  await sql`create trigger watch after update on delivery for each row when (old.status <> new.status) execute function watch()`
  downstream.holds = true
  const taskNo = await post()
  await downstream.received(1)
  const answers = await Promise.all(Array.from({ length: 50 }, () => receive({ taskNo })))
  downstream.answer()
  await quiet()
  t.ok(answers.every(answer => typeof answer === 'object' && answer.status === 'HANDLED'))
  t.equal(answers.filter(answer => typeof answer === 'object' && answer.applied).length, 1)
  t.same([...(await sql`select old, new from seen`)], [{ old: 0, new: 1 }])
  const { receipts = [] } = await delivery(taskNo)
  t.ok(receipts.length <= 20, `${receipts.length} are kept`)
  t.equal(receipts.filter(receipt => receipt.applied).length, 1)
})

t.test(
  'a downstream in a loop does not fill the disk: at most 20 receipts are kept, the one that counted among them',
  async t => {
    const { post, receive, delivery, quiet } = await setup(t, owing)
    const taskNo = await post()
    await quiet()
    await receive({ taskNo })
    for (let round = 0; round < 3; round++) {
      await Promise.all(Array.from({ length: 30 }, () => receive({ taskNo, result: 'FAILED' })))
    }
    const { status, receipts = [] } = await delivery(taskNo)
    t.equal(status, 'HANDLED')
    t.equal(receipts.length, 20)
    t.match(receipts[0], { applied: true, result: 'HANDLED' })
  }
)

t.test('the receipt that ends it is kept, also after twenty that did not', async t => {
  const { post, receive, delivery, quiet } = await setup(t, owing)
  const taskNo = await post()
  await quiet()
  for (let n = 0; n < 25; n++) await receive({ taskNo, result: 'PROCESSING' })
  t.match(await receive({ taskNo }), { status: 'HANDLED', applied: true })
  const { receipts = [] } = await delivery(taskNo)
  t.equal(receipts.length, 21)
  t.match(receipts.at(-1), { applied: true, result: 'HANDLED' })
})

t.test('the token of a task that is gone proves nothing of a new one with its number', async t => {
  const { post, quiet, receive, delivery, sql } = await setup(t, owing)
  const hour = 3_600_000
  const issued = (taskNo: string, ago: number) =>
    tokens({ current: 'a test secret' }).issue({
      taskNo,
      downstream: 'warehouse',
      attempt: 1,
      at: new Date(Date.now() - ago)
    })
  const taskNo = await post()
  await quiet()
  const before = await sql`select * from delivery`
  for (const result of ['HANDLED', 'FAILED', 'RETRY', 'PROCESSING'] as const) {
    for (const ago of [30 * 24 * hour, hour + 60_000]) {
      t.equal(
        await receive({ taskNo, result, token: issued(taskNo, ago) }),
        'gone',
        `${result}, ${ago} ms old`
      )
    }
  }
  t.same(await sql`select * from delivery`, before)
  t.match(await delivery(taskNo), { phase: 'AWAITING_RECEIPT', receipts: { length: 0 } }, 'not even kept')
  t.match(
    await receive({ taskNo, token: issued(taskNo, hour - 60_000) }),
    { status: 'HANDLED', applied: true },
    'the clocks of two hosts may differ by less'
  )
})

t.test('on a host whose clock is a day behind no token is older than its task', t => {
  const issued = tokens({ current: 'a test secret' })
  const createdAt = new Date()
  const { headers } = deliveryHeaders({
    handlers: [{ messageCode: 'order.paid', downstreams: [{ name: 'warehouse', transport: 'http' }] }],
    secret: 'a test secret',
    secretPrevious: undefined,
    tokens: issued,
    forgetMs: 86_400_000,
    publicUrl: 'http://ackbox.test',
    now: () => new Date(createdAt.getTime() - 86_400_000)
  })
  const task = { id: '00000000-0000-7000-8000-000000000000', taskNo: 'one', createdAt, traceparent: null }
  const sent = headers(
    { task, downstream: 'warehouse', attempt: 1, needsReceipt: true, roundAt: createdAt } as LoadedDelivery,
    ''
  )
  const told = issued.check(sent['ackbox-callback-token'], 'one', createdAt)
  t.ok(told && told.issuedMs > createdAt.getTime() - 1_000)
  t.end()
})

t.test('a receipt needs its proof: every wrong token is the same answer, and costs no query', async t => {
  const { post, receive, quiet, downstream, sql, around } = await setup(t, owing)
  const taskNo = await post()
  const other = await post()
  await quiet()
  const right = downstream.requests.find(one => one.taskNo === taskNo)?.token ?? ''
  const foreign = downstream.requests.find(one => one.taskNo === other)?.token
  // From now on a query on `task` would fail.
  around.setDatabaseAway()
  await sql`alter table task rename to gone`
  const wrong = [
    undefined,
    '',
    'x',
    foreign,
    right.slice(0, -1),
    `${right}=`,
    `${right}\n`,
    right.toUpperCase(),
    `x${right}`
  ]
  for (const token of wrong) t.equal(await receive({ taskNo, token }), 'unauthorized', String(token))
  t.equal(await receive({ taskNo: 'never posted', token: right }), 'unauthorized')
  t.equal(await receive({ taskNo, token: right, downstream: 'points' }), 'wrong_downstream')
  await fc.assert(
    fc.asyncProperty(
      fc.string({ maxLength: 300 }),
      async token => (await receive({ taskNo, token })) === 'unauthorized'
    ),
    { numRuns: 200 }
  )
  await sql`alter table gone rename to task`
  await around.refresh()
  t.match(await receive({ taskNo, token: right }), { applied: true })
})

t.test('a token of another message code, of a deleted task, of a row that is gone', async t => {
  const { post, receive, quiet, remove, sql } = await setup(t, owing)
  const taskNo = await post()
  await quiet()
  t.equal(await receive({ taskNo, messageCode: 'order.refunded' }), 'wrong_code')
  await remove(taskNo)
  t.equal(await receive({ taskNo }), 'deleted', 'an error is not answered with success')
  await sql`delete from delivery`
  t.equal(await receive({ taskNo }), 'gone')
})

t.test(
  'a receipt for an earlier attempt of this round counts; RETRY and FAILED only for the present one',
  async t => {
    const { post, receive, quiet, downstream, later, dispatch, delivery } = await setup(t, owing)
    downstream.next(failed)
    const taskNo = await post()
    await quiet()
    await later('11 s')
    await dispatch()
    const [first] = downstream.requests
    t.match(await delivery(taskNo), { phase: 'AWAITING_RECEIPT', attempt: 2 })
    for (const result of ['RETRY', 'FAILED', 'PROCESSING'] as const) {
      t.match(await receive({ taskNo, result, ...tokenOf(first) }), { status: 'SENDING', applied: false })
    }
    t.match(await receive({ taskNo, ...tokenOf(first) }), { status: 'HANDLED', applied: true })
    const { receipts } = await delivery(taskNo)
    t.match(
      receipts,
      only({ applied: false }, { applied: false }, { applied: false }, { applied: true, attempt: 1 })
    )
  }
)

t.test('a receipt of the round before counts no more after a redelivery', async t => {
  const { post, receive, quiet, downstream, redeliver, dispatch, delivery } = await setup(t, owing)
  const taskNo = await post()
  await quiet()
  t.match(await receive({ taskNo, result: 'FAILED' }), { status: 'FAILED', applied: true })
  await redeliver(taskNo)
  const [first] = downstream.requests
  t.match(await receive({ taskNo, ...tokenOf(first) }), { status: 'SENDING', applied: false })
  await dispatch()
  t.match(await delivery(taskNo), { phase: 'AWAITING_RECEIPT', attempt: 2 })
})

t.test('a receipt after FAILED is late, makes it HANDLED and resolves the alarm', async t => {
  const { post, receive, quiet, later, dispatch, delivery, sql } = await setup(t, owing)
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  await later('61 s')
  await dispatch()
  t.match(await delivery(taskNo), { status: 'FAILED', reason: 'RECEIPT_TIMEOUT' })
  t.same(await receive({ taskNo }), { kind: 'ok', taskNo, status: 'HANDLED', applied: true, late: true })
  t.match(await delivery(taskNo), { status: 'HANDLED', handledBy: 'receipt', receipts: only({ late: true }) })
  t.equal((await delivery(taskNo)).reason, undefined)
  t.equal((await sql`select from alarm where resolved_at is null`).length, 0)
  t.match(await receive({ taskNo }), { status: 'HANDLED', applied: false })
})

t.test('RETRY counts a try and backs off; at the limit it is RECEIPT_FAILED, with an alarm', async t => {
  const { post, receive, quiet, later, dispatch, delivery, sql } = await setup(t, owing)
  const taskNo = await post({ retryTimes: 2 })
  await quiet()
  t.match(await receive({ taskNo, result: 'RETRY', reason: 'busy' }), { status: 'SENDING', applied: true })
  t.match(await delivery(taskNo), {
    phase: 'WAITING',
    triesLeft: 1,
    receipts: only({ result: 'RETRY', reason: 'busy' })
  })
  t.match(await receive({ taskNo, result: 'RETRY' }), { applied: false }, 'it waits already')
  await dispatch()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1 }, 'it backs off')
  await later('11 s')
  await dispatch()
  t.match(await receive({ taskNo, result: 'RETRY' }), { status: 'FAILED', applied: true })
  t.match(await delivery(taskNo), { status: 'FAILED', reason: 'RECEIPT_FAILED', attempt: 2 })
  t.equal((await sql`select from alarm where kind = 'FAILED'`).length, 1)
})

t.test('a RETRY while our own answer is open wins; our record then touches nothing', async t => {
  const { post, receive, quiet, downstream, delivery } = await setup(t, owing)
  downstream.holds = true
  const taskNo = await post()
  await downstream.received(1)
  t.match(await receive({ taskNo, result: 'RETRY' }), { applied: true })
  downstream.answer()
  await quiet()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1, attempts: only({ outcome: 'delivered' }) })
})

t.test('PROCESSING starts the receipt timeout again, up to a day after the delivery', async t => {
  const { post, receive, quiet, later, dispatch, delivery, downstream } = await setup(t, owing)
  const taskNo = await post()
  await quiet()
  for (let n = 0; n < 5; n++) {
    await later('50 s')
    t.match(await receive({ taskNo, result: 'PROCESSING' }), { status: 'SENDING', applied: true })
    await dispatch()
  }
  t.match(await delivery(taskNo), { phase: 'AWAITING_RECEIPT', attempt: 1 })
  await later('61 s')
  await dispatch()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1 }, 'it was late')
  t.match(await receive({ taskNo, result: 'PROCESSING' }), { applied: true })
  t.match(await delivery(taskNo), { phase: 'AWAITING_RECEIPT', attempt: 1 })
  await later('25 hours')
  t.match(await receive({ taskNo, result: 'PROCESSING' }), { applied: false })
  t.equal(downstream.requests.length, 1)
})

t.test('contrary receipts are kept and cannot regress a state', async t => {
  const { post, receive, quiet, delivery } = await setup(t, owing)
  const taskNo = await post()
  await quiet()
  await receive({ taskNo })
  for (const result of ['FAILED', 'RETRY', 'PROCESSING', 'HANDLED'] as const) {
    t.match(await receive({ taskNo, result }), { status: 'HANDLED', applied: false })
  }
  const { status, receipts } = await delivery(taskNo)
  t.equal(status, 'HANDLED')
  t.same(
    receipts?.map(receipt => receipt.result),
    ['HANDLED', 'FAILED', 'RETRY', 'PROCESSING', 'HANDLED']
  )
})

t.test('receipts need neither a queue nor a worker', async t => {
  const { post, receive, quiet, queue, workers, downstream } = await setup(t, owing)
  const taskNo = await post()
  await quiet()
  queue.mode = 'refuse'
  await workers(0)
  t.match(await receive({ taskNo, ...tokenOf(downstream.requests[0]) }), { status: 'HANDLED', applied: true })
})

t.test(
  'PostgreSQL does not answer: a receipt hears 503 within 2 s, and counts when it comes again',
  async t => {
    const { hole, sql } = await throughBlackHole(t)
    const { post, receive, quiet, around } = await setup(t, { ...owing, sql })
    const taskNo = await post()
    await quiet()
    hole.swallow()
    const began = stopwatch(t)
    await t.rejects(receive({ taskNo }), new Unavailable('the database takes too long'))
    const took = began()
    t.ok(took < 2_500, `${took} ms`)
    hole.heal()
    await backAgain(around)
    t.match(await receive({ taskNo }), { status: 'HANDLED' })
  }
)

const tokenOf = (request: { token: string } | undefined): { token: string | undefined } => ({
  token: request?.token
})
