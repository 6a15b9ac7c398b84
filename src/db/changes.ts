// Reads all changes at once, for all watchers: by primary keys and small tables, never by a scan of deliveries.
import { plainArray, textArray } from './arrays.ts'
import type { Sql } from './pool.ts'

/**
 * The newest ids at the last look, as a list in descending order: ids are given out before the commit, so a row may appear
 * after one with a higher id.
 */
export interface SeenChanges {
  failureIds: number[]
  auditIds: number[]
}

const mostFailures = 1_000
const mostActs = 100

interface Changes extends SeenChanges {
  failures: { messageCode: string; downstream: string }[]
  /** The audit has new rows. */
  audit: boolean
  /** The watched tasks. `state` is a text that changes whenever a delivery changes. */
  tasks: Map<string, { messageCode: string; state: string }>
}

/** `seen` null: this is the first look, and nothing counts as a change. */
export async function readChanges(
  sql: Sql,
  seen: SeenChanges | null,
  taskNos: readonly string[]
): Promise<Changes> {
  const [{ failures, tasks, ...now }] = await sql<
    [
      SeenChanges & {
        failures: { messageCode: string; downstream: string }[] | null
        audit: boolean
        tasks: { taskNo: string; messageCode: string; state: string }[] | null
      }
    ]
  >`
    with newest_failures as (select id, message_code, downstream from failure order by id desc limit ${mostFailures}),
    newest_audit as (select id from audit order by id desc limit ${mostActs})
    select (select coalesce(json_agg(id), '[]') from newest_failures) as "failureIds",
      (select coalesce(json_agg(id), '[]') from newest_audit) as "auditIds",
      (select json_agg(f) from (
        select distinct message_code as "messageCode", downstream from newest_failures
        where ${isNew(sql, seen?.failureIds, mostFailures)}
      ) f) as failures,
      exists (select from newest_audit where ${isNew(sql, seen?.auditIds, mostActs)}) as audit,
      (select json_agg(w) from (
        select t.task_no as "taskNo", t.message_code as "messageCode", concat(t.state, ' ', (
          select string_agg(concat(d.updated_at, d.status, d.phase), ' ' order by d.downstream) from delivery d where d.task_id = t.id
        )) as state
        from task t where t.task_no = any(${textArray(taskNos)}::text[])
      ) w) as tasks`
  return {
    ...now,
    failures: failures ?? [],
    tasks: new Map(tasks?.map(({ taskNo, ...task }) => [taskNo, task]))
  }
}

/** Rows below a full list are old: they come back into it when newer ones are deleted. */
function isNew(sql: Sql, seenIds: readonly number[] | undefined, most: number) {
  if (!seenIds) return sql`false`
  const ids = plainArray(seenIds)
  const below = seenIds[most - 1] ?? 0
  return sql`(id > ${below}::bigint and not exists (select from unnest(${ids}::bigint[]) old (old_id) where old_id = id))`
}
