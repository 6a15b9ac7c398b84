// The plan of each hot statement. PostgreSQL does not know the size of a young table. It once read the whole index of due
// deliveries for each statement: thirteen times slower, with nothing in the log.

import { randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import { claimDue, nextDue, loadDeliveries } from '../../src/db/deliveries.ts'
import { findOverdue, findUnlocked, cursorAt } from '../../src/db/overdue.ts'
import { applyMoves, type ReceiptRow } from '../../src/db/transitions.ts'
import { closeDependencies, findDependents } from '../../src/db/dependents.ts'
import { readCluster } from '../../src/db/cluster.ts'
import { listPartitions } from '../../src/db/partitions.ts'
import { openDb, type Sql } from '../../src/db/pool.ts'
import { findReceiving, completeReceipts, readBodies } from '../../src/db/receipts.ts'
import { completeSends } from '../../src/db/successful-sends.ts'
import { readOutbox } from '../../src/db/outbox.ts'
import { insertFromOutbox, insertTasks } from '../../src/db/tasks.ts'
import { lowestUuid, uuidv7 } from '../../src/domain/ids.ts'
import { newDelivery, newTask } from '../support/new-task.ts'
import { capture, explain, type Node, type Statement } from '../support/plan.ts'
import { patientMs, postgresVersion, testDb } from '../support/postgres.ts'
import { tried } from '../support/rows.ts'

interface Known {
  inFlight: string[]
  /** Own deliveries for each statement: a rolled back statement leaves dead entries, which the next one would read. */
  sent: string[]
  taken: string[]
  received: string[]
  taskNos: string[]
}

const names = ['points', 'warehouse']
const batch = 100

const went = {
  handled: { name: 'handled', handledBy: 'send' },
  sent: { name: 'sent', afterMs: 60_000 }
} as const
const receiptOf = (taskId: string): ReceiptRow => ({
  taskId,
  downstream: 'warehouse',
  attempt: 1,
  result: 'HANDLED',
  reason: null,
  data: null,
  remote: ''
})

const newTasks = () =>
  Array.from({ length: batch }, () =>
    newTask({ deliveries: names.map(downstream => newDelivery({ downstream })) })
  )

const hot: { [name: string]: (sql: Sql, known: Known) => Promise<unknown> } = {
  insertTasks: sql => insertTasks(sql, newTasks()),
  insertFromOutbox: sql =>
    insertFromOutbox(
      sql,
      newTasks(),
      Array.from({ length: batch }, (_, n) => n * 4 + 1)
    ),
  readOutbox: sql => readOutbox(sql, { after: 0, without: { shards: [3, 4], codes: ['order.gone'] } }),
  applyMoves: (sql, { inFlight }) =>
    applyMoves(
      sql,
      inFlight.map((taskId, n) => ({
        move:
          n % 3 === 2
            ? { taskId, downstream: 'warehouse', attempt: 1, name: 'fail', reason: 'SEND_EXHAUSTED' }
            : n % 3
              ? { taskId, downstream: 'warehouse', attempt: 1, name: 'retry', afterMs: 10_000 }
              : { taskId, downstream: 'warehouse', attempt: 1, name: 'handled', handledBy: 'send' },
        attempt: tried(),
        receipt: receiptOf(taskId)
      }))
    ),
  missReceipts: (sql, { received }) =>
    applyMoves(
      sql,
      received.map((taskId, n) => ({
        move:
          n % 2
            ? { taskId, downstream: 'warehouse', attempt: 1, name: 'fail', reason: 'RECEIPT_TIMEOUT' }
            : { taskId, downstream: 'warehouse', attempt: 1, name: 'retry', afterMs: 10_000 },
        noReceipt: 'no_receipt: none within 60 s'
      }))
    ),
  recordSends: (sql, { sent }) =>
    completeSends(
      sql,
      sent.map((taskId, n) => ({
        move: { taskId, downstream: 'warehouse', attempt: 1, ...(n % 2 ? went.handled : went.sent) },
        attempt: tried()
      }))
    ),
  recordReceipts: (sql, { received }) =>
    completeReceipts(
      sql,
      received.map(taskId => ({
        move: { taskId, downstream: 'warehouse', attempt: 1, name: 'receive', ifStill: 'SENDING' },
        receipt: receiptOf(taskId)
      }))
    ),
  claimDue: sql =>
    claimDue(
      sql,
      names.map(downstream => ({ downstream, room: batch, leaseMs: 20_000 })),
      null
    ),
  findUnlocked: (sql, { inFlight }) =>
    findUnlocked(
      sql,
      inFlight.map(taskId => ({ taskId, downstream: 'warehouse' }))
    ),
  findOverdue: sql =>
    findOverdue(
      sql,
      names.map(name => cursorAt(name, Date.now() - 1_000)),
      { clocks: 1_000, limit: 1_000 }
    ),
  nextDue: sql =>
    nextDue(
      sql,
      names.map(name => ({ name, fromMs: Date.now() - 1_000 })),
      1_000
    ),
  loadHinted: (sql, { inFlight }) =>
    loadDeliveries(
      sql,
      'warehouse',
      inFlight.map(id => ({ taskId: id, attempt: 1 })),
      null
    ),
  takeOver: (sql, { taken }) =>
    loadDeliveries(
      sql,
      'warehouse',
      taken.map(id => ({ taskId: id, attempt: 1 })),
      7
    ),
  findReceiving: (sql, { taskNos }) =>
    findReceiving(
      sql,
      taskNos.map(taskNo => ({ taskNo, downstream: 'warehouse', issuedMs: Date.now() }))
    ),
  readBodies: (sql, { received }) => readBodies(sql, received),
  look: sql => readCluster(sql, names),
  findDependents: (sql, { inFlight }) =>
    findDependents(sql, { ids: inFlight, ended: inFlight }, lowestUuid, 500),
  closeDependencies: (sql, { inFlight, sent }) =>
    closeDependencies(
      sql,
      inFlight,
      sent.map(id => [id, id])
    )
}

/** The indexes that each statement may use, and the index entries of deliveries that it may read (a bitmap scan counts twice). */
const allowed: { [name: string]: { indexes: string[]; reads: number } } = {
  insertTasks: { indexes: [], reads: 0 },
  insertFromOutbox: { indexes: ['outbox_pkey'], reads: 0 },
  readOutbox: { indexes: ['outbox_pkey'], reads: 0 },
  applyMoves: {
    indexes: ['delivery_pkey', 'task_pkey', 'alarm_pkey', 'receipt_pkey'],
    reads: 4 * batch
  },
  missReceipts: { indexes: ['delivery_pkey', 'task_pkey', 'alarm_pkey', 'attempt_pkey'], reads: 4 * batch },
  recordReceipts: { indexes: ['delivery_pkey', 'alarm_pkey'], reads: 3 * batch },
  recordSends: { indexes: ['delivery_pkey', 'alarm_pkey'], reads: 3 * batch },
  claimDue: { indexes: ['delivery_due_idx', 'delivery_pkey'], reads: 4 * batch + 10 },
  findOverdue: { indexes: ['delivery_due_idx', 'task_pkey'], reads: batch },
  findUnlocked: { indexes: ['delivery_pkey'], reads: batch },
  nextDue: { indexes: ['delivery_due_idx'], reads: 2 * names.length },
  loadHinted: { indexes: ['delivery_pkey', 'task_pkey'], reads: 2 * batch },
  takeOver: { indexes: ['delivery_pkey', 'task_pkey'], reads: 2 * batch },
  // On empty tables PostgreSQL 14 reads the deliveries first.
  findReceiving: {
    indexes: ['task_task_no_key', 'delivery_pkey', ...((await postgresVersion()) < 15 ? ['task_pkey'] : [])],
    reads: 2 * batch
  },
  readBodies: { indexes: ['task_pkey'], reads: 0 },
  look: {
    indexes: ['delivery_due_idx', 'dependency_open_idx', 'ordering_held_idx', 'promotion_key_idx'],
    reads: names.length
  },
  findDependents: {
    indexes: [
      'dependency_after_idx',
      'dependency_open_idx',
      'dependency_pkey',
      'task_pkey',
      'delivery_pkey',
      'alarm_pkey',
      'alarm_open_idx',
      'failure_delivery_idx'
    ],
    reads: 8 * batch
  },
  closeDependencies: {
    indexes: ['dependency_open_idx', 'dependency_after_idx', 'dependency_pkey', 'delivery_pkey'],
    // It reads which deliveries have an orderingKey.
    reads: 4 * batch
  }
}

function judge(t: Test, name: string, plan: Node[]): void {
  const { indexes, reads } = allowed[name]!
  // These tables have few rows, so an index would not help.
  const small = new Set(['node', 'downstream'])
  const scans = plan.filter(
    one => one['Relation Name'] && one['Node Type'].includes('Scan') && !small.has(one['Relation Name'])
  )
  for (const scan of scans) {
    t.not(scan['Node Type'], 'Seq Scan', `${name} reads all of ${scan['Relation Name']}`)
  }
  const used = plan
    // The index name without its partition.
    .flatMap(one => one['Index Name']?.replace(/^(attempt|receipt)_(first|\d{8})_/, '$1_') ?? [])
    .filter(index => !/^(node|downstream)_pkey$/.test(index))
  const wrong = used.filter(index => !indexes.includes(index))
  t.same(wrong, [], `${name} uses ${[...new Set(used)].join(', ')}`)
  const read = plan
    .filter(one => one['Index Name']?.startsWith('delivery_') && one['Node Type'] !== 'Bitmap Heap Scan')
    .map(one => {
      const seen =
        one['Actual Rows'] +
        (one['Rows Removed by Filter'] ?? 0) +
        (one['Rows Removed by Index Recheck'] ?? 0)
      return seen * one['Actual Loops']
    })
    .reduce((sum, rows) => sum + rows, 0)
  t.ok(read <= reads, `${name} reads ${read} entries, ${reads} are enough`)
  // A list that is read once for each row of another list costs the product of both.
  const again = plan.filter(
    one => ['CTE Scan', 'Function Scan'].includes(one['Node Type']) && one['Actual Loops'] > 1
  )
  t.same(again, [], `${name} goes through its lists once`)
}

/** SENDING deliveries: 500 IN_FLIGHT, 500 AWAITING_RECEIPT and a WAITING backlog. No lease or receipt is overdue. */
async function fill(sql: Sql, sending: number, ended: number): Promise<void> {
  await sql`set statement_timeout = '60s'`
  await sql`
    insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_by)
    select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'no:' || n, 'order.paid', '', '{"a":1}', 'hash', 'test'
    from generate_series(1, ${sending + ended}::int) n`
  await sql`
    insert into outbox (task_no, message_code, message_body, ordering_key, created_by)
    select 'no:' || n, 'order.paid', '{}', case when n % 2 = 0 then 'key ' || n end, 'sql:test'
    from generate_series(1, least(${sending}::int, 13000)) n`
  await sql`
    insert into delivery (
      task_id, downstream, status, phase, next_action_at, attempt, tries_left, needs_receipt, reason, handled_at, handled_by
    )
    select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'warehouse',
      case when n <= ${sending} then 0 when n % 50 = 0 then 2 else 1 end,
      case when n > ${sending} then null when n <= 500 then 'IN_FLIGHT' when n <= 1000 then 'AWAITING_RECEIPT' else 'WAITING' end,
      case when n > ${sending} then null when n <= 1000 then now() + interval '1 hour'
        else now() - interval '1 hour' + n * interval '10 ms' end,
      1, 9, false, case when n > ${sending} and n % 50 = 0 then 'SEND_EXHAUSTED' end,
      case when n > ${sending} then now() end, case when n > ${sending} then 'send' end
    from generate_series(1, ${sending + ended}::int) n`
  await sql`
    insert into attempt (task_id, downstream, attempt, outcome, ms, node, started_at)
    select task_id, downstream, attempt, 'delivered', 5, 'n', now() from delivery where phase is distinct from 'WAITING'`
  // Each of the first 1,000 tasks waits for the next one. No real producer does this.
  await sql`
    insert into dependency (task_id, after_id)
    select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, ('00000000-0000-7000-8000-' || lpad(to_hex(n + 1), 12, '0'))::uuid
    from generate_series(1, 1000) n`
}

const idOf = (n: number): string => `00000000-0000-7000-8000-${n.toString(16).padStart(12, '0')}`
const known: Known = {
  inFlight: Array.from({ length: batch }, (_, n) => idOf(n * 4 + 1)),
  sent: Array.from({ length: batch }, (_, n) => idOf(n * 4 + 2)),
  taken: Array.from({ length: batch }, (_, n) => idOf(n * 4 + 3)),
  received: Array.from({ length: batch }, (_, n) => idOf(n + 600)),
  taskNos: Array.from({ length: batch }, (_, n) => `no:${n * 4 + 1}`)
}

async function tables(t: Test): Promise<Sql> {
  const { url } = await testDb(t, { max: 1 })
  // One connection, opened as the service opens it: PostgreSQL keeps plans per connection.
  const sql = openDb(url, { max: 1, statementTimeoutMs: patientMs })
  t.teardown(() => sql.end())
  const partitions = (await listPartitions(sql)).map(({ name }) => name)
  for (const table of ['task', 'delivery', 'alarm', 'outbox', 'dependency', ...partitions]) {
    await sql.unsafe(`alter table ${table} set (autovacuum_enabled = off)`)
  }
  return sql
}

async function judgeAll(t: Test, sql: Sql, at: Known): Promise<void> {
  for (const mode of ['force_generic_plan', 'force_custom_plan']) {
    await sql.unsafe(`set plan_cache_mode = ${mode}`)
    for (const [name, run] of Object.entries(hot)) {
      const statement = await capture(fake => run(fake, at))
      await sql.unsafe(`prepare ${name} as ${statement.text}`)
      await t.test(`${name}, ${mode}`, async t => judge(t, name, await explain(sql, name, statement)))
      await sql.unsafe(`deallocate ${name}`)
    }
  }
}

t.test('on empty tables every hot statement goes by its index', async t => {
  await judgeAll(t, await tables(t), {
    inFlight: Array.from({ length: batch }, () => uuidv7()),
    sent: Array.from({ length: batch }, () => uuidv7()),
    taken: Array.from({ length: batch }, () => uuidv7()),
    received: Array.from({ length: batch }, () => uuidv7()),
    taskNos: Array.from({ length: batch }, () => randomUUID())
  })
})

t.test('with 13,000 SENDING that nobody ever analyzed, no hot statement reads the backlog', async t => {
  const sql = await tables(t)
  await fill(sql, 13_000, 0)
  await judgeAll(t, sql, known)
})

t.test('a plan that was made on the empty tables is still good when 13,000 have come', async t => {
  const sql = await tables(t)
  await sql.unsafe('set plan_cache_mode = force_generic_plan')
  const statements = new Map<string, Statement>()
  for (const [name, run] of Object.entries(hot)) {
    const statement = await capture(fake => run(fake, known))
    statements.set(name, statement)
    await sql.unsafe(`prepare ${name} as ${statement.text}`)
    await explain(sql, name, statement)
  }
  await fill(sql, 13_000, 0)
  for (const [name, statement] of statements) judge(t, name, await explain(sql, name, statement))
})

t.test('with 300,000 rows and a backlog of 60,000, analyzed, no hot statement reads the backlog', async t => {
  const sql = await tables(t)
  await fill(sql, 60_000, 240_000)
  await sql.unsafe('analyze')
  await judgeAll(t, sql, known)
})

t.test('of 100,000 that are all due, analyzed, a look reads no more than it may take', async t => {
  const sql = await tables(t)
  await fill(sql, 100_000, 0)
  await sql.unsafe('analyze')
  const room = 1_000
  const looks: { [name: string]: (sql: Sql) => Promise<unknown> } = {
    claimDue: sql => claimDue(sql, [{ downstream: 'warehouse', room, leaseMs: 20_000 }], null),
    findOverdue: sql => findOverdue(sql, [cursorAt('warehouse', undefined)], { clocks: room, limit: room })
  }
  for (const [name, look] of Object.entries(looks)) {
    // As many as it returns are overdue, and none can be claimed.
    if (name === 'findOverdue')
      await sql`
        update delivery set phase = 'IN_FLIGHT'
        where next_action_at <= (select min(next_action_at) + interval '20 s' from delivery)`
    for (const mode of ['force_generic_plan', 'force_custom_plan']) {
      await sql.unsafe(`set plan_cache_mode = ${mode}`)
      const statement = await capture(look)
      await sql.unsafe(`prepare look as ${statement.text}`)
      const plan = await explain(sql, 'look', statement)
      await sql.unsafe('deallocate look')
      const read = plan
        .filter(one => one['Index Name']?.startsWith('delivery_') || one['Relation Name'] === 'delivery')
        .map(one => (one['Actual Rows'] + (one['Rows Removed by Filter'] ?? 0)) * one['Actual Loops'])
      t.ok(Math.max(...read) <= 2 * room, `${name}, ${mode}, reads ${read.join(', ')}`)
    }
  }
})
