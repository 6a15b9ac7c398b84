import type { ApiKey } from '../db/keys.ts'
import type { listAlarms, listDeliveries, listTasks, TaskFilter } from '../db/lists.ts'
import type { TaskView } from '../db/views.ts'
import type { AcceptResult, TaskRequest } from '../delivery/accept.ts'
import type { RedeliverRequest } from '../delivery/operate.ts'
import type { ReceiptRequest, ReceiveResult } from '../delivery/receive.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Metrics } from '../runtime/metrics.ts'

type DeliveryFilter = Parameters<typeof listDeliveries>[1]
type AlarmFilter = Parameters<typeof listAlarms>[1]
type Page<Name extends string> = { [name in Name]: object[] } & { nextCursor?: string }

export type ApiLog = Pick<Logger, 'error' | 'warn'>

/** What the API needs of the rest, in its own words. Without the database these throw `Unavailable` or its error: the caller gets a 503. */
export interface ApiDeps {
  accept(request: TaskRequest): Promise<AcceptResult>
  /** One commit, answers in order; a taskNo twice in it is `created`, then `same` or `conflict`. */
  acceptMany(requests: TaskRequest[]): Promise<AcceptResult[]>
  readTask(taskNo: string): Promise<TaskView | null>
  /** By taskNo, of those that are known. */
  contentHashes(taskNos: readonly string[]): Promise<ReadonlyMap<string, string>>
  /** Ends at any terminal state, at the timeout, or when the signal is aborted, with the state of then. `owner` has a share. */
  waitTask(
    taskNo: string,
    owner: string,
    timeoutMs: number,
    signal: AbortSignal
  ): Promise<TaskView | null | 'busy'>
  listTasks(filter: TaskFilter): ReturnType<typeof listTasks>
  /**
   * This and the other operations of people leave a row in the audit that says `who`. It is written before the act: an act
   * without its record would be worse than a record without its act. What does not exist, or has nothing to do, leaves none.
   */
  remove(taskNo: string, who: string): Promise<TaskView | 'not_found' | 'nothing'>
  redeliver(
    request: RedeliverRequest & { who: string }
  ): Promise<TaskView | 'not_found' | 'nothing' | 'expired'>
  receive(receipt: ReceiptRequest): Promise<ReceiveResult>
  listDeliveries(filter: DeliveryFilter): Promise<Page<'deliveries'> | 'bad_cursor'>
  listAlarms(filter: AlarmFilter): Promise<Page<'alarms'> | 'bad_cursor'>
  listDownstreams(): Promise<readonly { name: string }[]>
  /** false: no such downstream. Both may be said twice. */
  pause(name: string, who: string): Promise<boolean>
  resume(name: string, who: string): Promise<boolean>
  handlers: ReadonlyMap<string, HandlerShown>
  /** By sha256 in lower case hex; null for one that is unknown or revoked. */
  findKey(hash: string): Promise<ApiKey | null>
  ready(): Promise<{ ok: boolean; checks: Record<string, string> }>
  /** Seconds after which to ask again, while no more work can be taken. */
  overload(): number | null
  /** The database's time as well as this process knows it; the host's clock may be wrong. */
  now(): Date
  metrics: Pick<Metrics, 'contentType' | 'render'>
  log: ApiLog
  /** false: everybody may do everything (loopback only, see AUTH). */
  auth: boolean
  trustProxy: false | string | number
  /** The address it listens on. */
  host: string
  /** Where others reach it. */
  publicUrl: string
  /** Requests a second for one API key; undefined: no limit of its own. */
  keyPerSecond?: number
}

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
