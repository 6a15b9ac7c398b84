import { textArray } from './arrays.ts'
import type { Sql } from './pool.ts'
import type { prepared, Row } from './schema.ts'
import { taskView, type DeliveryShown, type TaskShown, type TaskView } from './views.ts'

/**
 * Tasks with their deliveries, without attempts and receipts, by taskNo; unknown ones are missing. For the answer to a
 * producer's repeated POST: by the hot pool, which no list delays. With synchronous standbys the read writes a message into the WAL, so it is
 * answered when a standby has all that it has seen: a task may stand here of whose commit the first answer was a 503, since its wait was cancelled.
 */
export async function readTasks(sql: Sql, taskNos: readonly string[]): Promise<Map<string, TaskView>> {
  // A half message has no deliveries: all columns of `d` are null.
  const rows = await sql<(TaskShown & DeliveryShown & { half: PreparedJson | null })[]>`
    select (
        select pg_logical_emit_message(true, 'ackbox', '') where current_setting('synchronous_standby_names') <> ''
      )::text as "walMessage", t.task_no as "taskNo", t.message_code as "messageCode", t.scene_type as "sceneType",
      t.deliver_start_time as "deliverStartTime", t.need_callback as "needCallback", t.retry_times as "retryTimes",
      t.ordering_key as "orderingKey", t.extend, t.created_at as "createdAt", t.created_by as "createdBy", t.biz_type as "bizType", t.biz_key as "bizKey",
      t.unique_biz as "uniqueBiz", d.downstream, d.status, d.phase,
      d.next_action_at as "nextActionAt", d.attempt, d.tries_left as "triesLeft", d.position, d.deliver_before as "deliverBefore",
      d.reason, d.delivered_at as "deliveredAt", d.handled_at as "handledAt", d.handled_by as "handledBy",
      d.updated_by as "updatedBy",
      t.state, case when t.state <> 'ACTIVE' then (select row_to_json(p) from prepared p where p.task_id = t.id) end as half
    from task t left join delivery d on d.task_id = t.id
    where t.task_no = any(${textArray(taskNos)}::text[])
    order by t.task_no, d.downstream`
  const parts = new Map<string, (typeof rows)[number][]>()
  for (const row of rows) parts.set(row.taskNo, [...(parts.get(row.taskNo) ?? []), row])
  return new Map([...parts].flatMap(([taskNo, of]) => (of[0] ? [[taskNo, taskOf(of[0], of)]] : [])))
}

export async function readBrief(sql: Sql, taskNo: string): Promise<TaskView | 'not_found'> {
  return (await readTasks(sql, [taskNo])).get(taskNo) ?? 'not_found'
}

/** A row of `prepared` as json: its times are texts. */
type PreparedJson = {
  [name in keyof Row<typeof prepared>]: Row<typeof prepared>[name] extends Date | null
    ? string | null
    : Row<typeof prepared>[name]
}

function taskOf(row: TaskShown & { half: PreparedJson | null }, parts: readonly DeliveryShown[]): TaskView {
  const { half } = row
  const time = (text: string | null) => (text === null ? null : new Date(text))
  const shown = half && {
    preparedAt: new Date(half.prepared_at ?? 0),
    checks: half.checks,
    nextActionAt: time(half.next_action_at),
    deliverBefore: time(half.deliver_before),
    lastAnswer: half.last_answer,
    lastReason: half.last_reason,
    lastCheckedAt: time(half.last_checked_at),
    endedAt: time(half.ended_at),
    endedBy: half.ended_by
  }
  return taskView({ ...row, prepared: shown }, half ? [] : parts)
}

/** The taskNos among these whose deliveries have all ended, and those that do not exist. A PREPARED task has not ended. */
export async function findEnded(sql: Sql, taskNos: readonly string[]): Promise<Set<string>> {
  const rows = await sql<{ task_no: string }[]>`
    select w.task_no
    from unnest(${textArray(taskNos)}::text[]) as w (task_no)
    where not exists (
      select from task t left join delivery d on d.task_id = t.id and d.status = 0
      where t.task_no = w.task_no and (d.task_id is not null or t.state = 'PREPARED')
    )`
  return new Set(rows.map(row => row.task_no))
}
