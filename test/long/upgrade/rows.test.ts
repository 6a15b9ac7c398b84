import t from 'tap'
import { migrate, unknownMigrations } from '../../../src/db/migrate.ts'
import type { Sql } from '../../../src/db/pool.ts'
import { call, launch, settled, start } from '../../support/service.ts'
import { stage, taken } from '../../support/stage.ts'
import { everyState } from './every-state.ts'
import { nextMigrations, nextRelease } from './next.ts'

t.setTimeout(2_400_000)

const tables = ['alarm', 'api_key', 'attempt', 'audit', 'delivery', 'downstream', 'node', 'receipt', 'task']

/** Each row by the names its table has now: columns that come later are not looked at. */
async function columnsOf(sql: Sql): Promise<Map<string, string[]>> {
  const rows = await sql<{ table_name: string; names: string[] }[]>`
    select table_name, array_agg(column_name::text order by ordinal_position) as names
    from information_schema.columns where table_schema = 'public' group by 1`
  return new Map(rows.map(row => [row.table_name, row.names]))
}

async function rowsOf(sql: Sql, columns: Map<string, string[]>): Promise<Record<string, unknown>> {
  const all: Record<string, unknown> = {}
  for (const table of tables) {
    const names = columns.get(table) ?? []
    all[table] =
      await sql`select ${sql(names)} from ${sql(table)} order by ${sql(names.slice(0, 2))}::text`.catch(
        () => sql`select ${sql(names)} from ${sql(table)} order by 1`
      )
  }
  return all
}

t.test(
  'rows in every state are the same after the next migration, and the former version runs on it',
  async t => {
    const on = await stage(t)
    if (!on) return
    const { sql, databaseUrl } = on
    await everyState(sql)
    const columns = await columnsOf(sql)
    const before = await rowsOf(sql, columns)
    for (const table of tables.filter(name => name !== 'node'))
      t.ok((before[table] as unknown[]).length > 0, `there are rows of ${table}`)
    t.same(await migrate(databaseUrl, undefined, nextMigrations(t)), ['9999_next'])
    t.same(await rowsOf(sql, columns), before, 'not a value has changed')

    t.equal(await unknownMigrations(databaseUrl), 1)
    const service = await start(t, on.env)
    t.match(
      service.output(),
      /"newer":1,"msg":"schema.newer"/,
      'it says that the tables are newer than it is'
    )
    await taken(service.url, 'after')
    t.equal((await settled(service.url, 'after')).body?.['status'], 'HANDLED')
    t.equal((await call(`${service.url}/tasks/FAILED/redeliver`, {})).status, 200)
    t.equal((await settled(service.url, 'FAILED')).body?.['status'], 'HANDLED', 'what FAILED before goes on')
    t.equal((await call(`${service.url}/tasks/WAITING`, undefined, 'DELETE')).status, 200)
    t.equal((await call(`${service.url}/tasks/HANDLED`)).body?.['status'], 'HANDLED')
  }
)

t.test('the next version on tables that it has not migrated says in one line what to run', async t => {
  const on = await stage(t)
  if (!on) return
  const next = nextRelease(t, '9.9.9')
  const refused = launch(t, { ...on.env, PORT: '0', HANDLERS_DIR: next.handlersDir }, next.main)
  t.equal((await refused.exited).code, 1)
  t.match(refused.output().trim(), /^ackbox: The database lacks 9999_next: run `ackbox migrate`[^\n]*$/)
})
