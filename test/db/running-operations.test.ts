import t from 'tap'
import { openDb } from '../../src/db/pool.ts'
import { recordTaken } from '../../src/db/running-operations.ts'
import { uuidv7 } from '../../src/domain/ids.ts'
import { capture, explain } from '../support/plan.ts'
import { testDb } from '../support/postgres.ts'

t.test('a turn reads the deliveries that it took, not all that the operation has taken before', async t => {
  const { url } = await testDb(t, { max: 1 })
  const sql = openDb(url, { max: 1 })
  t.teardown(() => sql.end())
  const id = uuidv7()
  await sql`
    insert into operation (id, filter, matched, created_by, owner, leased_until)
    values (${id}, '{}', 5000, 'ops-1', 'here', now() + interval '1 hour')`
  const [, ...rest] = await sql<{ task_id: string }[]>`
    insert into operation_delivery (operation_id, task_id, downstream, attempt, result)
    select ${id}, ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'warehouse', 1,
      case when n <= 4990 then 'redelivered' end
    from generate_series(1, 5000) n
    returning task_id`
  const taken = rest.slice(-10).map(row => ({ taskId: row.task_id, downstream: 'warehouse' }))
  for (const isAnalyzed of [false, true]) {
    if (isAnalyzed) await sql`analyze operation_delivery`
    for (const mode of ['force_generic_plan', 'force_custom_plan']) {
      await sql.unsafe(`set plan_cache_mode = ${mode}`)
      const statement = await capture(fake => recordTaken(fake, { id, owner: 'here' }, taken))
      await sql.unsafe(`prepare record as ${statement.text}`)
      const plan = await explain(sql, 'record', statement)
      await sql.unsafe('deallocate record')
      const read = plan
        .filter(one => one['Relation Name'] === 'operation_delivery' && one['Node Type'].includes('Scan'))
        .map(one => (one['Actual Rows'] + (one['Rows Removed by Filter'] ?? 0)) * one['Actual Loops'])
        .reduce((sum, rows) => sum + rows, 0)
      t.ok(read >= 20 && read <= 40, `${mode}: 10 are read and written, with ${read} looks`)
    }
  }
  await recordTaken(sql, { id, owner: 'here' }, taken)
  const [row] = await sql<[{ skipped: number }]>`select skipped from operation`
  t.equal(row.skipped, 10)
})
