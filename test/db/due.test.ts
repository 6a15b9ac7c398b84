import t from 'tap'
import { claimDue, findOrphans, nextDue } from '../../src/db/deliveries.ts'
import { findOverdue, cursorAt, type ScanCursor } from '../../src/db/overdue.ts'
import { openDb } from '../../src/db/pool.ts'
import type { State } from '../../src/domain/transitions.ts'
import { testDb } from '../support/postgres.ts'
import { standing, stored } from '../support/rows.ts'
import type { DeliveryState } from '../support/model.ts'

const at = (state: State, more: Partial<DeliveryState> = {}): DeliveryState => ({
  state,
  attempt: 2,
  triesLeft: 3,
  lost: 0,
  roundFrom: 1,
  ...more
})
const warehouse = (room: number) => [{ downstream: 'warehouse', room, leaseMs: 20_000 }]

t.test('three dispatchers at once claim every due delivery, and none twice', async t => {
  const { url, sql } = await testDb(t)
  const pools = [sql, openDb(url, { max: 3 }), openDb(url, { max: 3 })]
  t.teardown(() => Promise.all(pools.slice(1).map(pool => pool.end())))
  const ids = await Promise.all(Array.from({ length: 600 }, () => standing(sql, at('WAITING'), { inMs: -1 })))
  const claims = await Promise.all(
    Array.from({ length: 60 }, (_, n) => claimDue(pools[n % 3]!, warehouse(40), null))
  )
  const rest = await claimDue(sql, warehouse(1_000), null)
  const claimed = [...claims.flat(), ...rest]
  t.same(claimed.map(one => one.taskId).toSorted(), ids.toSorted())
  t.ok(claimed.every(one => one.attempt === 3))
  const row = await stored(sql, ids[0]!)
  t.same(row.standing, at('IN_FLIGHT', { attempt: 3, triesLeft: 2 }))
  t.ok(row.inMs !== null && row.inMs > 15_000 && row.inMs <= 20_000)
})

t.test(
  'only what is due is claimed: not early, not in flight, not awaiting a receipt, not ended, not expired',
  async t => {
    const { sql } = await testDb(t)
    const due = await standing(sql, at('WAITING'), { inMs: -1 })
    await standing(sql, at('WAITING'), { inMs: 5_000 })
    for (const state of ['IN_FLIGHT', 'AWAITING_RECEIPT', 'FAILED', 'HANDLED', 'DELETED'] as const) {
      await standing(sql, at(state), { inMs: -1 })
    }
    await standing(sql, at('WAITING'), { inMs: -1, downstream: 'points' })
    const expired = await standing(sql, at('WAITING'), { inMs: -1 })
    await sql`update delivery set deliver_before = now() where task_id = ${expired}`
    t.same(await claimDue(sql, warehouse(100), null), [{ taskId: due, downstream: 'warehouse', attempt: 3 }])
  }
)

t.test('each downstream gets its own room and lease, the oldest first', async t => {
  const { sql } = await testDb(t)
  const old = await standing(sql, at('WAITING'), { inMs: -5_000 })
  await standing(sql, at('WAITING'), { inMs: -1_000 })
  const points = await Promise.all(
    [1, 2].map(() => standing(sql, at('WAITING'), { inMs: -1, downstream: 'points' }))
  )
  const claimed = await claimDue(
    sql,
    [
      { downstream: 'warehouse', room: 1, leaseMs: 1_000 },
      { downstream: 'points', room: 5, leaseMs: 60_000 }
    ],
    null
  )
  t.same(claimed.map(one => one.taskId).toSorted(), [old, ...points].toSorted())
  t.ok(((await stored(sql, points[0]!, 'points')).inMs ?? 0) > 50_000)
})

t.test('what is overdue for a decision is found, live clocks are not', async t => {
  const { sql } = await testDb(t)
  const lost = await standing(sql, at('IN_FLIGHT'), { inMs: -1 })
  const silent = await standing(sql, at('AWAITING_RECEIPT'), { inMs: -1, needsReceipt: true })
  const expired = await standing(sql, at('WAITING'), { inMs: -1 })
  await sql`update delivery set deliver_before = now() where task_id = ${expired}`
  await standing(sql, at('WAITING'), { inMs: -1 })
  await standing(sql, at('IN_FLIGHT'), { inMs: 5_000 })
  await standing(sql, at('AWAITING_RECEIPT'), { inMs: 5_000 })
  await standing(sql, at('IN_FLIGHT'), { inMs: -1, downstream: 'unknown' })
  const look = async (fromMs?: number) => {
    const [seen] = await findOverdue(sql, [cursorAt('warehouse', fromMs)], { clocks: 1_000, limit: 1_000 })
    t.equal(seen?.next, undefined)
    return seen?.overdue ?? []
  }
  const found = await look()
  t.same(found.map(one => one.taskId).toSorted(), [lost, silent, expired].toSorted())
  t.match(
    found.find(one => one.taskId === silent),
    {
      phase: 'AWAITING_RECEIPT',
      attempt: 2,
      triesLeft: 3,
      needsReceipt: true,
      retryTimes: null,
      messageCode: 'order.paid'
    }
  )
  t.same(await look(Date.now() + 1_000), [], 'an earlier look saw them')
})

t.test('a look from a time on reads the clocks of this very time', async t => {
  const { sql } = await testDb(t)
  const id = await standing(sql, at('IN_FLIGHT'), { inMs: -60_000 })
  const [row] = await sql<
    { ms: number }[]
  >`select (extract(epoch from next_action_at) * 1000)::float8 as ms from delivery`
  for (const ms of [row?.ms ?? 0, Math.floor(row?.ms ?? 0)]) {
    const [seen] = await findOverdue(sql, [cursorAt('warehouse', ms)], { clocks: 1_000, limit: 1_000 })
    t.match(seen?.overdue, [{ taskId: id }])
  }
})

t.test('what is overdue is found in parts, also among thousands with the same clock', async t => {
  const { sql } = await testDb(t)
  const first = await standing(sql, at('IN_FLIGHT'), { inMs: -7_200_000 })
  await sql`
    insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_by)
    select gen_random_uuid(), 'no:' || n, 'order.paid', '', '{}', 'parts', 'test' from generate_series(1, 3000) n`
  await sql`
    insert into delivery (task_id, downstream, status, phase, next_action_at, attempt, tries_left, needs_receipt, deliver_before)
    select id, 'warehouse', 0, 'WAITING', now() - interval '1 hour', 0, 9, false, case when task_no like '%7' then now() end
    from task where content_hash = 'parts'`
  const last = await standing(sql, at('IN_FLIGHT'), { inMs: -1 })
  const elsewhere = await standing(sql, at('IN_FLIGHT'), { inMs: -1, downstream: 'points' })
  const found = new Set<string>()
  let places: ScanCursor[] = ['warehouse', 'points'].map(name => cursorAt(name, undefined))
  for (let look = 0; places.length > 0; look++) {
    t.ok(look < 3, `look ${look}`)
    const seen = await findOverdue(sql, places, { clocks: 500, limit: 1_000 })
    const overdue = seen.flatMap(one => one.overdue)
    if (look === 0) t.ok(overdue.some(one => one.taskId === elsewhere))
    for (const one of overdue) found.add(one.taskId)
    places = seen.flatMap(one => one.next ?? [])
  }
  const expired = await sql<
    { id: string }[]
  >`select id from task where content_hash = 'parts' and task_no like '%7'`
  t.same([...found].toSorted(), [first, last, elsewhere, ...expired.map(({ id }) => id)].toSorted())
})

t.test('the next due time is told, whatever is due already', async t => {
  const { sql } = await testDb(t)
  const minute = 60_000
  t.equal((await nextDue(sql, [{ name: 'warehouse' }], minute)).inMs, null)
  await standing(sql, at('WAITING'), { inMs: -60_000 })
  await standing(sql, at('WAITING'), { inMs: 1_000, downstream: 'unknown' })
  t.equal((await nextDue(sql, [{ name: 'warehouse' }], minute)).inMs, null)
  await standing(sql, at('IN_FLIGHT'), { inMs: 30_000 })
  await standing(sql, at('WAITING'), { inMs: 5_000, downstream: 'points' })
  const both = [{ name: 'warehouse' }, { name: 'points' }]
  t.equal((await nextDue(sql, both, 4_000)).inMs, null, 'what is further away is not looked for')
  const { inMs, now, oldest } = await nextDue(sql, both, minute)
  t.ok(inMs !== null && inMs > 3_000 && inMs <= 5_000)
  t.ok(now instanceof Date)
  t.same([...oldest.keys()], ['warehouse'], 'and the oldest that has run out')
  t.ok(Math.abs(now.getTime() - (oldest.get('warehouse') ?? 0) - 60_000) < 30_000)
  const before = (oldest.get('warehouse') ?? 0) + 1
  const from = async (fromMs: number) => (await nextDue(sql, [{ name: 'warehouse', fromMs }], minute)).oldest
  t.same(await from(before), new Map([['warehouse', before - 1]]))
  t.same(await from(before + 5), new Map())
})

t.test('deliveries whose downstream nobody knows are found after a minute', async t => {
  const { sql } = await testDb(t)
  const orphan = await standing(sql, at('WAITING'), { inMs: -61_000, downstream: 'gone' })
  const another = await standing(sql, at('IN_FLIGHT'), { inMs: -61_000, downstream: 'also-gone' })
  await standing(sql, at('WAITING'), { inMs: -30_000, downstream: 'gone' })
  await standing(sql, at('WAITING'), { inMs: -61_000 })
  await standing(sql, at('FAILED'), { downstream: 'gone' })
  const found = await findOrphans(sql, ['warehouse', 'points'], 10)
  t.same(found.map(one => one.taskId).toSorted(), [orphan, another].toSorted())
  t.same(await findOrphans(sql, ['warehouse', 'gone', 'also-gone'], 10), [])
})
