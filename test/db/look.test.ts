// Long tables: 45,000 tasks of an hour. Few of them match a search.
import t from 'tap'
import { countDownstreams, listDeliveries, listTasks } from '../../src/db/lists.ts'
import { defined } from '../../src/domain/optional-members.ts'
import { only } from '../support/only.ts'
import { cannotCountReads, testDb } from '../support/postgres.ts'

const window = { messageCodes: null, from: new Date(0), limit: 50 }

t.test('lists of a long table look at 20,000 rows at most, and say where to go on', async t => {
  const { sql, reads } = await testDb(t)
  await sql.unsafe(`
    insert into task (id, task_no, message_code, scene_type, message_body, content_hash, state, created_by)
    select (lpad(to_hex(1700000000000 + n * 80), 12, '0') || '7000800000000000' || lpad(to_hex(n % 16), 4, '0'))::uuid,
      'task-' || n, 'order.paid', case when n = 1 then 'rare' else '' end, '{}', 'x', 'ACTIVE', 'shop'
    from generate_series(1, 45000) n;
    insert into delivery (task_id, downstream, status, phase, next_action_at, attempt, tries_left, needs_receipt, reason, handled_at, handled_by)
    select id, 'warehouse',
      case when n = 1 then 0 when n = 2 then 2 else 1 end, case when n = 1 then 'WAITING' end,
      case when n = 1 then now() + interval '1 hour' end, 1, 9, false, case when n = 2 then 'SEND_EXHAUSTED' end,
      case when n > 2 then now() end, case when n > 2 then 'send' end
    from (select id, row_number() over (order by id) as n from task) t;
    insert into attempt (task_id, downstream, attempt, outcome, reason, status_code, ms, node, started_at)
    select id, 'warehouse', 1, 'failed', 'http_503: no stock', 503, 3, 'n', now() from task where task_no = 'task-2'`)

  // An index holds the answer, so it is found however old it is.
  const sending = await listTasks(reads, { ...window, status: 'SENDING' })
  t.match(sending, {
    tasks: only({ taskNo: 'task-1', deliveries: [{ updatedAt: String }] }),
    partial: undefined
  })
  const failed = await listTasks(reads, { ...window, status: 'FAILED', lastReason: 'no STOCK' })
  t.match(failed, {
    tasks: only({
      taskNo: 'task-2',
      deliveries: [{ lastReason: 'http_503: no stock', lastStatus: 503, lastAttemptAt: String }]
    }),
    partial: undefined
  })
  t.match(
    await listTasks(reads, { ...window, status: 'FAILED', lastReason: 'no_stock' }),
    { tasks: { length: 0 } },
    'no pattern'
  )
  t.match(await listDeliveries(reads, { ...window, status: 'SENDING' }), {
    deliveries: only({ taskNo: 'task-1' }),
    partial: undefined
  })
  t.match(await listDeliveries(reads, { ...window, reason: 'SEND_EXHAUSTED' }), {
    deliveries: only({ taskNo: 'task-2', lastReason: 'http_503: no stock', lastStatus: 503 }),
    partial: undefined
  })

  // No index holds the scene type: the third look finds the task.
  let cursor: string | undefined
  const pages: { found: string[]; partial: boolean }[] = []
  do {
    const page = await listTasks(reads, {
      ...window,
      sceneType: 'rare',
      ...(cursor === undefined ? {} : { cursor })
    })
    if (page === 'bad_cursor') throw new Error(page)
    pages.push({ found: page.tasks.map(one => one.taskNo), partial: page.partial ?? false })
    cursor = page.nextCursor
  } while (cursor !== undefined)
  t.same(pages, [
    { found: [], partial: true },
    { found: [], partial: true },
    { found: ['task-1'], partial: false }
  ])

  t.match(await listDeliveries(reads, { ...window, status: 'HANDLED', limit: 200 }), {
    deliveries: { length: 200 },
    nextCursor: String,
    partial: undefined
  })
  t.match(await listTasks(reads, { ...window, taskNoPrefix: 'task-4500' }), {
    tasks: only({ taskNo: 'task-45000' }),
    partial: true
  })
  t.match(await listTasks(reads, { ...window, createdBy: 'shop', limit: 1 }), {
    tasks: only({}),
    nextCursor: String,
    partial: undefined
  })
})

t.test(
  'a list of FAILED passes over none of a downstream with a longer look, and finds a single downstream at once',
  async t => {
    const { sql, reads } = await testDb(t)
    // From the newest: 20,000 of a for another reason, 10 of a, then 60 of b.
    await sql.unsafe(`
    insert into task (id, task_no, message_code, scene_type, message_body, content_hash, state, created_by)
    select (lpad(to_hex(1700000000000 - n * 80), 12, '0') || '70008000000000000000')::uuid, 'task-' || n, 'order.paid', '', '{}', 'x', 'ACTIVE', 'shop'
    from generate_series(1, 20070) n;
    insert into delivery (task_id, downstream, status, attempt, tries_left, needs_receipt, reason)
    select id, case when n > 20010 then 'b' else 'a' end, 2, 1, 0, false, 'SEND_EXHAUSTED'
    from (select id, row_number() over (order by id desc) as n from task) t;
    insert into attempt (task_id, downstream, attempt, outcome, reason, status_code, ms, node, started_at)
    select d.task_id, d.downstream, 1, 'failed', case when n > 20000 then 'no stock' else 'busy' end, 503, 3, 'n', now()
    from (select *, row_number() over (order by task_id desc) as n from delivery) d`)
    const found: string[] = []
    let cursor: string | undefined
    do {
      const page = await listTasks(reads, {
        ...window,
        status: 'FAILED',
        lastReason: 'no stock',
        ...defined({ cursor })
      })
      if (page === 'bad_cursor') throw new Error(page)
      found.push(...page.tasks.map(one => one.taskNo))
      cursor = page.nextCursor
    } while (cursor !== undefined)
    t.same(
      found,
      Array.from({ length: 70 }, (_, n) => `task-${20_001 + n}`)
    )
    for (const filter of [{ status: 'FAILED' }, { reason: 'SEND_EXHAUSTED' }] as const)
      t.match(await listDeliveries(reads, { ...window, ...filter, downstream: 'b', limit: 1 }), {
        deliveries: only({ taskNo: 'task-20011' }),
        partial: undefined
      })
  }
)

t.test('counts beyond 10,000 are not counted; what is in flight is seen behind any backlog', async t => {
  const { sql, reads } = await testDb(t)
  await sql.unsafe(`
    insert into delivery (task_id, downstream, status, phase, next_action_at, attempt, tries_left, needs_receipt, reason)
    select gen_random_uuid(), 'warehouse', s, p, c, 1, 9, false, r
    from (values (30000, 0, 'WAITING', now() - interval '1 hour', null), (7, 0, 'IN_FLIGHT', now() + interval '10 s', null),
      (12000, 2, null, null, 'REFUSED'), (5, 0, 'BLOCKED', '9999-01-01', null)) as v (n, s, p, c, r)
      cross join lateral generate_series(1, n)`)
  t.match(
    await countDownstreams(reads, ['warehouse']),
    only({ name: 'warehouse', waiting: 20_000, inFlight: 7, blocked: 5, failed: 10_001, partial: true })
  )
})

const skip = await cannotCountReads()
t.test('a list of SENDING tasks reads the index of what is due, and not the table', { skip }, async t => {
  const { sql, reads } = await testDb(t)
  await sql.unsafe(`
    insert into task (id, task_no, message_code, scene_type, message_body, content_hash, state, created_by)
    select gen_random_uuid(), 'task-' || n, 'order.paid', '', '{}', 'x', 'ACTIVE', 'shop' from generate_series(1, 3000) n;
    insert into delivery (task_id, downstream, status, attempt, tries_left, needs_receipt, handled_at, handled_by)
    select id, 'warehouse', 1, 1, 9, false, now(), 'send' from task;
    analyze`)
  const scans = async () => {
    await sql`select pg_stat_force_next_flush()`
    const [row] = await sql<{ due: number; key: number; seq: number }[]>`
      select (select idx_tup_read from pg_stat_user_indexes where indexrelname = 'delivery_due_idx')::int as due,
        (select idx_tup_read from pg_stat_user_indexes where indexrelname = 'task_pkey')::int as key,
        (select seq_tup_read from pg_stat_user_tables where relname = 'delivery')::int as seq`
    return row
  }
  await reads.db.execute('select pg_stat_force_next_flush()')
  const before = await scans()
  await listTasks(reads, { ...window, status: 'SENDING' })
  for (let i = 0; i < 4; i++) await reads.db.execute('select pg_stat_force_next_flush()')
  const after = await scans()
  t.ok((after?.key ?? 0) - (before?.key ?? 0) < 10, 'no walk through the tasks')
  t.ok((after?.seq ?? 0) - (before?.seq ?? 0) < 10, 'nor through the deliveries')
})
