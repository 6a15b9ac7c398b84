// Rows as the API shows them: words for numbers, RFC 3339 in UTC with milliseconds, no member without a value.
import type { attempt, delivery, prepared, receipt, task } from './schema.ts'
import {
  statusWord,
  type CheckAnswer,
  type HandledBy,
  type Phase,
  type Reason,
  type Status,
  type TaskStatus
} from '../domain/types.ts'
import { present } from '../domain/optional-members.ts'
import type { WaitingFor } from '../domain/waiting-for.ts'
import { versionText } from '../domain/ids.ts'
import type { RequestShape } from './request-shapes.ts'

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
  /** Its place in its orderingKey. */
  position?: number
  /** It has lost its place, and runs beside the others. */
  outOfOrder?: true
  nextActionAt?: string
  deliveredAt?: string
  handledAt?: string
  handledBy?: HandledBy
  updatedAt?: string
  /** The operator who changed it last. */
  updatedBy?: string
  lastAttemptAt?: string
  /** The reason of the last attempt, or else of the last receipt. */
  lastReason?: string
  /** The status code of the answer to the last attempt. */
  lastStatus?: number
  attempts?: AttemptView[]
  receipts?: ReceiptView[]
  /** The number of all, if not all are shown. */
  attemptsTotal?: number
  receiptsTotal?: number
  /** The task directly before it in its orderingKey, and why it waits. Only if a single task is read. */
  ahead?: string
  waitingFor?: WaitingFor & { text: { en: string; zh: string } }
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
  /** The broker's own id of the message. */
  messageId?: string
  request?: RequestView
  ms: number
  node: string
  startedAt: string
}

/** What an attempt sent, or tried to send. */
export interface RequestView {
  /** The version of the handler that made it. */
  handlerVersion: string
  transport?: string
  /** Only HTTP. */
  method?: string
  /** The URL, or what the transport has in its place, without secrets. */
  target?: string
  headerNames?: string[]
  bytes?: number
  sha256?: string
  /** Made again now, from the stored task by the same version of the handler. */
  computed?: true
  /** Why it is neither stored nor can be made again. */
  unknown?: string
}

export interface ReceiptView {
  attempt: number
  result: string
  reason?: string
  /** JSON, as posted. */
  data?: string
  applied: boolean
  late: boolean
  remote?: string
  createdAt: string
}

export interface TaskView {
  taskNo: string
  messageCode: string
  sceneType: string
  status: TaskStatus
  createdAt: string
  deliverStartTime?: string
  deliverBefore?: string
  needCallback?: boolean
  retryTimes?: number
  orderingKey?: string
  extend?: unknown
  createdBy?: string
  bizType?: string
  bizKey?: string
  uniqueBiz?: boolean
  /** Its prerequisites, and some of its dependents; only tasks that the caller may see. */
  after?: string[]
  before?: string[]
  messageBody?: string
  /** Only for a task that was posted as prepared. */
  prepared?: PreparedView
  deliveries: DeliveryView[]
}

export interface PreparedView {
  preparedAt: string
  /** The number of checks. */
  checks: number
  nextCheckAt?: string
  lastAnswer?: CheckAnswer
  lastReason?: string
  lastCheckedAt?: string
  endedAt?: string
  endedBy?: string
}

export type DeliveryShown = Pick<
  typeof delivery.$inferSelect,
  | 'downstream'
  | 'status'
  | 'phase'
  | 'nextActionAt'
  | 'attempt'
  | 'triesLeft'
  | 'position'
  | 'deliverBefore'
  | 'reason'
  | 'deliveredAt'
  | 'handledAt'
  | 'handledBy'
  | 'updatedBy'
> & {
  updatedAt?: Date
  lastAttemptAt?: Date | string | null
  lastReason?: string | null
  lastStatus?: number | null
}

export const deliveryView = (row: DeliveryShown): DeliveryView => ({
  downstream: row.downstream,
  status: statusWord(row.status),
  ...present('phase', row.phase),
  ...present('reason', row.reason),
  attempt: row.attempt,
  triesLeft: row.triesLeft,
  ...placeView(row.position),
  // For a BLOCKED delivery it would be the year 9999.
  ...present('nextActionAt', row.phase === 'BLOCKED' ? null : iso(row.nextActionAt)),
  ...present('deliveredAt', iso(row.deliveredAt)),
  ...present('handledAt', iso(row.handledAt)),
  ...present('handledBy', row.handledBy),
  ...present('updatedAt', row.updatedAt?.toISOString()),
  ...present('updatedBy', row.updatedBy),
  ...present('lastAttemptAt', row.lastAttemptAt && new Date(row.lastAttemptAt).toISOString()),
  ...present('lastReason', row.lastReason),
  ...present('lastStatus', row.lastStatus)
})

export const placeView = (position: number | null | undefined) => ({
  ...present('position', position && Math.abs(position)),
  ...present('outOfOrder', position && position < 0 ? (true as const) : null)
})

export type TaskShown = Pick<
  typeof task.$inferSelect,
  | 'taskNo'
  | 'messageCode'
  | 'sceneType'
  | 'deliverStartTime'
  | 'needCallback'
  | 'retryTimes'
  | 'orderingKey'
  | 'extend'
  | 'createdAt'
  | 'createdBy'
  | 'bizType'
  | 'bizKey'
  | 'uniqueBiz'
  | 'state'
>

type PreparedShown = Omit<
  typeof prepared.$inferSelect,
  'taskId' | 'messageCode' | 'leasedUntil' | 'answered' | 'unanswered' | 'checkAfterMs' | 'delayMs'
>

const preparedView = (row: PreparedShown): PreparedView => ({
  preparedAt: row.preparedAt.toISOString(),
  checks: row.checks,
  ...present('nextCheckAt', iso(row.nextActionAt)),
  ...present('lastAnswer', row.lastAnswer),
  ...present('lastReason', row.lastReason),
  ...present('lastCheckedAt', iso(row.lastCheckedAt)),
  ...present('endedAt', iso(row.endedAt)),
  ...present('endedBy', row.endedBy)
})

export function taskView(
  row: TaskShown & { prepared: PreparedShown | null },
  parts: readonly DeliveryShown[]
): TaskView {
  const deliveries = parts.map(deliveryView)
  return {
    taskNo: row.taskNo,
    messageCode: row.messageCode,
    sceneType: row.sceneType,
    status: row.state === 'ACTIVE' ? taskStatus(deliveries) : row.state,
    createdAt: row.createdAt.toISOString(),
    ...present('deliverStartTime', iso(row.deliverStartTime)),
    ...present('deliverBefore', iso((parts[0] ?? row.prepared)?.deliverBefore ?? null)),
    ...present('needCallback', row.needCallback),
    ...present('retryTimes', row.retryTimes),
    ...present('orderingKey', row.orderingKey),
    ...present('extend', row.extend),
    createdBy: row.createdBy,
    ...present('bizType', row.bizType),
    ...present('bizKey', row.bizKey),
    ...present('uniqueBiz', row.uniqueBiz),
    ...present('prepared', row.prepared && preparedView(row.prepared)),
    deliveries
  }
}

export const iso = (at: Date | null): string | null => at && at.toISOString()

/** What was sent, as it was stored. Of a first attempt that was delivered only the version of its handler is. */
function requestView(
  row: typeof attempt.$inferSelect,
  shapes: ReadonlyMap<number, RequestShape>
): RequestView | null {
  if (row.handlerVersion === null) return null
  const shape = row.requestShape === null ? undefined : shapes.get(row.requestShape)
  return {
    handlerVersion: versionText(row.handlerVersion),
    ...present('transport', shape?.transport),
    ...present('method', shape?.method),
    ...present('target', row.target),
    ...present('headerNames', shape?.headerNames),
    ...present('bytes', row.bodyBytes),
    ...present('sha256', row.bodySha256 && Buffer.from(row.bodySha256).toString('hex'))
  }
}

export const attemptView = (
  row: typeof attempt.$inferSelect,
  shapes: ReadonlyMap<number, RequestShape>
): AttemptView => ({
  attempt: row.attempt,
  outcome: row.outcome,
  ...present('reason', row.reason),
  ...present('status', row.statusCode),
  ...present('answer', row.answer && Buffer.from(row.answer).toString('utf8')),
  ...present('headers', row.headers === null ? null : (JSON.parse(row.headers) as unknown)),
  ...present('address', row.address),
  ...present('warning', row.warning),
  ...present('messageId', row.messageId),
  ...present('request', requestView(row, shapes)),
  ms: row.ms,
  node: row.node,
  startedAt: row.startedAt.toISOString()
})

export const receiptView = (row: typeof receipt.$inferSelect): ReceiptView => ({
  attempt: row.attempt,
  result: row.result,
  ...present('reason', row.reason),
  ...present('data', row.data),
  applied: row.applied,
  late: row.late,
  ...present('remote', row.remote),
  createdAt: row.createdAt.toISOString()
})
