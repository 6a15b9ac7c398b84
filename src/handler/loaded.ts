// Handlers as the service uses them: checked, with defaults, times in milliseconds.
import type { z } from 'zod'
import { defaultPolicy, type Policy } from '../domain/retry-policy.ts'
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
  transport: TransportName
  request(about: Sending<unknown>): Awaitable<Requests[TransportName]>
  when?(about: About<unknown>): boolean
  beforeSend?(about: AboutAttempt<unknown>): Awaitable<BeforeSend>
  afterSend?(about: AboutOutcome<unknown>): Awaitable<void>
  probe?: LoadedProbe
  reconcile?: LoadedReconcile
  accepted?(answer: HandlerAnswer, about: About<unknown>): Verdict
  /** Undefined: it has no receipts, and a task's own needCallback does not change that. */
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
  /** Its tasks come by the wire of DTM alone, and their producers are asked as DTM asks. */
  dtm?: DtmMessages
}

/** What is DTM's own about a message. */
export interface DtmMessages {
  /** Undefined: it says nothing. */
  checkAnswer(answer: Answer): CheckAnswer | undefined
  /** After an UNKNOWN, ms. */
  askEveryMs(task: Readonly<Task>): number
  /** What is delivered beside its first step; null: nothing. */
  steps(task: Readonly<Task>): Steps | null
}

/** Tasks that are stored by the very statement that makes the deliveries of another one. */
export interface Steps {
  /** Each waits for the one before it, the first of these for that other one. */
  inSequence: boolean
  tasks: { taskNo: string; messageCode: string; messageBody: string }[]
}

type Handlers = ReadonlyMap<string, LoadedHandler>

/** Undefined: no handler here sends tasks of this messageCode to it. */
export const downstreamOf = (
  handlers: Handlers,
  messageCode: string,
  downstream: string
): LoadedDownstream | undefined =>
  handlers.get(messageCode)?.downstreams.find(({ name }) => name === downstream)

export const policyOf = (handlers: Handlers, messageCode: string, downstream: string): Policy =>
  downstreamOf(handlers, messageCode, downstream)?.policy ?? defaultPolicy
