import type { ApiKey, KeyListFilter, listApiKeys, NewKey, Rights } from '../db/api-keys.ts'
import type { listAlarms, listTasks } from '../db/lists.ts'
import type { KeyFilter, listOrderingKeys, Passed } from '../db/ordering.ts'
import type { SetLimits } from '../db/cluster.ts'
import type { TaskFilter } from '../db/search.ts'
import type { DeliveryFilter } from '../db/search-deliveries.ts'
import type { Counted, Selection } from '../db/operations.ts'
import type { AuditFilter } from '../db/audit.ts'
import type { resolveAlarm } from '../db/alarms.ts'
import type { archiveFailure, FailureFilter, listFailures } from '../db/failure-groups.ts'
import type { Differences, Digests, Question } from '../db/reconcile.ts'
import type { listRejected, RejectedFilter, RejectedRequest } from '../db/rejected.ts'
import type { StatsFilter } from '../db/statistics.ts'
import type { TaskView } from '../db/views.ts'
import type { AcceptResult, BatchAcceptResult, TaskRequest } from '../delivery/accept.ts'
import type { dryRun } from '../delivery/dry-run.ts'
import type { requestNow } from '../delivery/request-again.ts'
import type { NotEnded } from '../delivery/half.ts'
import type { PushRequest, RedeliverRequest, ReleaseRequest, SettleRequest } from '../delivery/operate.ts'
import type { ReceiptRequest, ReceiveResult } from '../delivery/receive.ts'
import type { RefusalBy } from '../delivery/handler-refusal.ts'
import type { ChangeWatcher } from '../delivery/watch-changes.ts'
import type { DtmTargets } from '../handler/dtm.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Metrics } from '../runtime/metrics.ts'
import type { Content } from '../domain/content.ts'
import type { Actor } from '../domain/types.ts'

type AlarmFilter = Parameters<typeof listAlarms>[1]
interface OperationFilter {
  messageCodes: readonly string[] | null
  cursor?: string
  limit: number
}
type Page<Name extends string> = { [name in Name]: object[] } & { nextCursor?: string; partial?: true }

export type ApiLog = Pick<Logger, 'error' | 'warn'>

/** The functions that the API calls. Without the database they throw `Unavailable` or its error, and the caller gets a 503. */
export interface ApiDeps {
  accept(request: TaskRequest): Promise<AcceptResult>
  /** One commit, answers in order. A taskNo that occurs twice is `created`, then `same` or `conflict`. */
  acceptMany(requests: TaskRequest[]): Promise<BatchAcceptResult[]>
  /** `codes`: the messageCodes of the other tasks that the answer may name. Null: all. */
  readTask(taskNo: string, codes?: readonly string[] | null): Promise<TaskView | null>
  /** Why the handler of a task would refuse it. Called only if the task is refused anyway, so that the answer names all errors. */
  refusal: RefusalBy
  /** By taskNo, for known tasks. */
  contents(taskNos: readonly string[]): Promise<ReadonlyMap<string, Content>>
  /** Resolves with the current state when the task has ended, at the timeout, or on abort. Each `quotaKey` has a share of the places. */
  waitTask(
    taskNo: string,
    quotaKey: string,
    timeoutMs: number,
    signal: AbortSignal,
    codes: readonly string[] | null
  ): Promise<TaskView | null | 'busy'>
  /** The requests that its downstreams would get. */
  dryRun(request: TaskRequest): ReturnType<typeof dryRun>
  /** The task, with what its first attempts have sent, as far as it is not stored and can be made again. */
  withRequests(task: TaskView): Promise<TaskView>
  /** What would be sent now. */
  requestNow(taskNo: string, downstream: string): ReturnType<typeof requestNow>
  listTasks(filter: TaskFilter): ReturnType<typeof listTasks>
  /**
   * This and the other acts of operators write an audit row with `who` before the act or in its statement: an act without a record would
   * be worse than a record without an act. An act that finds nothing to do writes none.
   */
  remove(taskNo: string, who: Actor): Promise<TaskView | 'not_found' | 'nothing' | 'prepared'>
  redeliver(
    request: RedeliverRequest
  ): Promise<TaskView | 'not_found' | 'nothing' | 'expired' | 'prerequisite_deleted' | 'prepared'>
  /** These three write an audit row if another caller posted the task. */
  commit(taskNo: string, who: Actor, delayMs?: number | null): Promise<TaskView | NotEnded | 'no_handler'>
  rollBack(taskNo: string, who: Actor): Promise<TaskView | NotEnded>
  check(taskNo: string, who: Actor): Promise<TaskView | NotEnded>
  push(request: PushRequest): Promise<TaskView | 'not_found' | 'nothing' | 'prepared' | 'blocked' | 'early'>
  /** `reason`: the operator's words, for the audit. */
  settle(
    request: SettleRequest & { reason: string }
  ): Promise<TaskView | 'not_found' | 'nothing' | 'prepared'>
  /** How many FAILED deliveries a bulk redelivery would take. */
  countFailed(selection: Selection): Promise<Counted>
  /** A text: the id of a running operation that takes the same deliveries. */
  redeliverAll(selection: Selection, counted: Counted, who: Actor): Promise<object | string>
  /** `codes` as above. Null: no operation that the caller may see. */
  readOperation(id: string, codes: readonly string[] | null): Promise<object | null>
  listOperations(filter: OperationFilter): Promise<Page<'operations'> | 'bad_cursor'>
  listOperationDeliveries(
    filter: OperationFilter & { id: string }
  ): Promise<Page<'deliveries'> | 'bad_cursor' | null>
  /** False: no running operation that the caller may stop. */
  stopOperation(request: { id: string; who: Actor; messageCodes: readonly string[] | null }): Promise<boolean>
  listAudit(filter: AuditFilter): Promise<Page<'audit'> | 'bad_cursor'>
  listNodes(): Promise<readonly { yielded: readonly { downstream: string }[] }[]>
  /** False: no such downstream. A limit of null: back to the handler's. */
  setLimits(name: string, limits: Partial<SetLimits>, who: Actor): Promise<boolean>
  receive(receipt: ReceiptRequest): Promise<ReceiveResult>
  listDeliveries(filter: DeliveryFilter): Promise<Page<'deliveries'> | 'bad_cursor'>
  listAlarms(filter: AlarmFilter): Promise<Page<'alarms'> | 'bad_cursor'>
  listDownstreams(): Promise<readonly { name: string }[]>
  listOrderingKeys(filter: KeyFilter): ReturnType<typeof listOrderingKeys>
  /** Returns the task that held the key. */
  release(request: ReleaseRequest, who: Actor): Promise<Passed | 'not_held' | 'not_found'>
  /** False: no such downstream. Repeating it is harmless. */
  pause(name: string, who: Actor): Promise<boolean>
  resume(name: string, who: Actor): Promise<boolean>
  /** Compares with what a downstream has handled. */
  reconcile(question: Question): Promise<Differences | Digests | 'too_many' | 'not_found'>
  listRejected(filter: RejectedFilter): ReturnType<typeof listRejected>
  /** Both return false if there is no row that the caller may change. */
  retryRejected(request: RejectedRequest): Promise<boolean>
  removeRejected(request: RejectedRequest): Promise<boolean>
  /** Reports that rows of the outbox were committed just now. */
  nudge(): void
  readStats(filter: StatsFilter): Promise<object[]>
  listFailures(filter: FailureFilter): ReturnType<typeof listFailures>
  /** False: no group that the caller may change. */
  archiveFailure(request: Parameters<typeof archiveFailure>[1]): Promise<boolean>
  /** False: the key is unknown or revoked. */
  createSession(session: { hash: string; keyHash: string }): Promise<boolean>
  endSession(hash: string): Promise<void>
  watchChanges(watcher: ChangeWatcher): (() => void) | 'busy'
  listApiKeys(filter: KeyListFilter): ReturnType<typeof listApiKeys>
  createApiKey(key: NewKey): Promise<{ id: string; key: string }>
  /** False: no live key that a caller with the rights `within` may revoke. */
  revokeApiKey(request: { id: string; who: Actor; within: Rights }): Promise<boolean>
  /** False: it was resolved already. Null: no alarm that the caller may change. */
  resolveAlarm(request: Parameters<typeof resolveAlarm>[1]): Promise<boolean | null>
  handlers: ReadonlyMap<string, HandlerShown>
  /** By sha256 in lower case hex. Null: unknown or revoked. */
  findKey(hash: string): Promise<ApiKey | null>
  ready(): Promise<{ ok: boolean; checks: Record<string, string> }>
  /** No room for another task now. */
  isFull(): boolean
  isDatabaseUnreachable(): boolean
  /** The database's time as far as this process knows it. The host's clock may be wrong. */
  now(): Date
  metrics: Pick<Metrics, 'contentType' | 'render' | 'accepted'>
  log: ApiLog
  /** False: every caller may do everything (loopback only, see AUTH). */
  auth: boolean
  trustProxy: false | string | number
  /** The address it listens on. */
  host: string
  /** The address at which others reach it. */
  publicUrl: string
  /** DTM=on. Undefined: its routes do not exist. */
  dtmTargets?: DtmTargets
  /** Requests per second for each API key. Undefined: no limit. */
  keyPerSecond?: number
  /** Acts per second for each API key. Undefined: no limit. */
  actsPerSecond?: number
}

/** The part of a handler that `GET /handlers` shows. */
export interface HandlerShown {
  messageCode: string
  body: unknown
  checkBack?: unknown
  dtm?: unknown
  downstreams: readonly {
    name: string
    transport: string
    needCallback?: boolean
    policy: { times: number | undefined; receiptTimeoutMs: number }
    limit: { concurrency: number; perSecond?: number; timeoutMs: number }
  }[]
}
