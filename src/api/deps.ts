import type { Metrics } from '../metrics.ts'
import type { ReceiptResult, Status } from '../task/task.ts'

/** What the API needs of the rest, in its own words. Anything here may throw `Unavailable`: the caller gets a 503. */
export interface ApiDeps {
  accept(asked: Asked): Promise<Accepted>
  /** One commit, answers in order; a taskNo twice in it is `created`, then `same` or `conflict`. */
  acceptMany(asked: Asked[]): Promise<Accepted[]>
  readTask(taskNo: string): Promise<TaskView | null>
  /** Ends at any terminal state, at the timeout, or when the signal is aborted, with the state of then. */
  waitTask(taskNo: string, timeoutMs: number, signal: AbortSignal): Promise<TaskView | null | 'busy'>
  listTasks(filter: TaskFilter): Promise<Page<'tasks', TaskView> | 'bad_cursor'>
  remove(taskNo: string, who: string): Promise<TaskView | 'not_found' | 'nothing'>
  redeliver(asked: RedeliverAsked): Promise<TaskView | 'not_found' | 'nothing' | 'expired'>
  receive(receipt: ReceiptAsked): Promise<Received>
  listDeliveries(filter: DeliveryFilter): Promise<Page<'deliveries', object> | 'bad_cursor'>
  listAlarms(filter: AlarmFilter): Promise<Page<'alarms', object> | 'bad_cursor'>
  listDownstreams(): Promise<readonly { name: string }[]>
  /** false: no such downstream. Both may be said twice. */
  pause(name: string, who: string): Promise<boolean>
  resume(name: string, who: string): Promise<boolean>
  handlers: ReadonlyMap<string, HandlerShown>
  /** By sha256 in lower case hex; null for one that is unknown or revoked. */
  findKey(hash: string): Promise<ApiKey | null>
  /** Written before the act: an act without its record would be worse than a record without its act. */
  audit(entry: {
    who: string
    what: string
    target: string
    detail?: Record<string, string | boolean | null>
  }): Promise<void>
  ready(): Promise<{ ok: boolean; checks: Record<string, string> }>
  /** Seconds after which to ask again, while no more work can be taken. */
  overload(): number | null
  /** The database's time as well as this process knows it; the host's clock may be wrong. */
  now(): Date
  metrics: Pick<Metrics, 'contentType' | 'render'>
  log: ApiLog
  /** false: everybody may do everything (loopback only, see AUTH). */
  auth: boolean
  trustProxy: boolean | string | number
  /** Requests a second for one API key; undefined: no limit of its own. */
  keyPerSecond?: number
}

export interface ApiLog {
  error(fields: object, message: string): void
  warn(fields: object, message: string): void
}

export const scopes = ['tasks:write', 'tasks:read', 'ops:read', 'ops:write'] as const
export type Scope = (typeof scopes)[number]

export interface ApiKey {
  id: string
  name: string
  scopes: readonly string[]
  /** null: every messageCode. */
  messageCodes: readonly string[] | null
}

/** What was posted, checked but for the handler's own schema. */
export interface Asked {
  taskNo: string
  messageCode: string
  sceneType: string
  /** The very text that was posted. */
  messageBody: string
  /** The same, parsed: for the handler's schema. */
  body: unknown
  contentHash: string
  start: { at: Date } | { delayMs: number } | null
  deliverBefore: Date | null
  needCallback: boolean | null
  retryTimes: number | null
  /** JSON text. */
  extend: string | null
  traceparent: string | null
  createdBy: string
}

export type Accepted =
  | { kind: 'created' | 'same'; task: TaskView }
  | { kind: 'conflict' }
  | { kind: 'unknown_code' }
  | { kind: 'invalid'; detail: string; pointer: string }

/** A task as the API answers it; times are RFC 3339 in UTC with milliseconds. */
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
  /** JSON text; the API puts it into the answer as it stands. Only when one task is read. */
  messageBody?: string
  deliveries: readonly DeliveryView[]
}

export interface DeliveryView {
  downstream: string
  status: Status
  phase?: string
  reason?: string
  attempt: number
  triesLeft: number
  nextActionAt?: string
  deliveredAt?: string
  handledAt?: string
  handledBy?: string
  attempts?: readonly object[]
  receipts?: readonly object[]
}

export type Page<Name extends string, Item> = { [name in Name]: Item[] } & { nextCursor?: string }

/** `messageCodes` is what the key may see, null for all; a filter by `messageCode` comes on top of it. */
interface Window {
  messageCodes: readonly string[] | null
  messageCode?: string
  downstream?: string
  from: Date
  to?: Date
  cursor?: string
  limit: number
}
export interface TaskFilter extends Window {
  status?: Status
  sceneType?: string
  needCallback?: boolean
}
export interface DeliveryFilter extends Window {
  status?: Status
  phase?: string
  reason?: string
}
export interface AlarmFilter extends Window {
  kind?: string
  open?: boolean
}

export interface RedeliverAsked {
  taskNo: string
  downstream?: string
  force: boolean
  who: string
}

export interface ReceiptAsked {
  taskNo: string
  messageCode: string
  downstream?: string
  result: ReceiptResult
  reason?: string
  /** JSON text as posted. */
  data?: string
  token: string | undefined
  remote: string
}

export type Received =
  | { kind: 'ok'; taskNo: string; status: Status; applied: boolean; late?: boolean }
  | 'unauthorized'
  | 'gone'
  | 'deleted'
  | 'wrong_code'
  | 'wrong_downstream'

/** As much of a handler as `GET /handlers` shows. */
export interface HandlerShown {
  messageCode: string
  body: unknown
  downstreams: readonly {
    name: string
    transport: string
    needCallback?: boolean
    policy: { times: number | undefined; receiptTimeoutMs: number }
    limit: { concurrency: number; perSecond?: number; timeoutMs: number }
  }[]
}
