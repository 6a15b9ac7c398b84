// Rows as the API shows them: words for numbers, RFC 3339 in UTC with milliseconds, nothing where there is nothing.
import type { Sql } from './open.ts'
import { statusNumber, type HandledBy, type Phase, type Reason, type Status } from '../task/task.ts'

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
  ...some('phase', row.phase),
  ...some('reason', row.reason),
  attempt: row.attempt,
  triesLeft: row.tries_left,
  ...some('nextActionAt', iso(row.next_action_at)),
  ...some('deliveredAt', iso(row.delivered_at)),
  ...some('handledAt', iso(row.handled_at)),
  ...some('handledBy', row.handled_by)
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
    ...some('deliverStartTime', iso(task.deliver_start_time)),
    ...some('deliverBefore', iso(rows[0]?.deliver_before ?? null)),
    ...some('needCallback', task.need_callback),
    ...some('retryTimes', task.retry_times),
    ...some('extend', task.extend),
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
export const some = <Name extends string, Value>(
  name: Name,
  value: Value | null | undefined
): { [name in Name]?: Value } =>
  value === null || value === undefined ? {} : ({ [name]: value } as { [name in Name]?: Value })
