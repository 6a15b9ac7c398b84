// What people look at: tasks by their numbers, one of them whole.
import { texts } from './literal.ts'
import type { Sql } from './open.ts'
import { some, tasksOf, type AttemptView, type FullRow, type ReceiptView, type TaskView } from './view.ts'

/** Tasks with their deliveries, without attempts and receipts, by taskNo; unknown ones are missing. */
export async function readTasks(sql: Sql, taskNos: readonly string[]): Promise<Map<string, TaskView>> {
  const rows = await sql<FullRow[]>`
    select t.id, t.task_no, t.message_code, t.scene_type, t.deliver_start_time, t.need_callback, t.retry_times,
      t.extend, t.created_at, t.created_by, d.downstream, d.status, d.phase, d.next_action_at, d.attempt,
      d.tries_left, d.deliver_before, d.reason, d.delivered_at, d.handled_at, d.handled_by
    from task t join delivery d on d.task_id = t.id
    where t.task_no = any(${texts(taskNos)}::text[])
    order by t.task_no, d.downstream`
  return new Map(tasksOf(rows).map(task => [task.taskNo, task]))
}

/** One task whole: body text, deliveries, each with its attempts and receipts. null: unknown. */
export async function readTask(sql: Sql, taskNo: string): Promise<TaskView | null> {
  const [head] = await sql<{ id: string; message_body: string }[]>`
    select id, message_body from task where task_no = ${taskNo}`
  if (!head) return null
  const [tasks, attempts, receipts] = await Promise.all([
    readTasks(sql, [taskNo]),
    readAttempts(sql, head.id),
    readReceipts(sql, head.id)
  ])
  const task = tasks.get(taskNo)
  if (!task) return null
  return {
    ...task,
    messageBody: head.message_body,
    deliveries: task.deliveries.map(delivery => ({
      ...delivery,
      attempts: attempts.get(delivery.downstream) ?? [],
      receipts: receipts.get(delivery.downstream) ?? []
    }))
  }
}

async function readAttempts(sql: Sql, taskId: string): Promise<Map<string, AttemptView[]>> {
  const rows = await sql<
    {
      downstream: string
      attempt: number
      outcome: string
      reason: string | null
      status_code: number | null
      answer: Uint8Array | null
      headers: string | null
      address: string | null
      warning: string | null
      ms: number
      node: string
      started_at: Date
    }[]
  >`
    select downstream, attempt, outcome, reason, status_code, answer, headers, address, warning, ms, node, started_at
    from attempt where task_id = ${taskId} order by downstream, attempt`
  return byDownstream(rows, row => ({
    attempt: row.attempt,
    outcome: row.outcome,
    ...some('reason', row.reason),
    ...some('status', row.status_code),
    ...some('answer', row.answer && Buffer.from(row.answer).toString('utf8')),
    ...some('headers', row.headers === null ? null : (JSON.parse(row.headers) as unknown)),
    ...some('address', row.address),
    ...some('warning', row.warning),
    ms: row.ms,
    node: row.node,
    startedAt: row.started_at.toISOString()
  }))
}

async function readReceipts(sql: Sql, taskId: string): Promise<Map<string, ReceiptView[]>> {
  const rows = await sql<
    {
      downstream: string
      attempt: number
      result: string
      reason: string | null
      data: string | null
      applied: boolean
      late: boolean
      remote: string | null
      created_at: Date
    }[]
  >`
    select downstream, attempt, result, reason, data, applied, late, remote, created_at
    from receipt where task_id = ${taskId} order by id`
  return byDownstream(rows, row => ({
    attempt: row.attempt,
    result: row.result,
    ...some('reason', row.reason),
    ...some('data', row.data === null ? null : (JSON.parse(row.data) as unknown)),
    applied: row.applied,
    late: row.late,
    ...some('remote', row.remote),
    createdAt: row.created_at.toISOString()
  }))
}

function byDownstream<Row extends { downstream: string }, View>(
  rows: readonly Row[],
  view: (row: Row) => View
): Map<string, View[]> {
  const map = new Map<string, View[]>()
  for (const row of rows) map.set(row.downstream, [...(map.get(row.downstream) ?? []), view(row)])
  return map
}
