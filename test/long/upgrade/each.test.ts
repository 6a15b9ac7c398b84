import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t, { type Test } from 'tap'
import { migrate, pendingMigrations } from '../../../src/db/migrate.ts'
import { openDb, type Sql } from '../../../src/db/pool.ts'
import { emptyDb } from '../../support/postgres.ts'
import { folder, call, settled, start } from '../../support/service.ts'
import { stage } from '../../support/stage.ts'
import { catalog } from './catalog.ts'
import { everyState } from './every-state.ts'
import { project } from './next.ts'

t.setTimeout(2_400_000)

interface Journal {
  entries: { tag: string }[]
}
const source = path.join(project, 'src/db/migrations')
const journal = JSON.parse(readFileSync(path.join(source, 'meta/_journal.json'), 'utf8')) as Journal

/** Our migrations up to this one: what a release of then had. */
function upTo(t: Test, last: number): string {
  const into = path.join(folder(t), 'migrations')
  cpSync(source, into, { recursive: true })
  const entries = journal.entries.slice(0, last + 1)
  writeFileSync(path.join(into, 'meta/_journal.json'), JSON.stringify({ ...journal, entries }))
  return into
}

async function tablesOf(sql: Sql): Promise<Map<string, string[]>> {
  const rows = await sql<{ name: string; columns: string[] }[]>`
    select table_name as name, array_agg(column_name::text order by ordinal_position) as columns
    from information_schema.columns join information_schema.tables using (table_schema, table_name)
    where table_schema = 'public' and table_type = 'BASE TABLE'
      -- What is in a partition is in its table.
      and not exists (select from pg_inherits where inhrelid = table_name::regclass)
    group by 1 order by 1`
  return new Map(rows.map(row => [row.name, row.columns]))
}

/** All rows by the columns their tables had then, as text. */
async function rowsOf(sql: Sql, tables: Map<string, string[]>): Promise<Record<string, string[]>> {
  const all: Record<string, string[]> = {}
  for (const [name, columns] of tables) {
    const rows = await sql<{ row: string }[]>`
      select r::text as row from (select ${sql(columns)} from ${sql(name)}) r order by 1`
    all[name] = rows.map(one => one.row)
  }
  return all
}

/** A row that is due for each table that has none: any value of its column's type, and of a check that lists words the first. */
async function fill(sql: Sql, tables: Map<string, string[]>): Promise<void> {
  const any: Record<string, string> = {
    uuid: 'gen_random_uuid()',
    text: `'any'`,
    bytea: `'\\x00ff'`,
    boolean: 'true',
    jsonb: `'{"n": 1}'`,
    interval: `'1 s'`,
    'timestamp with time zone': 'now()',
    'text[]': `'{any}'`,
    'integer[]': `'{1}'`
  }
  for (const name of tables.keys()) {
    const [found] = await sql<{ n: number }[]>`select count(*) as n from ${sql(name)}`
    if (found?.n !== 0) continue
    const columns = await sql<{ name: string; type: string; word: string | null }[]>`
      select a.attname as name, format_type(a.atttypid, null) as type, (
        select substring(pg_get_constraintdef(c.oid) from '''(\w+)''') from pg_constraint c
        where c.conrelid = a.attrelid and c.contype = 'c' and c.conkey = array[a.attnum] limit 1
      ) as word
      from pg_attribute a
      where a.attrelid = ${name}::regclass and a.attnum > 0 and not a.attisdropped
        and (a.attname = 'next_action_at' or (a.attnotnull and not a.atthasdef))`
    const values = columns.map(({ type, word }) => (word === null ? (any[type] ?? '1') : `'${word}'`))
    await sql.unsafe(
      `insert into "${name}" (${columns.map(one => `"${one.name}"`).join()}) values (${values.join()})`
    )
  }
}

t.test(
  'the tables of every migration so far, full of rows, become those of today with the same rows',
  async t => {
    const fresh = await emptyDb(t)
    await migrate(fresh)
    const freshSql = openDb(fresh, { max: 1 })
    const today = await catalog(freshSql as never)
    await freshSql.end()
    for (const [index, { tag }] of journal.entries.entries()) {
      const url = await emptyDb(t)
      await migrate(url, undefined, upTo(t, index))
      const sql = openDb(url, { max: 1 })
      await everyState(sql)
      const tables = await tablesOf(sql)
      await fill(sql, tables)
      const before = await rowsOf(sql, tables)
      for (const [name, rows] of Object.entries(before))
        t.ok(rows.length > 0, `${tag}: there are rows of ${name}`)
      const names = journal.entries.slice(index + 1).map(entry => entry.tag)
      t.same(await migrate(url), names, `${tag} lacks ${names.length}`)
      t.same(await pendingMigrations(url), [])
      t.same(await rowsOf(sql, tables), before, `${tag}: not a value has changed`)
      t.same(await catalog(sql as never), today, `${tag}: the tables are those of today`)
      await sql.end()
    }
  }
)

t.test('this version goes on with what the first one left', async t => {
  const on = await stage(t)
  if (!on) return
  const url = await emptyDb(t)
  await migrate(url, undefined, upTo(t, 0))
  const sql = openDb(url, { max: 1 })
  await everyState(sql)
  await sql.end()
  await migrate(url)
  const service = await start(t, { ...on.env, DATABASE_URL: url })
  t.equal((await call(`${service.url}/tasks/FAILED/redeliver`, {})).status, 200)
  t.equal((await settled(service.url, 'FAILED')).body?.['status'], 'HANDLED')
  t.equal((await call(`${service.url}/tasks/HANDLED`)).body?.['status'], 'HANDLED')
  t.equal((await call(`${service.url}/tasks/WAITING`, undefined, 'DELETE')).status, 200)
})
