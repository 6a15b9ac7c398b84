import type { Sql } from './pool.ts'
import type { delivery, Row, task } from './schema.ts'
import { statusWord } from './views.ts'
import type { Phase, Reason, Status, TaskState } from '../domain/types.ts'

/** A task's deliveries as an operator's act needs them. */
export interface TaskProgress {
  id: string
  state: TaskState
  messageCode: string
  retryTimes: number | null
  deliveries: {
    downstream: string
    status: Status
    phase: Phase | null
    attempt: number
    expired: boolean
    reason: Reason | null
    /** ms until its clock ends; 0 if it has, or has none. */
    dueMs: number
    /** Its task must not start yet. */
    early: boolean
    orderingKey: string | null
    position: number | null
  }[]
}

/** null: no such task. */
export async function readTaskProgress(sql: Sql, taskNo: string): Promise<TaskProgress | null> {
  const rows = await sql<
    (Pick<Row<typeof task>, 'id' | 'state' | 'message_code' | 'retry_times'> &
      Pick<Row<typeof delivery>, 'status' | 'phase' | 'attempt' | 'reason' | 'ordering_key' | 'position'> & {
        downstream: string | null
        expired: boolean
        due_ms: number
        early: boolean
      })[]
  >`
    select t.id, t.state, t.message_code, t.retry_times, d.downstream, d.status, d.phase, d.attempt, d.reason,
      d.ordering_key, d.position,
      coalesce(d.deliver_before <= now(), false) as expired, coalesce(t.deliver_start_time > now(), false) as early,
      coalesce(greatest(0, extract(epoch from d.next_action_at - now()) * 1000), 0)::float8 as due_ms
    from task t left join delivery d on d.task_id = t.id
    where t.task_no = ${taskNo}
    order by d.downstream`
  const [first] = rows
  return first
    ? {
        id: first.id,
        state: first.state,
        messageCode: first.message_code,
        retryTimes: first.retry_times,
        deliveries: rows.flatMap(({ downstream, status, due_ms: dueMs, ...row }) =>
          downstream === null
            ? []
            : [
                {
                  downstream,
                  status: statusWord(status),
                  phase: row.phase,
                  attempt: row.attempt,
                  expired: row.expired,
                  reason: row.reason,
                  dueMs,
                  early: row.early,
                  orderingKey: row.ordering_key,
                  position: row.position
                }
              ]
        )
      }
    : null
}
