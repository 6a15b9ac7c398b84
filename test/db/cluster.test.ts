import t from 'tap'
import { writeNode, removeNode, readCluster, pause, resume } from '../../src/db/cluster.ts'
import type { State } from '../../src/domain/transitions.ts'
import { openCluster } from '../../src/delivery/cluster.ts'
import { intercepted } from '../support/away.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'
import { standing } from '../support/rows.ts'
import { until } from '../support/until.ts'
import type { DeliveryState } from '../support/model.ts'

const at = (state: State): DeliveryState => ({ state, attempt: 1, triesLeft: 3, lost: 0, roundFrom: 1 })

t.test('who beats is alive for 15 s, who leaves is gone at once', async t => {
  const { sql } = await testDb(t)
  await writeNode(sql, { id: 'a', roles: 'api,worker,dispatcher', version: '1' })
  await writeNode(sql, { id: 'b', roles: 'worker', version: '1' })
  await writeNode(sql, { id: 'b', roles: 'worker', version: '2' })
  await writeNode(sql, { id: 'c', roles: 'api', version: '1' })
  t.match(await readCluster(sql, []), { workers: 2, dispatchers: 1 })
  await sql`update node set seen_at = now() - interval '16 s' where id = 'b'`
  t.match(await readCluster(sql, []), { workers: 1 })
  await removeNode(sql, 'a')
  t.match(await readCluster(sql, []), { workers: 0, dispatchers: 0 })
  await sql`update node set seen_at = now() - interval '2 hours' where id = 'b'`
  await writeNode(sql, { id: 'c', roles: 'api', version: '1' })
  t.same(
    (await sql<{ id: string }[]>`select id from node`).map(row => row.id),
    ['c']
  )
})

t.test('a process whose row was removed during an outage hears that its handlers are missing', async t => {
  const { sql } = await testDb(t)
  const one = { id: 'a', roles: 'worker', version: '1' }
  t.equal(await writeNode(sql, { ...one, handles: ['order.paid warehouse'] }), true)
  t.equal(await writeNode(sql, one), true)
  await removeNode(sql, 'a')
  t.equal(await writeNode(sql, one), false)
  t.equal(await writeNode(sql, { ...one, handles: [] }), true)
})

t.test('a pause is kept with who asked first, until somebody resumes', async t => {
  const { sql } = await testDb(t)
  await pause(sql, 'warehouse', { name: 'ann' })
  await pause(sql, 'warehouse', { name: 'bob' })
  t.same((await readCluster(sql, ['warehouse', 'points'])).paused, new Set(['warehouse']))
  t.match(await sql`select paused_by from downstream`, only({ paused_by: 'ann' }))
  for (const name of ['ann', 'bob']) await resume(sql, 'warehouse', { name })
  await resume(sql, 'points', { name: 'ann' })
  t.equal((await readCluster(sql, [])).paused.size, 0)
  await pause(sql, 'warehouse', { name: 'bob' })
  t.match(await sql`select paused_by from downstream`, only({ paused_by: 'bob' }))
  t.match(
    await sql`select who, what, target from audit order by id`,
    only(
      { who: 'ann', what: 'downstream.pause', target: 'warehouse' },
      { who: 'ann', what: 'downstream.resume', target: 'warehouse' },
      { who: 'bob', what: 'downstream.pause', target: 'warehouse' }
    ),
    'what was so already is no act'
  )
})

t.test('a database that can only be read says so', async t => {
  const { sql } = await testDb(t, { max: 1 })
  t.equal((await readCluster(sql, [])).readOnly, false)
  await sql`set default_transaction_read_only = on`
  t.equal((await readCluster(sql, [])).readOnly, true)
})

t.test('the age of the oldest due delivery is told by downstream; none due, none told', async t => {
  const { sql } = await testDb(t)
  await standing(sql, at('WAITING'), { inMs: -3_600_000 })
  await standing(sql, at('WAITING'), { inMs: -1_000 })
  await standing(sql, at('WAITING'), { inMs: 3_600_000, downstream: 'points' })
  await standing(sql, at('FAILED'), { downstream: 'audit' })
  const { oldestDueMs } = await readCluster(sql, ['warehouse', 'points', 'audit'])
  t.same([...oldestDueMs.keys()], ['warehouse'])
  t.ok(Math.abs((oldestDueMs.get('warehouse') ?? 0) - 3_600_000) < 60_000)
})

t.test(
  'metrics hear of what is due in any phase: without a dispatcher nobody rescues what is claimed',
  async t => {
    const { sql } = await testDb(t)
    await writeNode(sql, { id: 'a', roles: 'worker', version: '1' })
    await standing(sql, at('AWAITING_RECEIPT'), { inMs: -60_000 })
    await standing(sql, at('WAITING'), { inMs: -40_000 })
    const due = new Map<string, number>()
    const live: object[] = []
    const cluster = openCluster(
      sql,
      ['warehouse', 'points'],
      () => {},
      (name, ageMs) => void due.set(name, ageMs),
      { onNodes: ({ workers, dispatchers }) => void live.push({ workers, dispatchers }) }
    )
    await cluster.refresh()
    t.ok(Math.abs((due.get('warehouse') ?? 0) - 60_000) < 5_000)
    t.equal(due.get('points'), 0)
    t.same(live, [{ workers: 1, dispatchers: 0 }])
  }
)

t.test(
  'a look that ends after a later one changes nothing: a pause would be forgotten until the next look',
  async t => {
    const { sql } = await testDb(t)
    let answer = (): void => {}
    const held = new Promise<void>(resolve => {
      answer = resolve
    })
    let isRead = false
    let looks = 0
    // The answer to the first look is late.
    const slow = intercepted(sql, (text, _, run) => {
      if (!text.includes('from downstream') || looks++ > 0) return undefined
      return run().then(async rows => {
        isRead = true
        await held
        return rows
      })
    })
    const cluster = openCluster(
      slow,
      ['warehouse'],
      () => {},
      () => {}
    )
    const first = cluster.refresh()
    await until('it is read', () => isRead)
    await pause(sql, 'warehouse', { name: 'ann' })
    await cluster.refresh()
    t.ok(cluster.isPaused('warehouse'))
    answer()
    await first
    t.equal(looks, 2)
    t.ok(cluster.isPaused('warehouse'))
  }
)

t.test('after an outage the processes that lived before it count until they have rejoined', async t => {
  const { sql } = await testDb(t)
  const workers = ['a', 'b', 'c'].map(id => ({ id, roles: 'worker', version: '1' }))
  for (const one of workers) await writeNode(sql, one)
  let now = 0
  const cluster = openCluster(
    sql,
    [],
    () => {},
    () => {},
    { monotonicMs: () => now }
  )
  await cluster.refresh()
  t.equal(cluster.workers(), 3)
  t.notOk(cluster.isRejoining(), 'a start is no outage')
  await sql`update node set seen_at = now() - interval '20 s'`
  now += 1_000
  await cluster.refresh()
  t.equal(cluster.workers(), 0, 'without an outage they are gone')
  for (const one of workers) await writeNode(sql, one)
  now += 1_000
  await cluster.refresh()
  t.equal(cluster.workers(), 3)

  await sql`update node set seen_at = now() - interval '20 s'`
  now += 20_000
  await cluster.refresh()
  t.equal(cluster.workers(), 3)
  t.ok(cluster.isRejoining())
  await writeNode(sql, { id: 'a', roles: 'worker', version: '1' })
  now += 6_000
  await cluster.refresh()
  t.equal(cluster.workers(), 3)
  now += 2_000
  await cluster.refresh()
  t.equal(cluster.workers(), 1, 'the others did not come back')
  t.notOk(cluster.isRejoining())
})
