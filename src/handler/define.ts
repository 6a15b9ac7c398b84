import type { z } from 'zod'
import type { ReceiptResult, Task } from '../domain/types.ts'
import type { DubboRequest } from '../transport/dubbo/triple.ts'
import type { Dubbo2Request } from '../transport/dubbo/hessian.ts'
import type { HttpRequest } from '../transport/http/http.ts'
import type { KafkaRequest } from '../transport/kafka/kafka.ts'
import type { NatsRequest } from '../transport/nats/nats.ts'
import type { RabbitmqRequest } from '../transport/rabbitmq/rabbitmq.ts'
import type { RedisStreamRequest } from '../transport/redis-stream/redis-stream.ts'
import type { RocketmqRequest } from '../transport/rocketmq/rocketmq.ts'
import type { CustomOutcome, CustomRequest, CustomTools } from '../transport/custom.ts'
import type { Answer, Verdict } from '../transport/types.ts'

// Handlers import everything from here: import { defineHandler, z, env, url } from 'ackbox/handler'
export { z } from 'zod'
export { url } from '../transport/url.ts'
export { env } from './env.ts'

// A member and not an alias: for an alias, a compiler error shows only 'Duration' and not its forms.
interface Forms {
  duration: number | `${number}ms` | `${number}s` | `${number}m` | `${number}h` | `${number}d`
}

/** A duration such as '500ms', '10s', '1m', '2h', '1d', or a number of milliseconds. */
export type Duration = Forms['duration']

const unitMs: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Whole milliseconds, or undefined if it is not a duration. */
export function durationMs(value: unknown): number | undefined {
  if (typeof value === 'number') return Number.isFinite(value) && value >= 0 ? Math.round(value) : undefined
  if (typeof value !== 'string') return undefined
  const [, number, unit] = /^(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)$/.exec(value) ?? []
  return number && unit ? Math.round(Number(number) * (unitMs[unit] ?? 0)) : undefined
}

/** The shortest form: 90000 is '90s', 60000 is '1m'. */
export function durationText(ms: number): string {
  const [unit, size] = Object.entries(unitMs).findLast(([, each]) => ms >= each && ms % each === 0) ?? [
    'ms',
    1
  ]
  return `${ms / size}${unit}`
}

/** A body may also be an object or an array: Ackbox writes it as JSON, and NaN or a lost member in it is an error. */
type WithJson<Request, Name extends keyof Request> = Omit<Request, Name> & {
  [Member in Name]?: Request[Name] | object
}

/** The result of `request` for each transport. A new transport adds one line. */
export interface Requests {
  http: WithJson<HttpRequest, 'body'>
  dubbo: DubboRequest
  dubbo2: Dubbo2Request
  custom: CustomRequest
  rabbitmq: WithJson<RabbitmqRequest, 'body'>
  kafka: WithJson<KafkaRequest, 'value'>
  rocketmq: WithJson<RocketmqRequest, 'body'>
  nats: WithJson<NatsRequest, 'payload'>
  'redis-stream': RedisStreamRequest
}
export type TransportName = keyof Requests
/** Transports whose downstream answers. `json` is also the result of an RPC. */
type Answering = 'http' | 'dubbo' | 'dubbo2'

export type Awaitable<T> = T | Promise<T>

/** The argument of a downstream's hooks. `body` is the messageBody as parsed by the schema. */
export interface About<Body> {
  task: Readonly<Task>
  body: Body
}

export interface AboutAttempt<Body> extends About<Body> {
  /** Rises with every claim of this delivery. Gaps are possible. */
  attempt: number
}

/** `body` is parsed on first use. Read it from this object: a copy made by `...` does not have it. */
export interface Sending<Body> extends AboutAttempt<Body> {
  /** The messageBody exactly as posted. Send it to deliver the text without any change. */
  raw: string
  /** The same on every attempt. The downstream gets it as `webhook-id` and can deduplicate by it. */
  deliveryId: string
}

/** JSON of unknown shape. Any member can be read: `json?.code === 0`, `json?.data?.id === '7'`. */
export type AskableJson = { readonly [name: string]: AskableJson | undefined } & (string | number | boolean)

/** The answer of a downstream. `json` is undefined if it is not JSON. */
export type HandlerAnswer = Omit<Answer, 'json'> & { readonly json: AskableJson | null | undefined }

// Members and not aliases: a compiler error shows only the name of an alias, but all allowed values of a member.
interface Answers {
  beforeSend: void | { skip: boolean } | { postponeMs: number }
  onReceipt: ReceiptResult | { result?: ReceiptResult; extend?: { [name: string]: unknown } } | void
}

/** The result of `beforeSend`. Undefined: send it. */
export type BeforeSend = Answers['beforeSend']

/** The result of an attempt, for `afterSend`. It is a copy: changing it has no effect. */
export interface AttemptOutcome {
  /** `probed`: nothing was sent, because the probe found that the downstream has handled the task. */
  readonly kind: 'delivered' | 'probed' | 'refused' | 'failed'
  /** Why it is not delivered: a stable word, perhaps with details behind a colon. */
  readonly reason?: string
  /** The HTTP status, or the closest equivalent of the transport. */
  readonly status?: number
  /** The broker's own id of the message. */
  readonly messageId?: string
  /** From the start of the attempt to its answer. */
  readonly ms: number
}

export interface AboutOutcome<Body> extends AboutAttempt<Body> {
  outcome: AttemptOutcome
}

/**
 * Asks a downstream whether it has handled a task. Runs before a send that may be a repetition: an earlier attempt may have
 * arrived (timeout, broken connection, lost lease, no receipt in time). It may use at most half of the attempt's timeout.
 */
export interface Probe<Name extends TransportName, Body> {
  /** Builds the request of the probe, like `request` of the downstream. HTTP: GET by default, and without a body. */
  request(about: AboutAttempt<Body>): Awaitable<Requests[Name]>
  /**
   * Whether the answer means that the downstream has handled the task. Only `true` means yes. Called for a 2xx, a 404, a 410
   * or an RPC result. Any other result, or an exception, counts as no answer.
   */
  handled(answer: HandlerAnswer, about: About<Body>): AskableJson | boolean | null | undefined
  /** If true, a task is never sent again without an answer: the attempt fails, and the next one probes again. Default: it is sent. */
  required?: boolean
}

/** The outgoing part of a downstream: a `request` for the transport or, for `custom`, the handler's own `send`. */
type Leaves<Name extends TransportName, Body> = [Name] extends ['custom']
  ? {
      /**
       * Sends the task, under the same deadline as every transport, and returns the outcome. The egress guard does not check it:
       * never connect to an address that came with the task.
       */
      send(about: Sending<Body>, tools: CustomTools): Awaitable<CustomOutcome>
    }
  : {
      /** Builds the request, again for every attempt. An exception fails only that attempt. */
      request(about: Sending<Body>): Awaitable<Requests[Name]>
    }

/** Compares on a schedule the tasks that a downstream has handled with those that are HANDLED here. Each difference is a MISMATCH alarm. */
export interface Reconcile {
  /** '1m' to '31d'. The first run starts this long after the handler was first loaded. */
  every: Duration
  /** Tasks younger than this are left to the next run: they may still be in delivery. Default '10m'. */
  settle?: Duration
  /**
   * Returns every taskNo of this messageCode that the downstream has handled, for tasks created in [from, to). Other taskNos do no harm;
   * at most 1,000,000. Only one process calls it at a time. `signal` aborts after five minutes, or when the process stops.
   */
  run(about: {
    downstream: string
    from: Date
    to: Date
    signal: AbortSignal
  }): Awaitable<Iterable<string> | AsyncIterable<string>>
}

/** One destination of a handler. Only `transport` and `request` (of `custom`: `send`) are required. */
export type Downstream<Name extends TransportName, Body> = Leaves<Name, Body> & DownstreamOptions<Name, Body>

export interface DownstreamOptions<Name extends TransportName, Body> {
  transport: Name
  /**
   * Called once, when the task is accepted. If it returns false, this downstream does not get the task. Without a boolean, as from an
   * async function, it does.
   */
  when?(about: About<Body>): boolean
  /** Called before every attempt. `{ skip: true }` ends the delivery, `{ postponeMs }` postpones it. Nothing, or `{ skip: false }`: it is sent. */
  beforeSend?(about: AboutAttempt<Body>): Awaitable<BeforeSend>
  /**
   * Called with the outcome of every attempt, once it is stored. It cannot change the outcome: an exception, or more than 5 s, is
   * only logged. Not called for attempts whose process died.
   */
  afterSend?(about: AboutOutcome<Body>): Awaitable<void>
  /** Asks the downstream before sending again. Only for transports whose downstream answers: http, dubbo, dubbo2. */
  probe?: Name extends Answering ? Probe<Name, Body> : never
  reconcile?: Reconcile
  /**
   * Whether the answer means success. Default: any 2xx, or an RPC result without an exception. 'refused': do not retry.
   * A queue gives no answer, only a confirmation. Of a body 64 kB are read, and what comes within 2 s after the headers; if
   * `accepted` reads a body that is cut, the attempt fails.
   */
  accepted?: Name extends Answering ? (answer: HandlerAnswer, about: About<Body>) => Verdict : never
  /**
   * If true, the delivery is HANDLED only after its receipt. A task's `needCallback` overrides this, even with `false`. A downstream
   * without `needCallback` never expects a receipt.
   */
  needCallback?: boolean
  /**
   * The effect of a FAILED delivery on those behind it with the same orderingKey. 'hold' (default): they wait until it is redelivered,
   * or its key is released. 'skip': they continue at once. Must be the same in every handler that names this downstream.
   */
  onFailed?: 'hold' | 'skip'
  /** How long to wait for the receipt before the next try. Default '60s'. */
  receiptTimeout?: Duration
  retry?: {
    /** Number of tries, including the first: 1 to 100. Default 10. */
    times?: number
    /** Waits between tries: 'exponential' (10 s, 20 s … 1 h; the default), one fixed wait, or a list whose last wait repeats. */
    backoff?: 'exponential' | Duration | Duration[]
  }
  /** Must be the same in every handler that names this downstream. */
  limit?: {
    /** Parallel requests over all workers. Default 50. */
    concurrency?: number
    /** Requests per second over all workers. Default: no limit. */
    perSecond?: number
    /** Time from DNS to the last byte of the answer, at most 2 s of it for the body after its headers. Default '10s'. */
    timeout?: Duration
    /**
     * HTTP only: open requests on one connection, each written before the earlier ones are answered. Default 1. Use more
     * only for your own fast downstreams: one slow answer delays those behind it.
     */
    pipelining?: number
  }
  /**
   * 'cloudevents': the request is a CloudEvent 1.0 in binary mode, its attributes are headers `ce-…`, or `ce_…` for Kafka. The body
   * stays as it is.
   */
  format?: Name extends 'http' | 'kafka' ? 'cloudevents' : never
  /**
   * Signing secrets (`whsec_…`) instead of the one derived from SECRET, the newest first. A signature of each is sent.
   * All handlers that name the downstream need the same.
   */
  secrets?: string[]
}

/** A receipt as `onReceipt` gets it. */
export interface HandlerReceipt {
  result: ReceiptResult
  reason?: string
  data?: unknown
  downstream: string
  attempt: number
}

/**
 * The result of `onReceipt`. Undefined, or without `result`: keep the result of the receipt. `extend` replaces the task's `extend`,
 * which is shown with the task and never delivered: an object of at most 1,024 characters of JSON.
 */
export type OnReceipt = Answers['onReceipt']

/** The URL and the extra headers of a check. Ackbox adds the body and the signature. */
export interface CheckBackRequest {
  url: HttpRequest['url']
  headers?: Record<string, string>
}

/** Builds the check of a half message: its producer has neither committed nor rolled it back. */
export type CheckBack = (about: { task: Readonly<Task> }) => Awaitable<CheckBackRequest>

export interface HandlerDefinition<Schema extends z.ZodType, Ways extends Record<string, TransportName>> {
  /** The `messageCode` of the tasks. Each code has one handler. */
  messageCode: string
  /** The schema of messageBody. The POST of a wrong body is answered with 422. It also gives `body` its type in the hooks. */
  body: Schema
  /**
   * If true, a member that is undefined in a body that is given as a value fails the attempt. Otherwise it is left out, with a warning in the log.
   * NaN, ±Infinity and undefined in an array always fail it.
   */
  strictBody?: boolean
  /** Name → destination. Names are global: handlers with the same downstream share its queue, limits and pause. */
  downstreams: { [Name in keyof Ways]: Downstream<Ways[Name], z.output<Schema>> }
  /** May change a receipt's HANDLED to RETRY or FAILED, and may set the task's `extend`. An exception means RETRY. */
  onReceipt?(about: { receipt: HandlerReceipt } & About<z.output<Schema>>): Awaitable<OnReceipt>
  /**
   * The check of a half message (`prepared: true`) that was neither committed nor rolled back. Without it, this messageCode
   * accepts no half messages. The producer answers 200 and `{"state": "COMMITTED" | "ROLLED_BACK" | "UNKNOWN"}`.
   */
  checkBack?: CheckBack
}

/** The template for one messageCode. Export it as default from a file in `handlers/`. */
export function defineHandler<Schema extends z.ZodType, const Ways extends Record<string, TransportName>>(
  handler: HandlerDefinition<Schema, Ways>
): HandlerDefinition<Schema, Ways> {
  return handler
}
