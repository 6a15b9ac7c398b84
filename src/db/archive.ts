// Moves tasks from the tables to the archive, and back.
import { plainArray } from './arrays.ts'
import { withPartitions } from './partitions.ts'
import { actor } from './audit.ts'
import { isTimeout } from './batch.ts'
import { isInfrastructure, type Sql } from './pool.ts'
import type { Actor } from '../domain/types.ts'
import { inHalves } from '../runtime/halves.ts'

/** A store for tasks that outlives the database. */
export interface Archive {
  /** Rows are removed only once this has resolved. */
  append(records: readonly ArchiveRecord[]): Promise<void>
  /** Called for a task that cannot be read, or is too large. It stays in the database, and holds up no other. */
  onLeft?(id: string, err: unknown): void
}

/** A task with its deliveries, attempts and receipts, as one line of JSON. */
export interface ArchiveRecord {
  id: string
  /** The day of its POST, in UTC: YYYY-MM-DD. */
  day: string
  line: string
}

/** The most tasks, and about the most bytes of their lines, in memory at a time. */
const [atOnce, mostBytes] = [100, 8 * 1_048_576]
/** A task beyond this is left: jsonb ends at 256 MB, and the line is in memory several times. */
const mostOfOne = 128 * 1_048_576

interface Read extends ArchiveRecord {
  seen: string
}

/** Archives these tasks. Returns the state of each when it was archived, in the order of `ids`. Undefined: it was gone, or is left. */
export async function archiveTasks(
  sql: Sql,
  ids: readonly string[],
  archive: Archive
): Promise<(string | undefined)[]> {
  const seen = new Map<string, string>()
  for (let from = 0; from < ids.length; from += atOnce)
    for (const row of await archivePart(sql, ids.slice(from, from + atOnce), archive))
      seen.set(row.id, row.seen)
  return ids.map(id => seen.get(id))
}

/** Archives these tasks at once, or in halves if they are too large or one of them cannot be read. */
async function archivePart(
  sql: Sql,
  ids: readonly string[],
  archive: Archive
): Promise<Pick<Read, 'id' | 'seen'>[]> {
  let bytes = 0
  let unwritable: unknown
  return await inHalves(ids, {
    async work(part) {
      bytes = 0
      bytes = await sizeOf(sql, part)
      if (bytes > (part.length === 1 ? mostOfOne : mostBytes))
        throw new Error(`its line would have about ${Math.ceil(bytes / 1_048_576)} MiB`)
      const rows = await readTasks(sql, part)
      await archive.append(rows).catch((err: unknown) => {
        unwritable = err
        throw err
      })
      return rows.map(({ id, seen }) => ({ id, seen }))
    },
    // No task is the cause of an outage, unless a large one takes too long, nor of a full disk.
    mayBeOfOne: err =>
      err !== unwritable && (!isInfrastructure(err) || (isTimeout(err) && bytes > mostBytes)),
    setAside: (id, err) => archive.onLeft?.(id, err)
  })
}

/** About the bytes of the lines of these tasks: as text, bytea has twice its bytes, and JSON within JSON at most. Reads no large value. */
async function sizeOf(sql: Sql, ids: readonly string[]): Promise<number> {
  const [row] = await sql<[{ bytes: number }]>`
    select coalesce(sum(1000 + 2 * octet_length(t.message_body) + coalesce(pg_column_size(t.extend), 0)
      + (select coalesce(sum(600 + 2 * coalesce(octet_length(a.answer), 0) + 2 * coalesce(octet_length(a.headers), 0)
          + 2 * coalesce(octet_length(a.target), 0)), 0)
        from attempt a where a.task_id = t.id)
      + (select coalesce(sum(300 + 2 * coalesce(octet_length(r.data), 0)), 0) from receipt r where r.task_id = t.id)
    ), 0)::float8 as bytes
    from task t where t.id = any(${plainArray(ids)}::uuid[])`
  return row.bytes
}

const readTasks = async (sql: Sql, ids: readonly string[]): Promise<Read[]> =>
  await sql<Read[]>`
  select t.id::text, to_char(t.created_at at time zone 'UTC', 'YYYY-MM-DD') as day,
    -- As the removal asks for it.
    concat_ws(' ', (select max(extract(epoch from d.updated_at)) from delivery d where d.task_id = t.id),
      (select count(*) from receipt r where r.task_id = t.id)) as seen,
    jsonb_build_object('task', to_jsonb(t), 'archivedAt', now(),
      'deliveries', (select coalesce(jsonb_agg(to_jsonb(d) order by d.downstream), '[]')
        from delivery d where d.task_id = t.id),
      'attempts', (select coalesce(jsonb_agg(to_jsonb(a) order by a.downstream, a.attempt), '[]')
        from attempt a where a.task_id = t.id),
      'receipts', (select coalesce(jsonb_agg(to_jsonb(r) order by r.id), '[]')
        from receipt r where r.task_id = t.id))::text as line
  from task t
  where t.id = any(${plainArray(ids)}::uuid[])
  order by t.id`

/** The content of a line of the archive: rows by the column names of the version that wrote them. */
export interface ArchivedTask {
  archivedAt: string
  task: { id: string; task_no: string; created_at: string; [column: string]: unknown }
  deliveries: { [column: string]: unknown }[]
  attempts: { [column: string]: unknown }[]
  receipts: { [column: string]: unknown }[]
}

/** Columns that are not restored: the place in an order has no use any more, and the old id of a receipt may be taken. */
const omitted: { [table: string]: string[] } = {
  delivery: ['ordering_key', 'position', 'owner'],
  receipt: ['id']
}

/**
 * Restores an archived task with its deliveries, attempts and receipts, by one statement. Its days of retention begin anew. False: its
 * number, its id or its unique business key is taken, and nothing was changed.
 */
export async function restoreTask(sql: Sql, line: string, who: Actor): Promise<boolean> {
  const archived = JSON.parse(line) as ArchivedTask
  const known = await sql<{ name: string; columns: string[] }[]>`
    select table_name as name, array_agg(column_name::text) as columns from information_schema.columns
    where table_schema = current_schema() group by table_name`
  // By name, and only columns that the table and the line both have: a column of a later version gets its default.
  const columns = (table: string, row: { [column: string]: unknown }) => {
    const there = known.find(({ name }) => name === table)?.columns ?? []
    const both = there.filter(name => Object.hasOwn(row, name) && !omitted[table]?.includes(name))
    // These names are from the catalog, not from the file.
    return sql.unsafe(both.map(name => `"${name}"`).join(', '))
  }
  const { task, deliveries, attempts, receipts } = archived
  const taskColumns = columns('task', task)
  const deliveryColumns = columns('delivery', deliveries[0] ?? { task_id: null })
  const attemptColumns = columns('attempt', attempts[0] ?? { task_id: null })
  const receiptColumns = columns('receipt', receipts[0] ?? { task_id: null })
  // Its removal may have left rows, which are dropped with their day.
  await sql`
    with task_rows as (delete from attempt where task_id = ${task.id}::uuid and not exists (select from task where id = ${task.id}::uuid))
    delete from receipt where task_id = ${task.id}::uuid and not exists (select from task where id = ${task.id}::uuid)`
  const restore = () => sql<[{ restored: number }]>`
    with given as (select ${line}::text::jsonb as archived), restored as (
      insert into task (${taskColumns})
      select ${taskColumns} from given, jsonb_populate_record(null::task, archived->'task')
      on conflict do nothing
      returning task_no
    ), deliveries as (
      insert into delivery (${deliveryColumns})
      select ${deliveryColumns} from given, jsonb_populate_recordset(null::delivery, archived->'deliveries')
      where exists (select from restored)
    ), attempts as (
      insert into attempt (${attemptColumns})
      select ${attemptColumns} from given, jsonb_populate_recordset(null::attempt, archived->'attempts')
      where exists (select from restored)
    ), receipts as (
      insert into receipt (${receiptColumns})
      select ${receiptColumns} from given, jsonb_populate_recordset(null::receipt, archived->'receipts')
      where exists (select from restored)
    ), noted as (
      insert into audit (who, key_id, what, target) select ${actor(sql, who)}, 'task.restored', task_no from restored
    )
    select count(*)::int as restored from restored`
  const [row] = await withPartitions(sql, () => [task.id], restore)
  return row.restored === 1
}
