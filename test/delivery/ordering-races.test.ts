// Races of tasks with an orderingKey, in which one could be forgotten, or two could run at once. Two processes use one database.
import t, { type Test } from 'tap'
import { openDb } from '../../src/db/pool.ts'
import { listOrderingKeys, promote } from '../../src/db/ordering.ts'
import { applyMoves } from '../../src/db/transitions.ts'
import type { Move } from '../../src/domain/transitions.ts'
import { taskRequest } from '../support/task-request.ts'
import { testDb } from '../support/postgres.ts'
import { setup, type Story } from '../support/setup.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

const idOf = async ({ sql }: Story, taskNo: string): Promise<string> =>
  (await sql<[{ id: string }]>`select id from task where task_no = ${taskNo}`)[0].id
const ends = (taskId: string, orderingKey: string): Move => ({
  taskId,
  downstream: 'warehouse',
  attempt: 1,
  orderingKey,
  name: 'handled',
  handledBy: 'send'
})

/** Two processes on one database. */
async function two(t: Test, mode: 'hold' | 'deliver'): Promise<[Story, Story]> {
  const { url, sql } = await testDb(t, { max: 6 })
  const other = openDb(url, { max: 6 })
  t.teardown(() => other.end())
  const stories = [await setup(t, { sql }), await setup(t, { sql: other })] as const
  for (const { queue } of stories) queue.mode = mode
  return [...stories]
}

/** Keys whose open deliveries are all BLOCKED. */
const stuck = async ({ sql }: Story): Promise<unknown[]> => [
  ...(await sql`
    select d.downstream, d.ordering_key from delivery d
    where d.position > 0 and d.status = 0
    group by 1, 2
    having bool_and(d.phase = 'BLOCKED')`)
]

t.test(
  'one is accepted while the one before it ends elsewhere: never is it forgotten, 300 times',
  async t => {
    const [producer, worker] = await two(t, 'hold')
    const keys = Array.from({ length: 300 }, (_, n) => `key-${n}`)
    await producer.accept.many(
      keys.map(orderingKey => taskRequest({ taskNo: `first:${orderingKey}`, orderingKey }))
    )
    const ids = await Promise.all(keys.map(key => idOf(producer, `first:${key}`)))
    for (const [n, orderingKey] of keys.entries()) {
      const accept = () => producer.accept(taskRequest({ taskNo: `second:${orderingKey}`, orderingKey }))
      const end = () => worker.record({ move: ends(ids[n] ?? '', orderingKey) })
      // The accept starts first, the end starts first, or the end is already running.
      if (n % 3 === 0) await Promise.all([accept(), end()])
      else if (n % 3 === 1) await Promise.all([end(), accept()])
      else {
        const [ending] = [end(), await new Promise(resolve => setImmediate(resolve))]
        await Promise.all([ending, accept()])
      }
    }
    await Promise.all([producer.quiet(), worker.quiet()])
    t.same(await stuck(producer), [], 'and no sweep was needed')
    t.match(
      await producer.sql`select count(*)::int as n from delivery where phase = 'IN_FLIGHT' and position > 0`,
      [{ n: 300 }]
    )
  }
)

t.test('many producers at two processes: positions are in the order in which they were accepted', async t => {
  const [one, other] = await two(t, 'hold')
  const seen: { key: string; from: number; to: number; position: number }[] = []
  let clock = 0
  await Promise.all(
    Array.from({ length: 16 }, async (_, producer) => {
      for (let n = 0; n < 40; n++) {
        const { accept } = (producer + n) % 2 ? one : other
        const key = `key-${(producer * 7 + n) % 5}`
        const from = clock++
        const done = await accept(taskRequest({ taskNo: `task-${producer}-${n}`, orderingKey: key }))
        const [delivery] = done.kind === 'created' ? done.task.deliveries : []
        seen.push({ key, from, to: clock++, position: delivery?.position ?? 0 })
      }
    })
  )
  const wrong = seen.flatMap(a =>
    seen.filter(b => a.key === b.key && a.to < b.from && a.position >= b.position)
  )
  t.equal(wrong.length, 0)
  for (const key of new Set(seen.map(each => each.key))) {
    const of = seen.filter(each => each.key === key).map(each => each.position)
    t.equal(new Set(of).size, of.length, 'none twice')
  }
  t.match(await one.sql`select count(*)::int as n from delivery where phase <> 'BLOCKED'`, [{ n: 5 }])
})

t.test(
  'whoever deletes, redelivers and releases at once leaves no key forgotten and no two heads',
  async t => {
    const stories = await two(t, 'deliver')
    const [one, other] = stories
    const keys = Array.from({ length: 20 }, (_, n) => `key-${n}`)
    const refused = { kind: 'refused', reason: 'http_410' } as const
    for (const { downstream } of stories) downstream.next(...Array.from({ length: 40 }, () => refused))
    const all = keys.flatMap(orderingKey =>
      Array.from({ length: 8 }, (_, n) => ({ orderingKey, taskNo: `${orderingKey}:${n}` }))
    )
    await Promise.all(
      all.map(async ({ orderingKey, taskNo }, n) => {
        const at = n % 2 ? one : other
        await at.accept(taskRequest({ taskNo, orderingKey }))
        if (n % 5 === 0) await other.remove(taskNo)
        if (n % 7 === 0) await one.release(orderingKey)
        if (n % 3 === 0) await one.redeliver(taskNo, { force: n % 2 === 0 })
      })
    )
    // Keys that are still held are released until none is left.
    for (let round = 0; round < 30; round++) {
      for (const story of stories) {
        await story.around.refresh()
        await story.succession.sweep()
        await story.dispatch()
      }
      const held = await one.sql<
        { ordering_key: string }[]
      >`select ordering_key from ordering where held_at is not null`
      if (held.length === 0) break
      await Promise.all(held.map(row => other.release(row.ordering_key)))
    }
    t.same(await stuck(one), [])
    t.equal((await one.sql`select from delivery where status = 0`).length, 0, 'all are at rest')
    t.equal((await one.sql`select from promotion`).length, 0)
    t.equal((await one.sql`select from ordering where head is not null`).length, 0)
    t.equal((await one.sql`select from alarm where kind = 'KEY_HELD' and resolved_at is null`).length, 0)
  }
)

t.test('two who promote the same key at once: one head, claimed once', async t => {
  const [one, other] = await two(t, 'hold')
  for (let n = 0; n < 50; n++) {
    const orderingKey = `key-${n}`
    await one.accept.many(['a', 'b', 'c'].map(name => taskRequest({ taskNo: `${name}:${n}`, orderingKey })))
    const key = { downstream: 'warehouse', orderingKey, leaseMs: 60_000, skips: false }
    await applyMoves(one.sql, [{ move: ends(await idOf(one, `a:${n}`), orderingKey) }])
    const promoted = await Promise.all(
      [one, other, one, other].map(({ sql }) => promote(sql, [key], false, null))
    )
    t.equal(promoted.flat().length, 1)
  }
})

t.test('a downstream whose room ends within one call: what was claimed has its lease', async t => {
  const [one] = await two(t, 'hold')
  const keys = ['k1', 'k2', 'k3']
  for (const orderingKey of keys) {
    await one.accept.many(
      ['a', 'b'].map(name => taskRequest({ taskNo: `${name}:${orderingKey}`, orderingKey }))
    )
    await applyMoves(one.sql, [{ move: ends(await idOf(one, `a:${orderingKey}`), orderingKey) }])
  }
  const promoted = await promote(
    one.sql,
    keys.map((orderingKey, at) => ({
      downstream: 'warehouse',
      orderingKey,
      leaseMs: at < 2 ? 60_000 : null,
      skips: false
    })),
    true,
    null
  )
  t.same(promoted.map(({ phase, loaded }) => `${phase} ${loaded?.leaseLeftMs}`).toSorted(), [
    'IN_FLIGHT 60000',
    'IN_FLIGHT 60000',
    'WAITING undefined'
  ])
})

t.test('an end that is not committed yet, and one that never is, let nothing go', async t => {
  const [one, other] = await two(t, 'hold')
  await one.accept.many(['a', 'b'].map(taskNo => taskRequest({ taskNo, orderingKey: 'k' })))
  const key = { downstream: 'warehouse', orderingKey: 'k', leaseMs: 60_000, skips: false }
  const id = await idOf(one, 'a')
  const undone = one.sql.begin(async tx => {
    await applyMoves(tx as unknown as typeof one.sql, [{ move: ends(id, 'k') }])
    t.same(await promote(other.sql, [key], false, null), [])
    throw new Error('it is rolled back')
  })
  await t.rejects(undone, /rolled back/)
  t.same(await promote(other.sql, [key], false, null), [])
  t.equal((await one.sql`select from promotion`).length, 0)
})

/** Two processes on one database. The second has no handler for this downstream. */
async function withStranger(t: Test): Promise<[Story, Story]> {
  const { url, sql } = await testDb(t, { max: 6 })
  const other = openDb(url, { max: 6 })
  t.teardown(() => other.end())
  return [await setup(t, { sql }), await setup(t, { sql: other, downstreams: { points: {} } })]
}

const headOf = async ({ reads }: Story, held: boolean) =>
  (await listOrderingKeys(reads, { held, messageCodes: null, limit: 10 })).keys.map(key => key.head?.taskNo)

const openAlarms = async ({ sql }: Story): Promise<string[]> =>
  (
    await sql<{ text: string }[]>`
      select kind || ' ' || task_no as text from alarm join task on id = task_id where resolved_at is null order by 1`
  ).map(({ text }) => text)

const expires = async (story: Story, taskNo: string, attempt: number): Promise<Move> => ({
  taskId: await idOf(story, taskNo),
  downstream: 'warehouse',
  attempt,
  name: 'fail',
  reason: 'EXPIRED'
})

t.test(
  'two who release a key pass the head that both saw, and not the next one, which nobody saw',
  async t => {
    const [one, other] = await two(t, 'hold')
    const { sql } = one
    await one.accept.many(['a', 'b', 'c'].map(taskNo => taskRequest({ taskNo, orderingKey: 'k' })))
    await applyMoves(sql, [{ move: await expires(one, 'a', 1) }, { move: await expires(one, 'b', 0) }])
    t.equal(await one.release('k', 'b'), 'not_held', 'it is not at the head')
    t.equal(await one.release('k', 'nobody'), 'not_held')
    const waiting = await sql.begin(async tx => {
      // As a process of an earlier version does.
      await tx`select release_key('warehouse', 'k')`
      const late = [other.release('k'), other.release('k', 'a')]
      await until('both wait for the key', async () => {
        const locked = await sql`
        select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
        return locked.length === late.length
      })
      return { late }
    })
    t.same(await Promise.all(waiting.late), ['not_held', 'not_held'])
    t.match(await one.read('a'), { deliveries: [{ status: 'FAILED', outOfOrder: true }] })
    t.notMatch(await one.read('b'), { deliveries: [{ outOfOrder: true }] })
    t.match(await other.release('k', 'b'), { taskNo: 'b' })
  }
)

t.test(
  'a key whose downstream no process knows any more is released, one FAILED after the other',
  async t => {
    const [gone, stranger] = await withStranger(t)
    gone.queue.mode = 'hold'
    await gone.accept.many(['a', 'b', 'c'].map(taskNo => taskRequest({ taskNo, orderingKey: 'k' })))
    // Their process died before it looked at the key.
    await applyMoves(gone.sql, [{ move: await expires(gone, 'a', 1) }, { move: await expires(gone, 'b', 0) }])
    const sweep = async (): Promise<void> => {
      await stranger.around.refresh()
      await stranger.succession.sweep()
      await stranger.quiet()
    }
    await sweep()
    t.same(await headOf(stranger, false), ['a'])
    t.match(await stranger.release('k'), { taskNo: 'a' })
    await sweep()
    t.same(await headOf(stranger, false), ['b'])
    t.match(await stranger.release('k'), { taskNo: 'b' })
    t.equal(await stranger.release('k'), 'not_held')
    await sweep()
    t.match(await stranger.delivery('c'), { phase: 'WAITING' })
    t.match(await gone.read('a'), { deliveries: [{ status: 'FAILED', outOfOrder: true }] })
    t.same(await headOf(stranger, false), ['c'])
  }
)

t.test(
  'a key that was held when its handler was removed is released, and held by the next one that FAILED',
  async t => {
    const [gone, stranger] = await withStranger(t)
    gone.downstream.next({ kind: 'refused', reason: 'http_410' })
    await gone.accept.many(['a', 'b', 'c'].map(taskNo => taskRequest({ taskNo, orderingKey: 'k' })))
    await gone.quiet()
    const move = {
      taskId: await idOf(gone, 'b'),
      downstream: 'warehouse',
      attempt: 0,
      name: 'fail',
      reason: 'EXPIRED'
    } as const
    await applyMoves(gone.sql, [{ move }])
    t.same(await openAlarms(gone), ['FAILED a', 'FAILED b', 'KEY_HELD a'])
    t.match(await stranger.release('k'), { taskNo: 'a' })
    await stranger.quiet()
    t.same(await openAlarms(gone), ['FAILED a', 'FAILED b'], 'it is held by a no more')
    t.same(await headOf(stranger, false), ['b'])
    // The process with the handler is back.
    await gone.around.refresh()
    await gone.succession.sweep()
    t.same(await openAlarms(gone), ['FAILED a', 'FAILED b', 'KEY_HELD b'])
    t.same(await headOf(gone, true), ['b'])
    t.match(await gone.release('k'), { taskNo: 'b' })
    await gone.quiet()
    t.match(await gone.delivery('c'), { status: 'HANDLED' })
    t.same(await openAlarms(gone), ['FAILED a', 'FAILED b'])
  }
)
