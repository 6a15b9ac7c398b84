import t, { type Test } from 'tap'
import { stoppedClaims } from '../../src/delivery/stopped-claims.ts'
import { load } from '../../src/delivery/load.ts'
import type { LeasedDelivery } from '../../src/delivery/lease.ts'
import { testDb } from '../support/postgres.ts'
import { setup, type Story } from '../support/setup.ts'
import { until } from '../support/until.ts'

/** A task that this process accepted and claimed, and that waits in the queue. */
async function acceptedOne(t: Test, post: Parameters<Story['post']>[0] = {}) {
  const story = await setup(t)
  story.queue.mode = 'hold'
  await story.post(post)
  await story.quiet()
  const [claim] = story.queue.jobs.flat()
  return {
    ...story,
    claim: claim!,
    leased: { ...claim!.leased!, leasedFrom: Math.round(claim!.leased!.leasedFrom) }
  }
}

t.test('what was accepted here is what a worker would have read', async t => {
  const { sql, claim, leased } = await acceptedOne(t, {
    deliverBefore: new Date(Date.now() + 600_000),
    extend: '{"source":"till","weights":[1]}',
    sceneType: 'shop',
    retryTimes: 4
  })
  const { taskId, downstream, attempt } = claim
  const asAccepted = await load(sql, undefined, { downstream, deliveries: [claim] }, () => null)
  t.same(asAccepted, { leased: [claim.leased], isRead: false }, 'no statement')
  const { leased: read, isRead } = await load(
    sql,
    undefined,
    { downstream, deliveries: [{ taskId, attempt }] },
    () => null
  )
  t.ok(isRead)
  const { leaseLeftMs, claimedMs, deliverBeforeLeftMs, roundMs, ...rest } = leased.delivery
  const {
    leaseLeftMs: leaseLater,
    claimedMs: claimAge,
    deliverBeforeLeftMs: timeLater,
    roundMs: roundAge,
    ...restRead
  } = read[0]!.delivery
  t.same(rest, restRead)
  t.ok(claim.leased!.leasedFrom <= read[0]!.leasedFrom)
  t.ok(roundAge >= roundMs && roundAge < 5_000, 'its round began with it')
  t.equal(claimedMs, 0)
  t.ok(claimAge > 0 && claimAge < 5_000, 'and its claim')
  t.ok(leaseLater <= leaseLeftMs && leaseLater > leaseLeftMs - 5_000, `${leaseLater} of ${leaseLeftMs} ms`)
  t.ok(
    timeLater! <= deliverBeforeLeftMs! && timeLater! > deliverBeforeLeftMs! - 5_000,
    `${timeLater} of ${deliverBeforeLeftMs} ms`
  )
})

t.test('an accepted delivery is sent as it is for a second, then only as PostgreSQL knows it', async t => {
  const { sql, leased, remove, claim } = await acceptedOne(t)
  let now = leased.leasedFrom + 1_000
  const { confirm } = stoppedClaims(() => now)
  t.equal(confirm(sql, leased, null), leased, 'without a statement')
  now++
  t.match(await confirm(sql, leased, null), { isOwnClaim: false, delivery: { task: { id: claim.taskId } } })
  await remove(leased.delivery.task.taskNo)
  t.equal(await confirm(sql, leased, null), undefined, 'another process stopped it')
})

t.test('what this process stopped is read at once, and forgotten a second later', async t => {
  const { sql, leased, claim } = await acceptedOne(t)
  let now = leased.leasedFrom
  const { add, confirm } = stoppedClaims(() => now)
  add('another task', claim.downstream)
  t.equal(confirm(sql, leased, null), leased)
  add(claim.taskId, 'points')
  t.equal(confirm(sql, leased, null), leased, 'stopped at another downstream')
  add(claim.taskId, claim.downstream)
  t.not(confirm(sql, leased, null), leased)
  now += 1_001
  add('a third', claim.downstream)
  const later: LeasedDelivery = { ...leased, leasedFrom: now }
  t.equal(confirm(sql, later, null), later)
})

t.test('of a backlog only what can leave soon is read, the rest when there is room for it', async t => {
  let reads = 0
  const { sql } = await testDb(t, { max: 8 })
  const counted = new Proxy(sql, {
    apply(query, self, args: [TemplateStringsArray]) {
      if (args[0].raw?.some(part => part.includes('d.tries_left, d.lost, d.needs_receipt'))) reads++
      return Reflect.apply(query, self, args) as unknown
    }
  })
  const { post, downstream, quiet } = await setup(t, {
    sql: counted,
    hasWorker: false,
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

t.test('a claim of a process with a shorter timeout gets a lease in which it can be sent', async t => {
  const { sql, claim } = await acceptedOne(t)
  const { taskId, downstream, attempt } = claim
  const unread = { downstream, deliveries: [{ taskId, attempt }] }
  const lease = async () => {
    const [row] = await sql<
      [{ ms: number }]
    >`select extract(epoch from next_action_at - now())::float8 * 1000 as ms from delivery`
    return row.ms
  }
  await sql`update delivery set owner = 7, next_action_at = now() + interval '20 s', updated_at = now() - interval '50 s'`
  const time = { timeoutMs: 60_000, leaseMs: 70_000 }
  const { leased } = await load(sql, undefined, unread, () => 8, time)
  t.ok((leased[0]?.delivery.leaseLeftMs ?? 0) >= 70_000)
  t.ok((leased[0]?.delivery.claimedMs ?? 0) >= 50_000, 'it was claimed when it was')
  const extended = await lease()
  t.ok(extended > 60_000 && extended <= 70_000)

  await load(sql, undefined, unread, () => 8, { timeoutMs: 10_000, leaseMs: 20_000 })
  t.ok((await lease()) > 30_000, 'a lease that is long enough stays')

  await sql`update delivery set next_action_at = now() - interval '1 ms'`
  const late = await load(sql, undefined, unread, () => 8, time)
  t.ok((late.leased[0]?.delivery.leaseLeftMs ?? 0) <= 0, 'one that has ended is left to the dispatcher')
  t.ok((await lease()) < 0)

  await sql`update delivery set next_action_at = now() + interval '20 s'`
  const nameless = await load(sql, undefined, unread, () => null, time)
  t.ok((nameless.leased[0]?.delivery.leaseLeftMs ?? 0) < 21_000)
})
