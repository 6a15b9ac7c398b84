// Thousands of FAILED deliveries behind the head of an orderingKey. With `onFailed: 'skip'` the key passes them when the head has ended.
import t, { type Test } from 'tap'
import { only } from '../support/only.ts'
import { openDb, type Sql } from '../../src/db/pool.ts'
import { promote } from '../../src/db/ordering.ts'
import { applyMoves } from '../../src/db/transitions.ts'
import { taskRequest } from '../support/task-request.ts'
import { testDb } from '../support/postgres.ts'
import { setup, type Story } from '../support/setup.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

const skipping = (orderingKey: string) => ({
  downstream: 'warehouse',
  orderingKey,
  leaseMs: 60_000,
  skips: true
})

/** A key whose head has ended: behind it are `n` FAILED deliveries, and then `KEY:last`, which waits for its turn. */
async function failedBehind(sql: Sql, key: string, n: number): Promise<void> {
  await sql`
    with stored as (
      insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_by, ordering_key)
      select gen_random_uuid(), ${key}::text || ':' || case when i > ${n}::int then 'last' else i::text end,
        'order.paid', '', '1', 'hash', 'test', ${key}
      from generate_series(1, ${n + 1}::int) i
      returning id, task_no
    )
    insert into delivery (task_id, downstream, status, phase, next_action_at, attempt, tries_left, needs_receipt, ordering_key, position, reason)
    select id, 'warehouse', case when last then 0 else 2 end, case when last then 'BLOCKED' end,
      case when last then '9999-12-31Z'::timestamptz end, 0, 10, false, ${key},
      case when last then ${n + 1}::int else split_part(task_no, ':', 2)::int end, case when not last then 'EXPIRED' end
    from (select *, task_no like '%:last' as last from stored) s`
  await sql`insert into ordering (downstream, ordering_key, next, head) values ('warehouse', ${key}, ${n + 2}::bigint, 1)`
  await sql`insert into promotion (downstream, ordering_key) values ('warehouse', ${key})`
}

const passed = async (sql: Sql): Promise<number> =>
  (await sql<[{ n: number }]>`select count(*)::int as n from delivery where position < 0`)[0].n

async function sweep({ around, succession, quiet }: Story): Promise<void> {
  await around.refresh()
  await succession.sweep()
  await quiet()
}

const sent = ({ downstream }: Story): string[] => downstream.requests.map(one => one.taskNo)

/** A key whose head ended in a process that died: its second delivery waits for the sweep. */
async function oneOfAnother({ accept, queue, sql }: Story, orderingKey: string): Promise<void> {
  queue.mode = 'hold'
  await accept.many(['first', 'second'].map(taskNo => taskRequest({ taskNo, orderingKey })))
  await accept.idle()
  await sql`
    update delivery d set status = 1, phase = null, next_action_at = null, handled_at = now(), handled_by = 'send'
    from task t where t.id = d.task_id and t.task_no = 'first'`
  queue.mode = 'deliver'
}

t.test('5,000 are passed in steps of 1,000, and another key goes on with the first of them', async t => {
  const story = await setup(t, { downstream: { onFailed: 'skip' } })
  const { sql, delivery } = story
  await failedBehind(sql, 'k', 5_000)
  await oneOfAnother(story, 'x')
  for (let turn = 1; turn <= 5; turn++) {
    await sweep(story)
    t.equal(await passed(sql), turn * 1_000)
    t.ok(sent(story).includes('second'), 'the other key does not wait')
    t.match(await sql`select from ordering where held_at is not null`, { length: 0 })
    t.equal((await sql`select from promotion`).length, turn < 5 ? 1 : 0, 'the next sweep goes on')
  }
  t.match(await delivery('k:last'), { status: 'HANDLED' })
  t.match(await delivery('k:1'), { status: 'FAILED', outOfOrder: true })
  t.same(await sql`select from alarm where kind = 'KEY_HELD'`, [], 'it never held its key')
  t.match(await sql`select from ordering where head is not null`, { length: 0 })
})

t.test('a step reads each of them a few times, however many it passes', async t => {
  const { sql } = await testDb(t)
  const reads: number[] = []
  for (const n of [100, 900]) {
    await failedBehind(sql, `key-${n}`, n)
    await sql.begin(async tx => {
      const promoted = await promote(tx as unknown as Sql, [skipping(`key-${n}`)], false, null)
      t.match(promoted, only({ phase: 'IN_FLIGHT' }))
      const [row] = await tx<[{ read: number }]>`
        select pg_stat_get_xact_tuples_returned('delivery_position_key'::regclass)::int as read`
      reads.push(row.read)
    })
  }
  t.comment(reads.join(' and '))
  t.ok((reads[0] ?? 0) >= 100, `${reads[0]} entries of the index`)
  t.ok((reads[0] ?? 0) <= 500, `${reads[0]} entries of the index`)
  t.ok((reads[1] ?? 0) <= 4_500, `${reads[1]} entries of the index`)
})

t.test('many keys with many of them share a step', async t => {
  const { sql } = await testDb(t)
  const keys = Array.from({ length: 10 }, (_, n) => `key-${n}`)
  for (const key of keys) await failedBehind(sql, key, 250)
  const step = async () => (await promote(sql, keys.map(skipping), false, null)).length
  t.equal(await step(), 0)
  t.equal(await passed(sql), 1_000)
  t.match(
    await sql`select count(*)::int as n from delivery where position < 0 group by ordering_key`,
    keys.map(() => ({ n: 100 }))
  )
  t.equal(await step(), 0)
  t.equal(await step(), 10, 'and then the last of each is sent')
  t.equal(await passed(sql), 2_500)
  t.equal((await sql`select from promotion`).length, 0)
})

async function otherPool(t: Test, url: string): Promise<Sql> {
  const other = openDb(url, { max: 2 })
  t.teardown(() => other.end())
  return other
}

t.test('one that is redelivered meanwhile has its turn before those behind it', async t => {
  const { sql, url } = await testDb(t)
  const other = await otherPool(t, url)
  await failedBehind(sql, 'k', 3)
  const [two] = await sql<[{ id: string }]>`select id from task where task_no = 'k:2'`
  let promoting: ReturnType<typeof promote> | undefined
  await sql.begin(async tx => {
    const move = {
      taskId: two.id,
      downstream: 'warehouse',
      attempt: 0,
      name: 'requeue',
      orderingKey: 'k',
      limit: 10
    } as const
    t.same(await applyMoves(tx as unknown as Sql, [{ move }]), ['late'])
    promoting = promote(other, [skipping('k')], false, null)
    await until(
      'it waits for the row',
      async () =>
        (
          await sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
        ).length === 1
    )
  })
  t.match(await promoting, only({ taskId: two.id, phase: 'IN_FLIGHT' }))
  t.same(
    [...(await sql`select position from delivery order by abs(position)`)],
    [{ position: -1 }, { position: 2 }, { position: 3 }, { position: 4 }],
    'the one behind it keeps its place'
  )
  t.match(await sql`select head from ordering`, [{ head: 2 }])
})

t.test('a key that PostgreSQL cannot finish in time holds up no other, and is named in the log', async t => {
  const story = await setup(t, { downstream: { onFailed: 'skip' } })
  const { sql, delivery, logged } = story
  await failedBehind(sql, 'slow', 1)
  await oneOfAnother(story, 'x')
  // As if its statement were cancelled, each time that it moves the head.
  await sql.unsafe(`
    create function too_long() returns trigger language plpgsql as $$
    begin raise exception 'canceling statement due to statement timeout' using errcode = '57014'; end $$;
    create trigger too_long before update on ordering for each row when (old.ordering_key = 'slow') execute function too_long()`)
  await sweep(story)
  t.same(sent(story), ['second'])
  t.match(await delivery('slow:last'), { phase: 'BLOCKED' })
  t.match(logged('ordering.failed'), [
    { level: 'warn', downstream: 'warehouse', orderingKey: 'slow', keys: 1, err: { code: '57014' } }
  ])
  t.equal(logged('ordering.failed').length, 1)
  await sql`drop trigger too_long on ordering`
  await sweep(story)
  t.match(await delivery('slow:last'), { status: 'HANDLED' })
})
