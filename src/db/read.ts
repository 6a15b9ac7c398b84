// What people look at: tasks by their numbers, one of them whole.
import { texts } from './literal.ts'
import type { Sql } from './open.ts'
import {
  fullColumns,
  some,
  tasksOf,
  type AttemptView,
  type FullRow,
  type ReceiptView,
  type TaskView
} from './view.ts'

/** Tasks with their deliveries, without attempts and receipts, by taskNo; unknown ones are missing. */
export async function readTasks(sql: Sql, taskNos: readonly string[]): Promise<Map<string, TaskView>> {
  const rows = await sql<FullRow[]>`
    select ${fullColumns(sql)}
    from task t join delivery d on d.task_id = t.id
    where t.task_no = any(${texts(taskNos)}::text[])
    order by t.task_no, d.downstream`
  return new Map(tasksOf(rows).map(task => [task.taskNo, task]))
}

interface AttemptJson {
  attempt: number
  outcome: string
  reason: string | null
  status_code: number | null
  /** base64 */
  answer: string | null
  headers: string | null
  address: string | null
  warning: string | null
  ms: number
  node: string
  started_at: string
}

interface ReceiptJson {
  attempt: number
  result: string
  reason: string | null
  data: string | null
  applied: boolean
  late: boolean
  remote: string | null
  created_at: string
}

/**
 * One task whole: body text, deliveries, each with its attempts and receipts, all of one moment: by one statement, since of
 * several each sees a moment of its own, and a FAILED delivery could be shown without the attempt that failed it. Only the
 * body, which never changes and may be large, is asked for apart. null: unknown.
 */
export async function readTask(sql: Sql, taskNo: string): Promise<TaskView | null> {
  const [[head], rows] = await Promise.all([
    sql<{ message_body: string }[]>`select message_body from task where task_no = ${taskNo}`,
    sql<(FullRow & { attempts: AttemptJson[] | null; receipts: ReceiptJson[] | null })[]>`
      select ${fullColumns(sql)},
        (select json_agg(a order by a.attempt) from (
          select attempt, outcome, reason, status_code, encode(answer, 'base64') as answer, headers, address, warning, ms,
            node, started_at
          from attempt where task_id = d.task_id and downstream = d.downstream
        ) a) as attempts,
        (select json_agg(r order by r.id) from (
          select id, attempt, result, reason, data, applied, late, remote, created_at
          from receipt where task_id = d.task_id and downstream = d.downstream
        ) r) as receipts
      from task t join delivery d on d.task_id = t.id
      where t.task_no = ${taskNo}
      order by d.downstream`
  ])
  const [task] = tasksOf(rows)
  if (!head || !task) return null
  return {
    ...task,
    messageBody: head.message_body,
    deliveries: task.deliveries.map((delivery, index) => ({
      ...delivery,
      attempts: (rows[index]?.attempts ?? []).map(attemptView),
      receipts: (rows[index]?.receipts ?? []).map(receiptView)
    }))
  }
}

const attemptView = (row: AttemptJson): AttemptView => ({
  attempt: row.attempt,
  outcome: row.outcome,
  ...some('reason', row.reason),
  ...some('status', row.status_code),
  ...some('answer', row.answer && Buffer.from(row.answer, 'base64').toString('utf8')),
  ...some('headers', row.headers === null ? null : (JSON.parse(row.headers) as unknown)),
  ...some('address', row.address),
  ...some('warning', row.warning),
  ms: row.ms,
  node: row.node,
  startedAt: new Date(row.started_at).toISOString()
})

const receiptView = (row: ReceiptJson): ReceiptView => ({
  attempt: row.attempt,
  result: row.result,
  ...some('reason', row.reason),
  ...some('data', row.data === null ? null : (JSON.parse(row.data) as unknown)),
  applied: row.applied,
  late: row.late,
  ...some('remote', row.remote),
  createdAt: new Date(row.created_at).toISOString()
})
