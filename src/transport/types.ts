import type { Logger } from '../runtime/logger.ts'
import type { Outcome } from '../domain/types.ts'
import type { Broker } from './broker.ts'
import type { Guard } from './egress/guard.ts'

/** The input of every transport, in addition to the handler's request. */
export interface SendContext {
  downstream: string
  /** Ms from now until the absolute deadline: DNS, connect, TLS, write, headers and body fit in it. */
  timeoutMs: number
  /** The limit of the downstream; see LoadedDownstream. Only HTTP uses it. */
  limit?: { concurrency: number; pipelining?: number }
  /** Aborts at the shutdown of the process. The outcome is then failed, `shutdown`. */
  signal: AbortSignal
  /** The text of the task's messageBody. It is sent if a request has no payload of its own. */
  raw?: string
  /** The orderingKey of the task: the key of a message whose request has none. */
  orderingKey?: string
  /** The headers of Ackbox (webhook-id … ackbox-callback-token), lower case, signed over exactly this payload. */
  headers(payload: string | Uint8Array): Record<string, string>
}

/** The argument of `accepted`. `json` is parsed on first use, from at most 64 kB; undefined when it is not JSON. */
export interface Answer {
  status: number
  headers: Record<string, string>
  readonly json: unknown
  readonly text: string
}

/** true: delivered. false: failed, a retry may succeed. 'refused': the downstream will never accept this task. */
export type Verdict = boolean | 'refused'
export type Accepted = (answer: Answer) => Verdict

/** Sends an attempt. `send` never rejects because of a cause outside of this process: such a cause becomes an outcome. */
export interface Transport<Request = unknown> {
  readonly name: string
  send(request: Request, context: SendContext, accepted?: Accepted): Promise<Outcome>
  close(): Promise<void>
}

export interface TransportDeps {
  guard: Guard
  /** By the name that handlers use. */
  brokers: ReadonlyMap<string, Broker>
  log: Pick<Logger, 'info' | 'warn'>
}
