import { plain } from './literal.ts'
import type { Sql } from './open.ts'
import type { Task } from '../task/task.ts'

/** A delivery that this process owns while `leaseMs` lasts, with its task. */
export interface Loaded {
  task: Task
  downstream: string
  attempt: number
  triesLeft: number
  lost: number
  needsReceipt: boolean
  /** ms of lease left, by the database's clock, at the time of the look. */
  leaseMs: number
  /** ms until `deliverBefore`; null without one. */
  beforeMs: number | null
}

/** The deliveries of one hint that are still its own: same attempt, still IN_FLIGHT. The others are somebody else's by now. */
export async function loadHinted(
  sql: Sql,
  downstream: string,
  hinted: readonly (readonly [taskId: string, attempt: number])[]
): Promise<Loaded[]> {
  // `offset 0` keeps each look-up one look-up: as plain joins a young table, whose size nobody knows, was read whole, or the
  // list once for each of its rows.
  const rows = await sql<LoadedRow[]>`
    select d.attempt, d.tries_left, d.lost, d.needs_receipt,
      extract(epoch from d.next_action_at - now())::float8 * 1000 as lease_ms,
      extract(epoch from d.deliver_before - now())::float8 * 1000 as before_ms,
      t.id, t.task_no, t.message_code, t.scene_type, t.message_body, t.deliver_start_time, t.need_callback,
      t.retry_times, t.extend, t.traceparent, t.created_at, t.created_by
    from unnest(
      ${plain(hinted.map(([taskId]) => taskId))}::uuid[], ${plain(hinted.map(([, attempt]) => attempt))}::int[]
    ) as h (task_id, attempt)
    cross join lateral (
      select * from delivery
      where task_id = h.task_id and downstream = ${downstream} and attempt = h.attempt and phase = 'IN_FLIGHT' offset 0
    ) d
    cross join lateral (select * from task where id = h.task_id offset 0) t`
  return rows.map(row => ({
    task: taskOf(row),
    downstream,
    attempt: row.attempt,
    triesLeft: row.tries_left,
    lost: row.lost,
    needsReceipt: row.needs_receipt,
    leaseMs: row.lease_ms,
    beforeMs: row.before_ms
  }))
}

interface LoadedRow extends TaskRow {
  attempt: number
  tries_left: number
  lost: number
  needs_receipt: boolean
  lease_ms: number
  before_ms: number | null
}

/** A row of `task`, as far as handlers and hooks see it. */
export interface TaskRow {
  id: string
  task_no: string
  message_code: string
  scene_type: string
  message_body: string
  deliver_start_time: Date | null
  need_callback: boolean | null
  retry_times: number | null
  extend: unknown
  traceparent: string | null
  created_at: Date
  created_by: string
}

export const taskOf = (row: TaskRow): Task => ({
  id: row.id,
  taskNo: row.task_no,
  messageCode: row.message_code,
  sceneType: row.scene_type,
  messageBody: row.message_body,
  deliverStartTime: row.deliver_start_time,
  needCallback: row.need_callback,
  retryTimes: row.retry_times,
  extend: row.extend,
  traceparent: row.traceparent,
  createdAt: row.created_at,
  createdBy: row.created_by
})
