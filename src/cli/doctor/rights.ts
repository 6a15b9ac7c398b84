import { getTableName } from '../../db/drizzle.ts'
import type { Sql } from '../../db/pool.ts'
import * as schema from '../../db/schema.ts'

const all = ['select', 'insert', 'update', 'delete']
/** Tables for which fewer rights are enough. */
const fewer: Record<string, string[]> = {
  audit: ['select', 'insert'],
  api_key: ['select', 'insert', 'update']
}

/** Existing tables for which this user lacks a right that Ackbox needs, by name. */
export async function tablesWithoutRights(sql: Sql): Promise<string[]> {
  const needed = Object.values(schema)
    .map(getTableName)
    .flatMap(name => (fewer[name] ?? all).map(right => ({ name, right })))
  const lacking = await sql<{ name: string }[]>`
    select distinct name from jsonb_to_recordset(${sql.json(needed)}) as needed (name text, "right" text)
    where to_regclass(name) is not null and not has_table_privilege(name, "right")
    order by name`
  return lacking.map(({ name }) => name)
}
