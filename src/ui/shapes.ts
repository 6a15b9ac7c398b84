// The parts of the API's answers that the pages show (openapi/openapi.json).
import type { Counter } from '../domain/counts.ts'
import type { WaitingFor } from '../domain/waiting-for.ts'
import type { Count } from './counts.ts'

/** What an attempt has sent. Also what would be sent now. */
export interface SentRequest {
  handlerVersion: string
  transport?: string
  method?: string
  target?: string
  headerNames?: string[]
  bytes?: number
  sha256?: string
  /** It was made again from the stored task. */
  computed?: true
  unknown?: string
}
export interface RequestNow extends Omit<SentRequest, 'headerNames'> {
  headers: [string, string][]
  body?: string
  truncated?: true
  error?: string
}
export interface Attempt {
  attempt: number
  outcome: string
  reason?: string
  status?: number
  answer?: string
  headers?: [string, string][]
  address?: string
  warning?: string
  request?: SentRequest
  ms: number
  node: string
  startedAt: string
}
export interface Receipt {
  attempt: number
  result: string
  reason?: string
  /** The JSON that was posted, as text. */
  data?: string
  applied: boolean
  late: boolean
  remote?: string
  createdAt: string
}
export interface Delivery {
  downstream: string
  status: string
  phase?: string
  reason?: string
  lastReason?: string
  lastStatus?: number
  lastAttemptAt?: string
  attempt: number
  triesLeft: number
  nextActionAt?: string
  deliveredAt?: string
  handledAt?: string
  handledBy?: string
  updatedAt?: string
  updatedBy?: string
  position?: number
  /** The delivery has lost its place in the order, and does not wait for the others. */
  outOfOrder?: true
  /** The task directly before it in its orderingKey. */
  ahead?: string
  attempts?: Attempt[]
  receipts?: Receipt[]
  /** The number of all, if not all are here. */
  attemptsTotal?: number
  receiptsTotal?: number
  waitingFor?: WaitingFor
}
export interface Task {
  taskNo: string
  messageCode: string
  sceneType: string
  status: string
  createdAt: string
  createdBy?: string
  deliverStartTime?: string
  deliverBefore?: string
  needCallback?: boolean
  retryTimes?: number
  orderingKey?: string
  bizType?: string
  bizKey?: string
  uniqueBiz?: boolean
  extend?: unknown
  after?: string[]
  before?: string[]
  messageBody?: unknown
  prepared?: {
    preparedAt: string
    checks: number
    nextCheckAt?: string
    lastAnswer?: string
    lastReason?: string
    endedAt?: string
    endedBy?: string
  }
  deliveries: Delivery[]
}
export interface Group {
  fingerprint: string
  downstream: string
  reason: string
  status?: number
  line?: string
  failed: number
  failures: number
  again: number
  firstAt: string
  lastAt: string
  histogram: number[]
  example: { taskNo: string; messageCode: string; answer?: string }
  archived?: { note: string; at: string; by: string }
  mayArchive: boolean
}
export interface Failures {
  failures: Group[]
  partial?: true
}
export interface Operation {
  id: string
  state: 'RUNNING' | 'STOPPED' | 'DONE'
  filter: Record<string, string>
  matched: Count
  redelivered: number
  skipped: number
  deliveries?: Record<string, number>
  createdAt: string
  createdBy: string
  endedAt?: string
  endedBy?: string
}
export interface Downstream {
  name: string
  transport?: string
  pausedAt?: string
  pausedBy?: string
  oldestDueAt?: string
  waiting: Count
  inFlight: Count
  awaitingReceipt: Count
  blocked: Count
  failed: Count
  concurrency?: number
  perSecond?: number
  mayChange: boolean
}
export interface Node {
  id: string
  roles: string[]
  version: string
  live: boolean
  startedAt: string
  seenAt: string
  yielded: { downstream: string; until: string; reason: string }[]
}
export interface Point extends Record<Counter, number> {
  at: string
  p50Ms?: number
  p99Ms?: number
}
export interface Stats {
  from: string
  to: string
  step: number
  series: { downstream?: string; points: Point[]; total: Omit<Point, 'at'> }[]
}
export interface Alarm {
  taskNo: string
  messageCode: string
  downstream: string
  attempt: number
  kind: string
  status?: string
  reason?: string
  createdAt: string
  sentAt?: string
  resolvedAt?: string
}
/** Not that of a rejected row, which ends with the row, nor one that a list names no task for. */
export const canResolve = ({ taskNo, kind, resolvedAt }: Alarm): boolean =>
  resolvedAt === undefined && kind !== 'REJECTED' && taskNo !== ''

export interface AuditRow {
  id: string
  at: string
  who: string
  keyId?: string
  what: string
  target?: string
  detail?: unknown
}
