// Rows as the API shows them: words for numbers, RFC 3339 in UTC with milliseconds, nothing where there is nothing.
import type { Sql } from './pool.ts'
import type { attempt, delivery, prepared, receipt, Row, task } from './schema.ts'
import {
  statusNumber,
  type CheckAnswer,
  type HandledBy,
  type Phase,
  type Reason,
  type Status,
  type TaskStatus
} from '../domain/types.ts'
import type { WaitingFor } from '../domain/waiting-for.ts'
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
  /** Among those of its orderingKey. */
  position?: number
  /** It has lost its place, and goes beside the others. */
  outOfOrder?: true
  nextActionAt?: string
  deliveredAt?: string
  handledAt?: string
  handledBy?: HandledBy
  updatedAt?: string
  /** The operator who changed it last. */
  updatedBy?: string
  lastAttemptAt?: string
  /** What the last attempt came to, or else what the last receipt said. */
  lastReason?: string
  attempts?: AttemptView[]
  receipts?: ReceiptView[]
  /** Only where one task is read. */
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
  /** The tasks it was posted to wait for, and some that wait for it; only those that whoever asks may see. */
  after?: string[]
  before?: string[]
  messageBody?: string
  /** Of one that was posted as prepared. */
  prepared?: PreparedView
  deliveries: DeliveryView[]
}

export interface PreparedView {
  preparedAt: string
  /** How often its producer was asked. */
  checks: number
  nextCheckAt?: string
  lastAnswer?: CheckAnswer
  lastReason?: string
  lastCheckedAt?: string
  endedAt?: string
  endedBy?: string
}

type DeliveryShown = Pick<
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
> & { updatedAt?: Date; lastAttemptAt?: Date | string | null; lastReason?: string | null }

export const deliveryView = (row: DeliveryShown): DeliveryView => ({
  downstream: row.downstream,
  status: statusWord(row.status),
  ...present('phase', row.phase),
  ...present('reason', row.reason),
  attempt: row.attempt,
  triesLeft: row.triesLeft,
  ...placeView(row.position),
  // Of what waits for others it would be the year 9999.
  ...present('nextActionAt', row.phase === 'BLOCKED' ? null : iso(row.nextActionAt)),
  ...present('deliveredAt', iso(row.deliveredAt)),
  ...present('handledAt', iso(row.handledAt)),
  ...present('handledBy', row.handledBy),
  ...present('updatedAt', row.updatedAt?.toISOString()),
  ...present('updatedBy', row.updatedBy),
  ...present('lastAttemptAt', row.lastAttemptAt && new Date(row.lastAttemptAt).toISOString()),
  ...present('lastReason', row.lastReason)
})

export const placeView = (position: number | null | undefined) => ({
  ...present('position', position && Math.abs(position)),
  ...present('outOfOrder', position && position < 0 ? (true as const) : null)
})

type TaskShown = Pick<
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

/** The member where there is a value, no member where there is none. */
export const present = <Name extends string, Value>(
  name: Name,
  value: Value | null | undefined
): { [name in Name]?: Value } =>
  value === null || value === undefined ? {} : ({ [name]: value } as { [name in Name]?: Value })

export const attemptView = (row: typeof attempt.$inferSelect): AttemptView => ({
  attempt: row.attempt,
  outcome: row.outcome,
  ...present('reason', row.reason),
  ...present('status', row.statusCode),
  ...present('answer', row.answer && Buffer.from(row.answer).toString('utf8')),
  ...present('headers', row.headers === null ? null : (JSON.parse(row.headers) as unknown)),
  ...present('address', row.address),
  ...present('warning', row.warning),
  ...present('messageId', row.messageId),
  ms: row.ms,
  node: row.node,
  startedAt: row.startedAt.toISOString()
})

export const receiptView = (row: typeof receipt.$inferSelect): ReceiptView => ({
  attempt: row.attempt,
  result: row.result,
  ...present('reason', row.reason),
  ...present('data', row.data === null ? null : (JSON.parse(row.data) as unknown)),
  applied: row.applied,
  late: row.late,
  ...present('remote', row.remote),
  createdAt: row.createdAt.toISOString()
})

/**
 * Tasks with their deliveries, without attempts and receipts, by taskNo; unknown ones are missing. For what answers a
 * producer's repeated POST: by the hot pool, which no list holds up.
 */
export async function readTasks(sql: Sql, taskNos: readonly string[]): Promise<Map<string, TaskView>> {
  // Of a half message without deliveries all columns of `d` are null.
  const rows = await sql<(TaskShown & DeliveryShown & { half: PreparedJson | null })[]>`
    select t.task_no as "taskNo", t.message_code as "messageCode", t.scene_type as "sceneType",
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

/** The taskNos among these whose every delivery has come to rest, and those that do not exist. A PREPARED one has still to get its deliveries. */
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
