// Every request carries the time after which its receiver may forget it. Ackbox does not send it again after that time.
import t from 'tap'
import { only } from '../support/only.ts'
import { taskRequest } from '../support/task-request.ts'
import { failed } from '../support/scripted.ts'
import { setup } from '../support/setup.ts'

const days = 86_400_000

t.test('every attempt of a round says the same time, and a redelivery begins the next round', async t => {
  const { post, redeliver, downstream, quiet, later, dispatch, sql } = await setup(t, {
    downstream: { policy: { times: 2, backoff: { kind: 'list', ms: [10_000] }, receiptTimeoutMs: 60_000 } }
  })
  downstream.next(failed)
  downstream.next(failed)
  const posted = Date.now()
  const taskNo = await post()
  await quiet()
  await later('11 s')
  await dispatch()
  // later() moves the times in the database back, so the second time is 11 s before the first.
  const [first, second] = downstream.requests.map(({ headers }) => headers)
  const forgetAfter = Date.parse(first?.['ackbox-forget-after'] ?? '')
  t.ok(forgetAfter >= posted + 30 * days - 60_000 && forgetAfter <= Date.now() + 30 * days)
  t.equal(Date.parse(second?.['ackbox-forget-after'] ?? ''), forgetAfter - 11_000)
  t.same([first?.['ackbox-round'], second?.['ackbox-round']], ['1', '1'])

  await later('20 d')
  await redeliver(taskNo)
  await dispatch()
  const third = downstream.requests[2]?.headers
  t.equal(third?.['ackbox-round'], '2')
  t.ok(Date.parse(third?.['ackbox-forget-after'] ?? '') >= forgetAfter, 'its time begins anew')
  t.equal(third?.['webhook-id'], first?.['webhook-id'])
  t.match(await sql`select round from delivery`, only({ round: 2 }))
})

t.test('after that time it is sent no more: FAILED, EXPIRED, with an alarm', async t => {
  const { post, downstream, quiet, later, dispatch, delivery, sql } = await setup(t, {
    downstream: { needCallback: true }
  })
  const taskNo = await post()
  await quiet()
  await later('29 d')
  await dispatch()
  await later('11 s')
  await dispatch()
  t.equal(downstream.requests.length, 2, 'before it, it is sent as ever')
  await later('1 d')
  await dispatch()
  await later('11 s')
  await dispatch()
  t.equal(downstream.requests.length, 2)
  t.match(await delivery(taskNo), { status: 'FAILED', reason: 'EXPIRED' })
  t.match(await sql`select kind from alarm where resolved_at is null`, only({ kind: 'FAILED' }))
})

t.test('the time begins with the first claim, however long a task has waited for its start', async t => {
  const { post, downstream, quiet, later, dispatch, delivery } = await setup(t)
  downstream.next(failed)
  const taskNo = await post({ startAt: new Date(Date.now() + 40 * days) })
  await quiet()
  await later('41 d')
  const claimed = Date.now()
  await dispatch()
  const forgetAfter = Date.parse(downstream.requests[0]?.headers['ackbox-forget-after'] ?? '')
  t.ok(forgetAfter >= claimed + 30 * days - 60_000)
  await later('11 s')
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
})

t.test('a delivery that is redelivered after its time is sent in its new round', async t => {
  const { post, redeliver, downstream, quiet, later, dispatch, delivery } = await setup(t)
  downstream.next(failed)
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  await later('40 d')
  await redeliver(taskNo)
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
  t.equal(downstream.requests[1]?.headers['ackbox-round'], '2')
})

t.test('in order: a delivery redelivered after its time is sent in its new round', async t => {
  const { accept, redeliver, downstream, quiet, later, dispatch, delivery } = await setup(t)
  downstream.next(failed)
  await accept(taskRequest({ taskNo: 'a', orderingKey: 'k', retryTimes: 1 }))
  await quiet()
  await later('40 d')
  await redeliver('a')
  await quiet()
  await dispatch()
  await quiet()
  t.match(await delivery('a'), { status: 'HANDLED', attempt: 2 })
})

t.test('in order: what waited BLOCKED for 40 days is sent', async t => {
  const { accept, redeliver, downstream, quiet, later, dispatch, delivery } = await setup(t)
  downstream.next({ kind: 'refused', reason: 'http_410' })
  await accept.many(['a', 'b'].map(taskNo => taskRequest({ taskNo, orderingKey: 'k' })))
  await quiet()
  await later('40 d')
  await redeliver('a')
  await quiet()
  await dispatch()
  await quiet()
  t.match(await delivery('b'), { status: 'HANDLED', attempt: 1 })
})
