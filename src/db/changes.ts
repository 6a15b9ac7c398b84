// Reads all changes at once, for all watchers: by primary keys and small tables, never by a scan of deliveries.
import { textArray } from './arrays.ts'
import type { Sql } from './pool.ts'

/** The newest ids at the last look. */
export interface SeenChanges {
  failureId: number
  auditId: number
}

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
        tasks: { taskNo: string; messageCode: string; state: string }[] | null
      }
    ]
  >`
    select coalesce((select max(id) from failure), 0)::float8 as "failureId",
      coalesce((select max(id) from audit), 0)::float8 as "auditId",
      (select json_agg(f) from (
        select distinct message_code as "messageCode", downstream from (
          select message_code, downstream from failure where id > ${seen?.failureId ?? null}::bigint order by id desc limit 1000
        ) newest
      ) f) as failures,
      (select json_agg(w) from (
        select t.task_no as "taskNo", t.message_code as "messageCode", concat(t.state, ' ', (
          select string_agg(concat(d.updated_at, d.status, d.phase), ' ' order by d.downstream) from delivery d where d.task_id = t.id
        )) as state
        from task t where t.task_no = any(${textArray(taskNos)}::text[])
      ) w) as tasks`
  return {
    ...now,
    failures: failures ?? [],
    audit: seen !== null && now.auditId > seen.auditId,
    tasks: new Map(tasks?.map(({ taskNo, ...task }) => [taskNo, task]))
  }
}
