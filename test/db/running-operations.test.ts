import t from 'tap'
import { openDb, type Sql } from '../../src/db/pool.ts'
import { claimOperations, findTaken, recordStopped, recordTaken } from '../../src/db/running-operations.ts'
import { uuidv7 } from '../../src/domain/ids.ts'
import { capture, explain } from '../support/plan.ts'
import { lockWaits, testDb } from '../support/postgres.ts'
import { until } from '../support/until.ts'

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
      const statement = await capture(fake => recordTaken(fake, { id, node: 'here' }, taken))
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
  await recordTaken(sql, { id, node: 'here' }, taken)
  const [row] = await sql<[{ skipped: number }]>`select skipped from operation`
  t.equal(row.skipped, 10)
})

t.test(
  'after an error only what has no result yet is read, not all that the operation has taken',
  async t => {
    const { url } = await testDb(t, { max: 1 })
    const sql = openDb(url, { max: 1 })
    t.teardown(() => sql.end())
    const id = await make(sql)
    await sql`
    update operation set state = 'STOPPED', ended_at = now(), owner = 'gone', leased_until = now() - interval '1 hour'`
    await sql`
    insert into operation_delivery (operation_id, task_id, downstream, attempt, result)
    select ${id}, ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'warehouse', 1,
      case when n <= 4990 then 'redelivered' end
    from generate_series(1, 5000) n`
    const statements: Record<string, (fake: Sql) => Promise<unknown>> = {
      findTaken: fake => findTaken(fake, id),
      recordStopped
    }
    for (const isAnalyzed of [false, true]) {
      if (isAnalyzed) await sql`analyze operation_delivery`
      for (const mode of ['force_generic_plan', 'force_custom_plan']) {
        await sql.unsafe(`set plan_cache_mode = ${mode}`)
        for (const [name, run] of Object.entries(statements)) {
          const statement = await capture(run)
          await sql.unsafe(`prepare ${name} as ${statement.text}`)
          const plan = await explain(sql, name, statement)
          await sql.unsafe(`deallocate ${name}`)
          const read = plan
            .filter(one => one['Relation Name'] === 'operation_delivery' && one['Node Type'].includes('Scan'))
            .map(one => (one['Actual Rows'] + (one['Rows Removed by Filter'] ?? 0)) * one['Actual Loops'])
          t.ok(read.length > 0 && Math.max(...read) <= 10, `${name}, ${mode}: ${read.join(', ')}`)
        }
      }
    }
  }
)

const make = async (sql: Sql): Promise<string> => {
  const id = uuidv7()
  await sql`insert into operation (id, filter, matched, created_by) values (${id}, '{}', 1, 'ops-1')`
  return id
}
const claimed = async (sql: Sql, node: string) => (await claimOperations(sql, node)).map(({ id }) => id)

t.test('who claims while another process does gets nothing, not even what came in between', async t => {
  const { sql } = await testDb(t)
  const first = await make(sql)
  let second = ''
  let other: Promise<string[]> | undefined
  await sql.begin(async transaction => {
    t.same(await claimed(transaction as unknown as Sql, 'one'), [first])
    second = await make(sql)
    other = claimed(sql, 'two')
    await until('it waits', async () => (await lockWaits(sql)) === 1)
  })
  t.same(await other, [])
  t.same((await claimed(sql, 'one')).toSorted(), [first, second])
  t.same(await claimed(sql, 'two'), [])
  await sql`update operation set leased_until = now() - interval '1 s'`
  t.same(
    (await claimed(sql, 'two')).toSorted(),
    [first, second],
    'once the lease is over another one has all'
  )
  t.same(await claimed(sql, 'one'), [])
})

t.test('also when the one that it waited for has ended', async t => {
  const { sql } = await testDb(t)
  const first = await make(sql)
  const second = await make(sql)
  t.same((await claimed(sql, 'one')).toSorted(), [first, second])
  let other: Promise<string[]> | undefined
  await sql.begin(async transaction => {
    await transaction`update operation set state = 'DONE', ended_at = now() where id = ${first}`
    other = claimed(sql, 'two')
    await until('it waits', async () => (await lockWaits(sql)) === 1)
  })
  t.same(await other, [])
  t.same(await claimed(sql, 'one'), [second])
  await sql`update operation set state = 'DONE', ended_at = now()`
  t.same(await claimed(sql, 'one'), [])
})
