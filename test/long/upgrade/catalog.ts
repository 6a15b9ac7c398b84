import type postgres from 'postgres'

/** All that a migration makes, as PostgreSQL itself describes it, and the book that says what was applied. */
export async function catalog(sql: postgres.Sql<Record<string, never>> | postgres.Sql): Promise<string[]> {
  const rows = await (sql as postgres.Sql)<{ line: string }[]>`
    select 'column ' || concat_ws(' ', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
        pg_get_expr(d.adbin, d.adrelid), c.reloptions) as line
      from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
      left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
      where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
    union all select 'partition ' || c.relname || ' ' || pg_get_expr(c.relpartbound, c.oid) from pg_class c where c.relispartition
      and c.relkind = 'r'
    union all select 'constraint ' || conname || ' ' || conrelid::regclass || ' ' || pg_get_constraintdef(oid)
      from pg_constraint where connamespace = 'public'::regnamespace
    union all select 'index ' || indexdef from pg_indexes where schemaname = 'public'
    union all select 'sequence ' || sequencename from pg_sequences where schemaname = 'public'
    union all select 'function ' || pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace
    union all select 'trigger ' || pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
    union all select 'applied ' || created_at || ' ' || hash from drizzle.__ackbox_migrations
    order by 1`
  return rows.map(row => row.line)
}
