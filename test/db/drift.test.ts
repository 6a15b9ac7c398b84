import { readdirSync, readFileSync } from 'node:fs'
import { generateDrizzleJson } from 'drizzle-kit/api'
import { is } from 'drizzle-orm'
import { getTableConfig, PgTable } from 'drizzle-orm/pg-core'
import t from 'tap'
import * as schema from '../../src/db/schema.ts'
import { testDb } from '../support/postgres.ts'

// tap runs the tests in the folder of package.json
const meta = 'src/db/migrations/meta'

// Neither side has fillfactor and triggers, which are written by hand. JSON drops the undefined values.
const tablesOf = (json: string) => ({ ...(JSON.parse(json) as { tables: object }), id: '', prevId: '' })

t.test(
  'the last snapshot is what the schema says: if not, run `npx drizzle-kit generate --name <what>`',
  async t => {
    const snapshots = readdirSync(meta).filter(name => name.endsWith('_snapshot.json'))
    const last = tablesOf(readFileSync(`${meta}/${snapshots.toSorted().at(-1)}`, 'utf8'))
    t.ok(Object.keys(last.tables).includes('public.delivery'))
    t.same(tablesOf(JSON.stringify(generateDrizzleJson(schema))), last)
  }
)

t.test('a database with all migrations has the tables, columns, keys and indexes of the schema', async t => {
  const { sql } = await testDb(t)
  const tables = Object.values<unknown>(schema)
    .filter(one => is(one, PgTable))
    .map(one => getTableConfig(one))
  t.ok(tables.length > 20)
  const columns = await sql<{ line: string }[]>`
    select concat_ws(' ', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
      case when a.attnotnull then 'not null' end, case when a.atthasdef then 'default' end) as line
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
      and a.attnum > 0 and not a.attisdropped`
  const wanted = tables.flatMap(({ name, columns, primaryKeys }) =>
    columns.map(one => {
      const isKey = one.primary || primaryKeys.some(key => key.columns.includes(one))
      const type = one.getSQLType().replace('bigserial', 'bigint').replace('serial', 'integer')
      const hasDefault = one.hasDefault || type !== one.getSQLType()
      return [name, one.name, type, one.notNull || isKey ? 'not null' : [], hasDefault ? 'default' : []]
        .flat()
        .join(' ')
    })
  )
  t.same(columns.map(row => row.line).toSorted(), wanted.toSorted())

  const indexes = await sql<{ line: string }[]>`
    select concat_ws(' ', c.relname, case when i.indisprimary then 'key' when i.indisunique then 'unique' else 'index' end,
      case when i.indisprimary then
        (select string_agg(pg_get_indexdef(i.indexrelid, n, true), ',' order by n) from generate_series(1, i.indnkeyatts) n)
      else x.relname end) as line
    from pg_index i join pg_class c on c.oid = i.indrelid join pg_class x on x.oid = i.indexrelid
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition`
  const wantedIndexes = tables.flatMap(({ name, columns, primaryKeys, indexes }) => [
    ...columns.filter(one => one.primary).map(one => `${name} key ${one.name}`),
    ...columns.filter(one => one.isUnique).map(one => `${name} unique ${one.uniqueName}`),
    ...primaryKeys.map(key => `${name} key ${key.columns.map(one => one.name).join()}`),
    ...indexes.map(({ config }) => `${name} ${config.unique ? 'unique' : 'index'} ${config.name}`)
  ])
  t.same(indexes.map(row => row.line).toSorted(), wantedIndexes.toSorted())
})
