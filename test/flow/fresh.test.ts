import t from 'tap'
import type { Loaded } from '../../src/db/load.ts'
import { fresh, load, type FreshOne, type Hint } from '../../src/flow/fresh.ts'
import { pace } from '../../src/flow/pace.ts'
import { testDb } from '../support/postgres.ts'
import { setup } from '../support/setup.ts'
import { until } from '../support/until.ts'

const loaded = (id: string, body = '{}'): Loaded => ({
  task: {
    id,
    taskNo: id,
    messageCode: 'order.paid',
    sceneType: '',
    messageBody: body,
    deliverStartTime: null,
    needCallback: null,
    retryTimes: null,
    extend: null,
    traceparent: null,
    createdAt: new Date(),
    createdBy: 'test'
  },
  downstream: 'warehouse',
  attempt: 1,
  triesLeft: 9,
  lost: 0,
  needsReceipt: false,
  leaseMs: 20_000,
  beforeMs: null
})

t.test('what was kept is given once, for its attempt only, and not when it was stopped', t => {
  let ms = 7
  const kept = fresh(() => ms)
  for (const id of ['a', 'b', 'c', 'd', 'e']) kept.keep({ delivery: loaded(id), askedAt: 7 })
  t.match(kept.take('a', 'warehouse', 1), { delivery: { task: { id: 'a' } }, askedAt: 7 })
  t.equal(kept.take('a', 'warehouse', 1), undefined)
  t.equal(kept.take('b', 'points', 1), undefined, 'another downstream')
  t.equal(kept.take('b', 'warehouse', 2), undefined, 'claimed again since')
  kept.forget('c', 'warehouse')
  t.equal(kept.take('c', 'warehouse', 1), undefined)
  ms = 1_007
  t.ok(kept.take('d', 'warehouse', 1))
  ms++
  t.equal(
    kept.take('e', 'warehouse', 1),
    undefined,
    'another process may have stopped it meanwhile: it is read'
  )
  t.end()
})

t.test('hints that never come leave nothing behind for ever', t => {
  const kept = fresh(() => 0)
  for (let n = 0; n < 10_001; n++) kept.keep({ delivery: loaded(`${n}`), askedAt: 0 })
  t.equal(kept.take('0', 'warehouse', 1), undefined, 'the oldest went')
  t.ok(kept.take('1', 'warehouse', 1))
  const long = '"'.padEnd(6_000_000, 'x') + '"'
  for (const id of ['x', 'y', 'z']) kept.keep({ delivery: loaded(id, long), askedAt: 0 })
  t.equal(kept.take('x', 'warehouse', 1), undefined)
  t.equal(kept.take('10000', 'warehouse', 1), undefined)
  t.ok(kept.take('y', 'warehouse', 1))
  t.ok(kept.take('z', 'warehouse', 1))
  t.end()
})

t.test('what a worker remembers is what it would have read', async t => {
  const kept: FreshOne[] = []
  const story = await setup(t, { fresh: { ...fresh(), keep: one => kept.push(one) } })
  story.downstream.holds = true
  await story.post({
    deliverBefore: new Date(Date.now() + 600_000),
    extend: '{"source":"till","weights":[1]}',
    sceneType: 'shop',
    retryTimes: 4
  })
  await until('it is sent', () => story.downstream.requests.length === 1)
  const [remembered] = kept
  const { task, downstream, attempt } = remembered!.delivery
  const hint: Hint = { downstream, deliveries: [[task.id, attempt]] }
  const { ones, isBacklog } = await load(story.sql, undefined, pace(), undefined, hint)
  t.ok(isBacklog)
  const [again] = ones
  const { leaseMs, beforeMs, ...rest } = remembered!.delivery
  const { leaseMs: leaseLeft, beforeMs: timeLeft, ...restRead } = again!.delivery
  t.same(rest, restRead)
  t.ok(remembered!.askedAt <= again!.askedAt)
  t.ok(leaseLeft <= leaseMs && leaseLeft > leaseMs - 5_000, `${leaseLeft} of ${leaseMs} ms`)
  t.ok(timeLeft! <= beforeMs! && timeLeft! > beforeMs! - 5_000, `${timeLeft} of ${beforeMs} ms`)
})

t.test('of a backlog only what can leave soon is read, the rest when there is room for it', async t => {
  let reads = 0
  const { sql } = await testDb(t, { max: 8 })
  const counted = new Proxy(sql, {
    apply(query, self, args: [TemplateStringsArray]) {
      if (args[0].raw?.[0]?.includes('d.tries_left, d.lost, d.needs_receipt')) reads++
      return Reflect.apply(query, self, args) as unknown
    }
  })
  const { post, downstream, quiet } = await setup(t, {
    sql: counted,
    fresh: undefined,
    downstream: { limit: { concurrency: 1, timeoutMs: 10_000 } }
  })
  downstream.holds = true
  for (let n = 0; n < 8; n++) await post()
  await downstream.received(1)
  await until('the next wait for the only slot', () => reads === 4)
  await new Promise(resolve => setTimeout(resolve, 50))
  t.equal(reads, 4, 'one that is being sent, and three')
  downstream.holds = false
  downstream.answer()
  await quiet()
  t.equal(reads, 8)
  t.equal(new Set(downstream.requests.map(one => one.taskNo)).size, 8)
})
