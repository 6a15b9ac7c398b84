import type { Sql } from './pool.ts'
import { statusWord, type Phase, type Reason, type Status, type TaskState } from '../domain/types.ts'

/** A task's deliveries, with the facts that an operator's act needs. */
export interface TaskProgress {
  id: string
  state: TaskState
  messageCode: string
  retryTimes: number | null
  deliveries: DeliveryProgress[]
}

interface DeliveryProgress {
  downstream: string
  status: Status
  phase: Phase | null
  attempt: number
  expired: boolean
  reason: Reason | null
  /** ms until its clock runs out; 0 if it has run out, or without a clock. */
  dueMs: number
  /** ms until the start time of its task; 0 without one, or if it has passed. */
  startMs: number
  orderingKey: string | null
  position: number | null
  round: number
  updatedBy: string | null
}

/** ms until the start time of a task `t`; 0 without one, or if it has passed. */
export const startMs = (sql: Sql) =>
  sql`coalesce(greatest(0, extract(epoch from t.deliver_start_time - now())::float8 * 1000), 0)`

/** null: no such task. */
export async function readTaskProgress(sql: Sql, taskNo: string): Promise<TaskProgress | null> {
  const [task] = await sql<
    (Omit<TaskProgress, 'deliveries'> & {
      deliveries: (Omit<DeliveryProgress, 'status'> & { status: number })[]
    })[]
  >`
    select t.id, t.state, t.message_code as "messageCode", t.retry_times as "retryTimes", (
      select coalesce(json_agg(json_build_object(
        'downstream', d.downstream, 'status', d.status, 'phase', d.phase, 'attempt', d.attempt,
        'expired', coalesce(d.deliver_before <= now(), false), 'reason', d.reason,
        'dueMs', coalesce(greatest(0, extract(epoch from d.next_action_at - now()) * 1000), 0),
        'startMs', ${startMs(sql)}, 'orderingKey', d.ordering_key, 'position', d.position,
        'round', coalesce(d.round, 1), 'updatedBy', d.updated_by
      ) order by d.downstream), '[]')
      from delivery d where d.task_id = t.id
    ) as deliveries
    from task t
    where t.task_no = ${taskNo}`
  if (!task) return null
  return { ...task, deliveries: task.deliveries.map(one => ({ ...one, status: statusWord(one.status) })) }
}
