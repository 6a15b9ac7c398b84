// While a snapshot is open, vacuum cannot remove the entries of ended deliveries. Looks for due ones must not read them all each time.
import t, { type Test } from 'tap'
import { readCluster } from '../../src/db/cluster.ts'
import { claimDue, findOrphans, nextDue } from '../../src/db/deliveries.ts'
import { findOverdue, cursorAt } from '../../src/db/overdue.ts'
import { openDb, type Sql } from '../../src/db/pool.ts'
import { lowWater, type From } from '../../src/delivery/low-water.ts'
import { only } from '../support/only.ts'
import { capture, explain } from '../support/plan.ts'
import { testDb } from '../support/postgres.ts'
import { standing } from '../support/rows.ts'
import type { DeliveryState } from '../support/model.ts'

const names = ['points', 'warehouse']
const dead = 100_000

/** A database with an open snapshot, and `dead` deliveries that ended since, half of them before their lease ended. */
async function held(t: Test): Promise<Sql> {
  const { url } = await testDb(t, { max: 1 })
  const [sql, holder] = [1, 2].map(() => openDb(url, { max: 1, statementTimeoutMs: 60_000 })) as [Sql, Sql]
  t.teardown(() => Promise.all([sql.end(), holder.end({ timeout: 1 })]))
  await sql`alter table delivery set (autovacuum_enabled = off)`
  await holder.unsafe('begin isolation level repeatable read; select from task')
  await sql`
    insert into delivery (task_id, downstream, status, phase, next_action_at, attempt, tries_left, needs_receipt)
    select gen_random_uuid(), case when n % 2 = 0 then 'points' else 'warehouse' end, 0, 'IN_FLIGHT',
      now() + interval '20 s' - n * interval '1 ms' * ${40_000 / dead}::float8, 1, 9, false
    from generate_series(1, ${dead}::int) n`
  await sql`update delivery set status = 1, phase = null, next_action_at = null, handled_at = now(), handled_by = 'send'`
  await sql`vacuum delivery`
  return sql
}

/** The pages that each look reads. */
async function pages(sql: Sql, from: From): Promise<Record<string, number>> {
  const looks: Record<string, (sql: Sql) => Promise<unknown>> = {
    claimDue: sql =>
      claimDue(
        sql,
        names.map(downstream => ({ downstream, room: 100, leaseMs: 20_000, fromMs: from(downstream) })),
        null
      ),
    nextDue: sql =>
      nextDue(
        sql,
        names.map(name => ({ name, fromMs: from(name) })),
        1
      ),
    findOverdue: sql =>
      findOverdue(
        sql,
        names.map(name => cursorAt(name, from(name))),
        { clocks: 1_000, limit: 1_000 }
      ),
    findOrphans: sql => findOrphans(sql, names, 1_000),
    readCluster: sql => readCluster(sql, names, '', from)
  }
  const read: Record<string, number> = {}
  for (const [name, look] of Object.entries(looks)) {
    const statement = await capture(look)
    await sql.unsafe(`prepare look as ${statement.text}`)
    const [top] = await explain(sql, 'look', statement)
    await sql.unsafe('deallocate look')
    read[name] = (top?.['Shared Hit Blocks'] ?? 0) + (top?.['Shared Read Blocks'] ?? 0)
  }
  return read
}

t.test('beside 100,000 dead entries every look reads a few pages, and still sees what is due', async t => {
  const sql = await held(t)
  const full = await pages(sql, () => undefined)
  for (const name of ['claimDue', 'nextDue', 'findOverdue', 'readCluster'])
    t.ok((full[name] ?? 0) > 2_000, `${name} reads ${full[name]} pages when it looks at everything`)

  const at = (state: DeliveryState['state']): DeliveryState => ({
    state,
    attempt: 1,
    triesLeft: 3,
    lost: 0,
    roundFrom: 1
  })
  const due = await standing(sql, at('WAITING'))
  const marks = lowWater(names)
  const sweep = () =>
    marks.look(from =>
      nextDue(
        sql,
        names.map(name => ({ name, fromMs: from(name) })),
        1
      )
    )
  const { oldest } = await sweep()
  t.equal(oldest.size, 1)
  const bounded = await pages(sql, marks.from)
  for (const [name, read] of Object.entries(bounded)) t.ok(read < 500, `${name} reads ${read} pages`)
  t.match(await readCluster(sql, names, '', marks.from), { oldest })
  const claimed = await claimDue(
    sql,
    names.map(downstream => ({ downstream, room: 100, leaseMs: 20_000, fromMs: marks.from(downstream) })),
    null
  )
  t.match(claimed, only({ taskId: due }))
})
