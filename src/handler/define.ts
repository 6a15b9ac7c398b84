// A member and not an alias: for an alias the compiler would say 'Duration' and nothing of its forms.
import type { z } from 'zod'
import type { Policy } from '../domain/retry-policy.ts'
import type { ReceiptResult, Task } from '../domain/types.ts'
import type { DubboRequest } from '../transport/dubbo/triple.ts'
import type { Dubbo2Request } from '../transport/dubbo/classic-request.ts'
import type { HttpRequest } from '../transport/http/http.ts'
import type { KafkaRequest } from '../transport/kafka/kafka.ts'
import type { NatsRequest } from '../transport/nats/nats.ts'
import type { RabbitmqRequest } from '../transport/rabbitmq/rabbitmq.ts'
import type { RedisStreamRequest } from '../transport/redis-stream/redis-stream.ts'
import type { RocketmqRequest } from '../transport/rocketmq/rocketmq.ts'
import type { Answer, Verdict } from '../transport/types.ts'

// All that a handler imports comes from here: import { defineHandler, z, env, url } from 'ackbox/handler'
export { z } from 'zod'
export { url } from '../transport/url.ts'
export { env } from './env.ts'

/** What `request` returns, for each transport. One more transport: one more line. */
export interface Requests {
  http: HttpRequest
  dubbo: DubboRequest
  dubbo2: Dubbo2Request
  rabbitmq: RabbitmqRequest
  kafka: KafkaRequest
  rocketmq: RocketmqRequest
  nats: NatsRequest
  'redis-stream': RedisStreamRequest
}
export type TransportName = keyof Requests
/** Those whose downstream answers; an RPC's result is `json`. */
type Answering = 'http' | 'dubbo' | 'dubbo2'

type Awaitable<T> = T | Promise<T>

/** What the hooks of a downstream are told. `body` is what the schema made of the task's messageBody. */
export interface About<Body> {
  task: Readonly<Task>
  body: Body
}

export interface AboutAttempt<Body> extends About<Body> {
  /** Rises with every try of this delivery, gaps are possible. */
  attempt: number
}

/** `body` is parsed when it is asked for: take it from here, for a copy made by `...` has none. */
export interface Sending<Body> extends AboutAttempt<Body> {
  /** The very text that was posted as messageBody. Send this, and what you send is what was posted. */
  raw: string
  /** Stays the same on every attempt: what the downstream gets as `webhook-id` and may deduplicate by. */
  deliveryId: string
}

/** JSON of unknown shape that can be asked any question: `json?.code === 0`, `json?.data?.id === '7'`. */
export type AskableJson = { readonly [name: string]: AskableJson | undefined } & (string | number | boolean)

/** A downstream's answer; `json` is undefined when it is not JSON. */
export type HandlerAnswer = Omit<Answer, 'json'> & { readonly json: AskableJson | null | undefined }

// Members and not aliases: the compiler says what an alias is called, but what a member may be.
interface Answers {
  beforeSend: void | { skip: true } | { postponeMs: number }
  onReceipt: 'HANDLED' | 'FAILED' | 'RETRY' | 'PROCESSING' | void
}

/** What `beforeSend` may ask for; nothing at all means: send it. */
export type BeforeSend = Answers['beforeSend']

/** One destination of a handler. All but `transport` and `request` may be left out. */
export interface Downstream<Name extends TransportName, Body> {
  transport: Name
  /** Builds what is sent, anew for every attempt. A throw fails that attempt only. */
  request(about: Sending<Body>): Awaitable<Requests[Name]>
  /** Asked once, when the task is accepted: false, and this downstream does not get the task. */
  when?(about: About<Body>): boolean
  /** Asked before every attempt: `{ skip: true }` ends the delivery, `{ postponeMs }` puts it off. */
  beforeSend?(about: AboutAttempt<Body>): Awaitable<BeforeSend>
  /**
   * Whether an answer means "I have it". Default: any 2xx; what an RPC returned without an exception. 'refused': it will
   * never take this one. A queue answers nothing but its confirmation.
   */
  accepted?: Name extends Answering ? (answer: HandlerAnswer, about: About<Body>) => Verdict : never
  /**
   * true: HANDLED only once its receipt has come to /callback. A task's own needCallback goes over it, where it is said,
   * be it false; a downstream that does not say it never owes a receipt.
   */
  needCallback?: boolean
  /** How long to wait for that receipt before the next try. Default '60s'. */
  receiptTimeout?: Duration
  retry?: {
    /** Tries in all, the first included: 1 to 100, default 10. */
    times?: number
    /** Waits between tries: 'exponential' (10 s, 20 s … 1 h; the default), one for all, or a list whose last repeats. */
    backoff?: 'exponential' | Duration | Duration[]
  }
  /** The same for every handler that names this downstream. */
  limit?: {
    /** Requests at once, over all workers. Default 50. */
    concurrency?: number
    /** Requests a second, over all workers. Default: no limit. */
    perSecond?: number
    /** From DNS to the last byte of the answer. Default '10s'. */
    timeout?: Duration
    /**
     * HTTP only: requests on one connection, each written without waiting for the answers before it. Default 1. More is
     * for a downstream of your own that answers at once: one slow answer holds up those behind it.
     */
    pipelining?: number
  }
  /** Signing secrets (`whsec_…`) instead of the one derived from SECRET: the first is the new one, all are sent. */
  secrets?: string[]
}

/** A receipt as `onReceipt` sees it. */
export interface HandlerReceipt {
  result: ReceiptResult
  reason?: string
  data?: unknown
  downstream: string
  attempt: number
}

/** What `onReceipt` makes of a receipt; nothing at all means: as it says. */
export type OnReceipt = Answers['onReceipt']

export interface HandlerDefinition<Schema extends z.ZodType, Ways extends Record<string, TransportName>> {
  /** What producers post as `messageCode`; one handler each. */
  messageCode: string
  /** Refuses a wrong messageBody when it is posted (422), and types `body` in the hooks below. */
  body: Schema
  /** Name → destination. A name is global: handlers that share one share its queue, limits and pause. */
  downstreams: { [Name in keyof Ways]: Downstream<Ways[Name], z.output<Schema>> }
  /** May turn a receipt's HANDLED into RETRY or FAILED. A throw is a RETRY. */
  onReceipt?(about: { receipt: HandlerReceipt } & About<z.output<Schema>>): Awaitable<OnReceipt>
}

/** The template for one messageCode; export it as default from a file in `handlers/`. */
export function defineHandler<Schema extends z.ZodType, const Ways extends Record<string, TransportName>>(
  handler: HandlerDefinition<Schema, Ways>
): HandlerDefinition<Schema, Ways> {
  return handler
}

/** A downstream as the service uses it: checked, defaults filled in, times in milliseconds. */
export interface LoadedDownstream {
  name: string
  transport: TransportName
  request(about: Sending<unknown>): Awaitable<Requests[TransportName]>
  when?(about: About<unknown>): boolean
  beforeSend?(about: AboutAttempt<unknown>): Awaitable<BeforeSend>
  accepted?(answer: HandlerAnswer, about: About<unknown>): Verdict
  /** Undefined: it knows nothing of receipts, and a task's own needCallback does not change that. */
  needCallback?: boolean
  policy: Policy
  limit: Limit
  secrets?: string[]
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
  /** The file it came from. */
  file: string
  body: z.ZodType
  downstreams: LoadedDownstream[]
  onReceipt?(about: { receipt: HandlerReceipt } & About<unknown>): Awaitable<OnReceipt>
}

interface Forms {
  duration: number | `${number}ms` | `${number}s` | `${number}m` | `${number}h` | `${number}d`
}

/** A time such as '500ms', '10s', '1m', '2h', '1d', or a number of milliseconds. */
export type Duration = Forms['duration']

const unitMs: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Whole milliseconds, or undefined for what is not a duration. */
export function durationMs(value: unknown): number | undefined {
  if (typeof value === 'number') return Number.isFinite(value) && value >= 0 ? Math.round(value) : undefined
  if (typeof value !== 'string') return undefined
  const [, number, unit] = /^(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)$/.exec(value) ?? []
  return number && unit ? Math.round(Number(number) * (unitMs[unit] ?? 0)) : undefined
}

/** The shortest way to write it: 90000 is '90s', 60000 is '1m'. */
export function durationText(ms: number): string {
  const [unit, size] = Object.entries(unitMs).findLast(([, each]) => ms >= each && ms % each === 0) ?? [
    'ms',
    1
  ]
  return `${ms / size}${unit}`
}
