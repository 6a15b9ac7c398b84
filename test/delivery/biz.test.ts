import t from 'tap'
import { listTasks } from '../../src/db/lists.ts'
import { openDb, type Sql } from '../../src/db/pool.ts'
import { only } from '../support/only.ts'
import { taskRequest } from '../support/task-request.ts'
import { readsOf, testDb } from '../support/postgres.ts'
import { setup } from '../support/setup.ts'

async function deadlocks(sql: Sql): Promise<number> {
  const [row] = await sql<[{ n: number }]>`
    select deadlocks::int as n from pg_stat_database where datname = current_database()`
  return row.n
}

const order = (key: string, unique = true) => ({ biz: { type: 'order', key, unique } })

t.test('one business thing has one task that says uniqueBiz, whatever its taskNo', async t => {
  const { accept, post, read } = await setup(t)
  const first = await post(order('42'))
  t.same(await accept(taskRequest(order('42'))), { kind: 'biz_conflict', by: first })
  t.match(await accept(taskRequest(order('43'))), { kind: 'created' })
  t.match(
    await accept(taskRequest({ biz: { type: 'refund', key: '42', unique: true } })),
    { kind: 'created' },
    'another type'
  )
  t.match(await read(first), { bizType: 'order', bizKey: '42', uniqueBiz: true })
})

t.test('it sees tasks that say so only: the others may be as many as they like', async t => {
  const { accept, post, read } = await setup(t)
  const plain = await post(order('42', false))
  await post(order('42', true))
  t.match(await accept(taskRequest(order('42', false))), { kind: 'created' })
  t.notHas(await read(plain), { uniqueBiz: true })
})

t.test(
  'the same task again is the same, and its number with other content is a conflict of its number',
  async t => {
    const { accept, sql } = await setup(t)
    const one = taskRequest({ taskNo: 'order:1', ...order('42') })
    t.match(await accept(one), { kind: 'created', task: { bizType: 'order', bizKey: '42', uniqueBiz: true } })
    t.match(await accept(one), { kind: 'same', task: { bizType: 'order', bizKey: '42', uniqueBiz: true } })
    t.match(await accept({ ...one, contentHash: 'another' }), { kind: 'conflict' })
    t.equal((await sql`select from task`).length, 1)
  }
)

t.test(
  'of 60 who post one business thing at 3 processes at once, one gets it and all the others hear who',
  async t => {
    const { url, sql } = await testDb(t, { max: 4 })
    const pools = [1, 2].map(() => openDb(url, { max: 4 }))
    t.teardown(() => Promise.all(pools.map(pool => pool.end())))
    const stories = await Promise.all([sql, ...pools].map(pool => setup(t, { sql: pool })))
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        // In both orders: a batch may wait for a key that another batch holds.
        stories.map(({ accept }) =>
          accept.many((n % 2 ? ['a', 'b', 'c'] : ['c', 'b', 'a']).map(key => taskRequest(order(key))))
        )
      ).flat()
    )
    const all = answers.flat()
    t.equal(all.filter(one => one.kind === 'created').length, 3)
    const owners = (await sql<{ task_no: string }[]>`select task_no from task`).map(row => row.task_no)
    t.ok(all.every(one => one.kind === 'created' || (one.kind === 'biz_conflict' && owners.includes(one.by))))
  }
)

t.test(
  'batches of the same business things under other numbers never wait for each other in a circle',
  async t => {
    const { accept, sql } = await setup(t)
    const other = await setup(t, { sql })
    // Sorted by taskNo, the two batches would lock the business keys in opposite orders.
    const batch = (round: number, isReversed: boolean) =>
      Array.from({ length: 100 }, (_, n) =>
        taskRequest({
          taskNo: `${round}-${isReversed ? 999 - n : 100 + n}-${isReversed}`,
          ...order(`${round}-${n}`)
        })
      )
    const before = await deadlocks(sql)
    for (let round = 0; round < 20; round++)
      await Promise.all([accept.many(batch(round, false)), other.accept.many(batch(round, true))])
    t.equal((await sql`select from task`).length, 2_000)
    t.equal(await deadlocks(sql), before)
  }
)

t.test('whoever looks for a business thing finds all its tasks, of all times, and only those', async t => {
  const { post, sql } = await setup(t)
  const [paid, shipped] = [await post(order('42', false)), await post(order('42', false))]
  await post(order('43', false))
  await post()
  const reads = readsOf(t, sql)
  const page = { messageCodes: null, from: new Date(0), limit: 1, bizType: 'order' }
  const first = await listTasks(reads, { ...page, bizKey: '42' })
  if (first === 'bad_cursor' || first.nextCursor === undefined) return t.fail('a page and more')
  t.match(first.tasks, only({ taskNo: shipped, bizType: 'order', bizKey: '42' }))
  const second = await listTasks(reads, { ...page, bizKey: '42', cursor: first.nextCursor })
  t.match(second, { tasks: only({ taskNo: paid }) })
  t.notHas(second, 'nextCursor')
  t.match(await listTasks(reads, { ...page, limit: 9 }), { tasks: { length: 3 } }, 'all of the type')
  t.match(await listTasks(reads, { ...page, messageCodes: ['another.code'] }), { tasks: { length: 0 } })
  t.match(await listTasks(reads, { ...page, status: 'FAILED' }), { tasks: { length: 0 } })
})

t.test('a delivery says which operator changed it last, and nobody where none did', async t => {
  const { post, quiet, delivery, downstream, redeliver, remove } = await setup(t)
  downstream.next({ kind: 'refused', reason: 'http_410' })
  const taskNo = await post()
  await quiet()
  t.notHas(await delivery(taskNo), 'updatedBy')
  await redeliver(taskNo)
  t.match(await delivery(taskNo), { phase: 'WAITING', updatedBy: 'operator' })
  await remove(taskNo)
  t.match(await delivery(taskNo), { status: 'DELETED', updatedBy: 'operator' })
})
