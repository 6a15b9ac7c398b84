import { randomUUID } from 'node:crypto'
import t from 'tap'
import { listAlarms, listTasks, readTask } from '../../src/db/lists.ts'
import type { TaskFilter } from '../../src/db/search.ts'
import type { Sql } from '../../src/db/pool.ts'
import type { Reads } from '../../src/db/reads.ts'
import { uuidv7 } from '../../src/domain/ids.ts'
import { cannotCountReads, testDb } from '../support/postgres.ts'

type Ending = 'SENDING' | 'HANDLED' | 'FAILED' | 'DELETED'

/** Stores a task with a delivery in the given status for each downstream. */
async function stored(sql: Sql, taskNo: string, ends: Record<string, Ending>, sceneType = ''): Promise<void> {
  const id = uuidv7()
  await sql`
    insert into task (id, task_no, message_code, scene_type, message_body, content_hash, deliver_start_time, state, created_by)
    values (${id}, ${taskNo}, 'order.paid', ${sceneType}, '{}', ${randomUUID()}, now(), 'ACTIVE', 'test')`
  for (const [downstream, end] of Object.entries(ends))
    await sql`
      insert into delivery (task_id, downstream, status, phase, next_action_at, attempt, tries_left, needs_receipt,
        reason, handled_at, handled_by)
      select ${id}, ${downstream}, s, case when s = 0 then 'WAITING' end, case when s = 0 then now() end, 1, 5, false,
        case when s = 2 then 'SEND_EXHAUSTED' when s = -1 then 'DELETED' end,
        case when s = 1 then now() end, case when s = 1 then 'send' end
      from (values (${{ SENDING: 0, HANDLED: 1, FAILED: 2, DELETED: -1 }[end]}::smallint)) as v (s)`
}

async function pages(reads: Reads, filter: Partial<TaskFilter>): Promise<string[]> {
  const found: string[] = []
  let cursor: string | undefined
  do {
    const page = await listTasks(reads, {
      messageCodes: null,
      from: new Date(0),
      limit: 2,
      ...filter,
      ...(cursor === undefined ? {} : { cursor })
    })
    if (page === 'bad_cursor') throw new Error(page)
    found.push(...page.tasks.map(task => task.taskNo))
    cursor = page.nextCursor
  } while (cursor !== undefined)
  return found
}

t.test('whichever status one asks for, every task is in the list of exactly its own', async t => {
  const { sql, reads } = await testDb(t)
  const statuses: Ending[] = ['SENDING', 'HANDLED', 'FAILED', 'DELETED']
  const combinations = statuses.flatMap(one =>
    statuses.flatMap(two => statuses.map(three => [one, two, three]))
  )
  const expected: Record<Ending, string[]> = { SENDING: [], HANDLED: [], FAILED: [], DELETED: [] }
  for (const [n, [ads = 'SENDING', search = 'SENDING', reports = 'SENDING']] of combinations.entries()) {
    await stored(sql, `task-${n}`, { ads, search, reports })
    const visible = (['SENDING', 'FAILED', 'HANDLED'] as const).find(one =>
      [ads, search, reports].includes(one)
    )
    expected[visible ?? 'DELETED'].unshift(`task-${n}`)
  }
  for (const status of statuses) t.same(await pages(reads, { status }), expected[status], status)
})

t.test('the list of FAILED tasks is narrowed as every list is', async t => {
  const { sql, reads } = await testDb(t)
  await stored(sql, 'one', { ads: 'FAILED' }, 'vip')
  await stored(sql, 'two', { ads: 'HANDLED', search: 'FAILED' })
  await stored(sql, 'three', { search: 'FAILED' }, 'vip')
  const failed = (more: Partial<TaskFilter>) => pages(reads, { status: 'FAILED', ...more })
  t.same(await failed({}), ['three', 'two', 'one'])
  t.same(await failed({ downstream: 'ads' }), ['two', 'one'], 'a downstream of the task, failed or not')
  t.same(await failed({ sceneType: 'vip' }), ['three', 'one'])
  t.same(await failed({ messageCode: 'order.lost' }), [])
  t.same(await failed({ messageCodes: ['order.lost'] }), [])
  t.same(await failed({ messageCodes: ['order.paid'] }), ['three', 'two', 'one'])
  t.same(await failed({ needCallback: true }), [])
  t.same(await failed({ needCallback: false }), ['three', 'two', 'one'])
  t.same(await failed({ from: new Date(Date.now() + 60_000) }), [])
  t.same(await failed({ to: new Date(Date.now() - 60_000) }), [])
})

t.test(
  'a list of a reason has the tasks of which one delivery ended so, whatever became of the others',
  async t => {
    const { sql, reads } = await testDb(t)
    await stored(sql, 'one', { ads: 'FAILED', search: 'HANDLED' })
    await stored(sql, 'two', { ads: 'HANDLED' })
    await stored(sql, 'three', { ads: 'FAILED', search: 'SENDING' })
    await stored(sql, 'four', { ads: 'DELETED', search: 'HANDLED' })
    await stored(sql, 'five', { ads: 'FAILED' })
    await sql`update delivery set reason = 'REFUSED' where task_id = (select id from task where task_no = 'five')`
    t.same(await pages(reads, { reason: 'SEND_EXHAUSTED' }), ['three', 'one'])
    t.same(await pages(reads, { reason: 'SEND_EXHAUSTED', status: 'FAILED' }), ['one'])
    t.same(await pages(reads, { reason: 'SEND_EXHAUSTED', status: 'SENDING' }), ['three'])
    t.same(await pages(reads, { reason: 'REFUSED' }), ['five'])
    t.same(await pages(reads, { reason: 'DELETED' }), ['four'])
    t.same(await pages(reads, { reason: 'EXPIRED' }), [])
  }
)

t.test('an alarm is listed by when it was raised, and one kind does not hide the others', async t => {
  const { sql, reads } = await testDb(t)
  const alarm = async (taskNo: string, kind: string, raised: string) => {
    await stored(sql, taskNo, { ads: 'FAILED' })
    await sql`
      insert into alarm (task_id, downstream, attempt, kind, created_at)
      select id, 'ads', 1, ${kind}, now() - ${raised}::text::interval from task where task_no = ${taskNo}`
  }
  await alarm('key', 'KEY_HELD', '1 minute')
  await alarm('stuck', 'PREPARED_STUCK', '3 hours')
  for (const n of [1, 2, 3]) await alarm(`failed-${n}`, 'FAILED', '0 s')
  // The id makes the task very old. Its alarm is new.
  await sql`update alarm set task_id = '00000000-0000-7000-8000-000000000001' where kind = 'KEY_HELD'`
  await sql`update task set id = '00000000-0000-7000-8000-000000000001' where task_no = 'key'`
  const hour = 3_600_000
  const listed = async (more: object) => {
    const from = new Date(Date.now() - hour)
    const found = await listAlarms(reads, { messageCodes: null, from, limit: 2, ...more })
    if (found === 'bad_cursor') throw new Error(found)
    return found.alarms.map(one => one.taskNo)
  }
  t.same(await listed({}), ['failed-3', 'failed-2'])
  t.same(await listed({ notKind: 'FAILED' }), ['key'])
  t.same(await listed({ notKind: 'FAILED', from: new Date(0) }), ['stuck', 'key'])
  t.same(await listed({ notKind: 'KEY_HELD', to: new Date(Date.now() - hour), from: new Date(0) }), ['stuck'])
})

const skip = await cannotCountReads()
t.test('three FAILED tasks among 20,000 are found without reading the others', { skip }, async t => {
  const { sql, reads } = await testDb(t)
  await sql`
    with made as (
      insert into task (id, task_no, message_code, scene_type, message_body, content_hash, deliver_start_time, state, created_by)
      select gen_random_uuid(), 'bulk-' || n, 'order.paid', '', '{}', '', now(), 'ACTIVE', 'test'
      from generate_series(1, 20000) n
      returning id
    )
    insert into delivery (task_id, downstream, status, attempt, tries_left, needs_receipt, handled_at, handled_by)
    select id, 'warehouse', 1, 1, 9, false, now(), 'send' from made`
  for (const n of [1, 2, 3]) await stored(sql, `lost-${n}`, { warehouse: 'FAILED', ads: 'HANDLED' })
  for (const state of ['young', 'analyzed']) {
    if (state === 'analyzed') await sql`analyze task, delivery`
    await read(reads)
    t.same(await pages(reads, { status: 'FAILED', limit: 50 }), ['lost-3', 'lost-2', 'lost-1'])
    const rows = await read(reads)
    t.ok(rows < 100, `${rows} rows were read, ${state}`)
    await pages(reads, { status: 'DELETED', limit: 50 })
    t.ok((await read(reads)) > 20_000, 'a list that does read them all is seen to')
  }
})

/** Rows of task and delivery that lists have read since the last call. The lists share its connection, so they run one by one. */
async function read({ db }: Reads): Promise<number> {
  await db.execute('select pg_stat_force_next_flush()')
  const [sum] = await db.execute<{ rows: number }>(`
    select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int as rows
    from pg_stat_user_tables where relname in ('task', 'delivery')`)
  await db.execute('select pg_stat_reset()')
  return sum?.rows ?? 0
}

t.test(
  'a task shows the newest 100 attempts and receipts of each delivery, and how many there are',
  async t => {
    const { sql, reads } = await testDb(t)
    await stored(sql, 'often', { ads: 'HANDLED', search: 'HANDLED' })
    const add = async (downstream: string, attempts: number, receipts: number) => {
      await sql`
      insert into attempt (task_id, downstream, attempt, outcome, ms, node, started_at)
      select id, ${downstream}, n, 'delivered', 1, 'n', now() from task, generate_series(1, ${attempts}::int) n`
      await sql`
      insert into receipt (task_id, downstream, attempt, result, applied)
      select id, ${downstream}, n, 'RETRY', false from task, generate_series(1, ${receipts}::int) n order by n`
    }
    await add('ads', 250, 101)
    await add('search', 100, 100)
    const [ads, search] = (await readTask(reads, 'often'))?.deliveries ?? []
    const numbers = (rows: readonly { attempt: number }[] = []) => rows.map(({ attempt }) => attempt)
    const upTo = (last: number) => Array.from({ length: 100 }, (_, n) => last - 99 + n)
    t.same(numbers(ads?.attempts), upTo(250))
    t.same(numbers(ads?.receipts), upTo(101))
    t.match(ads, { attemptsTotal: 250, receiptsTotal: 101 })
    t.same(numbers(search?.attempts), upTo(100))
    t.same(numbers(search?.receipts), upTo(100))
    t.equal(search?.attemptsTotal, undefined)
    t.equal(search?.receiptsTotal, undefined)
  }
)
