import type { Sql } from './pool.ts'
import type { Row, task } from './schema.ts'
import type { Task } from '../domain/types.ts'

/** A row of `task`, as far as handlers and hooks see it. */
export type TaskRow = Omit<
  Row<typeof task>,
  'seq' | 'content_hash' | 'content_normal' | 'state' | 'biz_type' | 'biz_key' | 'unique_biz'
>

const columns: Record<keyof TaskRow, true> = {
  id: true,
  task_no: true,
  message_code: true,
  scene_type: true,
  message_body: true,
  deliver_start_time: true,
  need_callback: true,
  retry_times: true,
  ordering_key: true,
  extend: true,
  traceparent: true,
  created_at: true,
  created_by: true
}
const names = Object.keys(columns).map(name => `t.${name}`)
const listed = names.join(', ')
const listedWithoutBody = names
  .map(name => (name === 't.message_body' ? "'' as message_body" : name))
  .join(', ')

/** The columns of a TaskRow. `t` is the task. */
export const taskColumns = (sql: Sql) => sql.unsafe(listed)
/** The same, with an empty body. */
export const bodilessTaskColumns = (sql: Sql) => sql.unsafe(listedWithoutBody)

export const taskOf = (row: TaskRow): Task => ({
  id: row.id,
  taskNo: row.task_no,
  messageCode: row.message_code,
  sceneType: row.scene_type,
  messageBody: row.message_body,
  deliverStartTime: row.deliver_start_time,
  needCallback: row.need_callback,
  retryTimes: row.retry_times,
  orderingKey: row.ordering_key,
  extend: row.extend,
  traceparent: row.traceparent,
  createdAt: row.created_at,
  createdBy: row.created_by
})
