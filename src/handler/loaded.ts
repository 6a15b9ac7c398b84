// Handlers in the form that the service uses: checked, with defaults, times in milliseconds.
import type { z } from 'zod'
import { defaultPolicy, effectiveRetryTimes, type Policy } from '../domain/retry-policy.ts'
import type { CheckAnswer, Task } from '../domain/types.ts'
import type { Answer, Verdict } from '../transport/types.ts'
import type {
  About,
  AboutAttempt,
  AboutOutcome,
  Awaitable,
  BeforeSend,
  CheckBack,
  HandlerAnswer,
  HandlerReceipt,
  OnReceipt,
  Reconcile,
  Requests,
  Sending,
  TransportName
} from './define.ts'

export interface LoadedDownstream {
  name: string
  /** See version.ts. Undefined: the handler has no file. */
  handlerVersion?: number
  transport: TransportName
  request(about: Sending<unknown>): Awaitable<Requests[TransportName]>
  when?(about: About<unknown>): boolean
  beforeSend?(about: AboutAttempt<unknown>): Awaitable<BeforeSend>
  afterSend?(about: AboutOutcome<unknown>): Awaitable<void>
  probe?: LoadedProbe
  reconcile?: LoadedReconcile
  accepted?(answer: HandlerAnswer, about: About<unknown>): Verdict
  /** Undefined: the downstream has no receipts, and a task's needCallback does not change that. */
  needCallback?: boolean
  /** Undefined: 'hold'. */
  onFailed?: 'hold' | 'skip'
  policy: Policy
  limit: Limit
  secrets?: string[]
  format?: 'cloudevents'
}

export interface LoadedReconcile extends Pick<Reconcile, 'run'> {
  everyMs: number
  settleMs: number
}

export interface LoadedProbe {
  request(about: AboutAttempt<unknown>): Awaitable<Requests[TransportName]>
  handled(answer: HandlerAnswer, about: About<unknown>): unknown
  required: boolean
}

export interface Limit {
  concurrency: number
  perSecond?: number
  timeoutMs: number
  /** Undefined: 1. */
  pipelining?: number
}

export interface LoadedHandler {
  messageCode: string
  /** The file that defines it. */
  file: string
  body: z.ZodType
  downstreams: LoadedDownstream[]
  onReceipt?(about: { receipt: HandlerReceipt } & About<unknown>): Awaitable<OnReceipt>
  checkBack?: CheckBack
  /** Set if its tasks come only from the DTM API. Their producers are then checked in DTM's way. */
  dtm?: DtmMessages
}

/** The parts of a message that are specific to DTM. */
export interface DtmMessages {
  /** Undefined: the answer is not understood. */
  checkAnswer(answer: Answer): CheckAnswer | undefined
  /** Time to the next check after an UNKNOWN, ms. */
  askEveryMs(task: Readonly<Task>): number
  /** The steps that are delivered in addition to the first one. Null: none. */
  steps(task: Readonly<Task>): Steps | null
}

/** Tasks that are stored in the same statement as the deliveries of the first step. */
export interface Steps {
  /** If true, each task waits for the one before it, and the first of these waits for the first step. */
  inSequence: boolean
  tasks: { taskNo: string; messageCode: string; messageBody: string }[]
}

type Handlers = ReadonlyMap<string, LoadedHandler>

/** Undefined: no handler here sends tasks of this messageCode to this downstream. */
export const downstreamOf = (
  handlers: Handlers,
  messageCode: string,
  downstream: string
): LoadedDownstream | undefined =>
  handlers.get(messageCode)?.downstreams.find(({ name }) => name === downstream)

export const policyOf = (handlers: Handlers, messageCode: string, downstream: string): Policy =>
  downstreamOf(handlers, messageCode, downstream)?.policy ?? defaultPolicy

/** Tries of a round, including the first. */
export const retryTimesOf = (
  handlers: Handlers,
  task: { messageCode: string; retryTimes: number | null },
  downstream: string
): number => effectiveRetryTimes(task.retryTimes, policyOf(handlers, task.messageCode, downstream))
