// Rows as the API shows them: words for numbers, RFC 3339 in UTC with milliseconds, nothing where there is nothing.
import type { Sql } from './pool.ts'
import { statusNumber, type HandledBy, type Phase, type Reason, type Status } from '../domain/types.ts'
import { textArray } from './arrays.ts'

const words = new Map<number, Status>(
  Object.entries(statusNumber).map(([word, number]) => [number, word as Status])
)
export const statusWord = (number: number): Status => words.get(number) ?? 'DELETED'

/** The visible status of a task: SENDING while any delivery is, else FAILED, else HANDLED, else DELETED. */
export function taskStatus(deliveries: readonly { status: Status }[]): Status {
  for (const status of ['SENDING', 'FAILED', 'HANDLED'] as const) {
    if (deliveries.some(delivery => delivery.status === status)) return status
  }
  return 'DELETED'
}

export interface DeliveryView {
  downstream: string
  status: Status
  phase?: Phase
  reason?: Reason
  attempt: number
  triesLeft: number
  nextActionAt?: string
  deliveredAt?: string
  handledAt?: string
  handledBy?: HandledBy
  attempts?: AttemptView[]
  receipts?: ReceiptView[]
}

export interface AttemptView {
  attempt: number
  outcome: string
  reason?: string
  status?: number
  answer?: string
  headers?: unknown
  address?: string
  warning?: string
  ms: number
  node: string
  startedAt: string
}

export interface ReceiptView {
  attempt: number
  result: string
  reason?: string
  /** As posted, parsed. */
  data?: unknown
  applied: boolean
  late: boolean
  remote?: string
  createdAt: string
}

export interface TaskView {
  taskNo: string
  messageCode: string
  sceneType: string
  status: Status
  createdAt: string
  deliverStartTime?: string
  deliverBefore?: string
  needCallback?: boolean
  retryTimes?: number
  extend?: unknown
  createdBy?: string
  messageBody?: string
  deliveries: DeliveryView[]
}

export interface DeliveryRow {
  downstream: string
  status: number
  phase: Phase | null
  next_action_at: Date | null
  attempt: number
  tries_left: number
  deliver_before: Date | null
  reason: Reason | null
  delivered_at: Date | null
  handled_at: Date | null
  handled_by: HandledBy | null
}

export const deliveryView = (row: DeliveryRow): DeliveryView => ({
  downstream: row.downstream,
  status: statusWord(row.status),
  ...present('phase', row.phase),
  ...present('reason', row.reason),
  attempt: row.attempt,
  triesLeft: row.tries_left,
  ...present('nextActionAt', iso(row.next_action_at)),
  ...present('deliveredAt', iso(row.delivered_at)),
  ...present('handledAt', iso(row.handled_at)),
  ...present('handledBy', row.handled_by)
})

export interface TaskHeadRow {
  task_no: string
  message_code: string
  scene_type: string
  deliver_start_time: Date | null
  need_callback: boolean | null
  retry_times: number | null
  extend: unknown
  created_at: Date
  created_by: string
}

const taskView = (task: TaskHeadRow, rows: readonly DeliveryRow[]): TaskView => {
  const deliveries = rows.map(deliveryView)
  return {
    taskNo: task.task_no,
    messageCode: task.message_code,
    sceneType: task.scene_type,
    status: taskStatus(deliveries),
    createdAt: task.created_at.toISOString(),
    ...present('deliverStartTime', iso(task.deliver_start_time)),
    ...present('deliverBefore', iso(rows[0]?.deliver_before ?? null)),
    ...present('needCallback', task.need_callback),
    ...present('retryTimes', task.retry_times),
    ...present('extend', task.extend),
    createdBy: task.created_by,
    deliveries
  }
}

/** A task beside one of its deliveries. */
export type FullRow = TaskHeadRow & DeliveryRow & { id: string }

/** The columns of a FullRow, of a task `t` and a delivery `d`. */
export const fullColumns = (sql: Sql) => sql`
  t.id, t.task_no, t.message_code, t.scene_type, t.deliver_start_time, t.need_callback, t.retry_times, t.extend,
  t.created_at, t.created_by, d.downstream, d.status, d.phase, d.next_action_at, d.attempt, d.tries_left,
  d.deliver_before, d.reason, d.delivered_at, d.handled_at, d.handled_by`

/** Of rows in the order of their tasks. */
export function tasksOf(rows: readonly FullRow[]): TaskView[] {
  const groups: FullRow[][] = []
  for (const row of rows) {
    const current = groups.at(-1)
    if (current?.[0]?.id === row.id) current.push(row)
    else groups.push([row])
  }
  return groups.flatMap(group => (group[0] ? [taskView(group[0], group)] : []))
}

export const iso = (at: Date | null): string | null => at && at.toISOString()

/** The member where there is a value, no member where there is none. */
export const present = <Name extends string, Value>(
  name: Name,
  value: Value | null | undefined
): { [name in Name]?: Value } =>
  value === null || value === undefined ? {} : ({ [name]: value } as { [name in Name]?: Value })

/** Tasks with their deliveries, without attempts and receipts, by taskNo; unknown ones are missing. */
export async function readTasks(sql: Sql, taskNos: readonly string[]): Promise<Map<string, TaskView>> {
  const rows = await sql<FullRow[]>`
    select ${fullColumns(sql)}
    from task t join delivery d on d.task_id = t.id
    where t.task_no = any(${textArray(taskNos)}::text[])
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
  ...present('reason', row.reason),
  ...present('status', row.status_code),
  ...present('answer', row.answer && Buffer.from(row.answer, 'base64').toString('utf8')),
  ...present('headers', row.headers === null ? null : (JSON.parse(row.headers) as unknown)),
  ...present('address', row.address),
  ...present('warning', row.warning),
  ms: row.ms,
  node: row.node,
  startedAt: new Date(row.started_at).toISOString()
})

const receiptView = (row: ReceiptJson): ReceiptView => ({
  attempt: row.attempt,
  result: row.result,
  ...present('reason', row.reason),
  ...present('data', row.data === null ? null : (JSON.parse(row.data) as unknown)),
  applied: row.applied,
  late: row.late,
  ...present('remote', row.remote),
  createdAt: new Date(row.created_at).toISOString()
})
