import type { Logger } from '../runtime/logger.ts'
import type { Outcome } from '../domain/types.ts'
import type { Broker } from './broker.ts'
import type { Guard } from './egress/guard.ts'

/** What every transport is given beside the handler's own request. */
export interface SendContext {
  downstream: string
  /** Ms from now until the absolute deadline: DNS, connect, TLS, write, headers and body fit in it. */
  timeoutMs: number
  /** Of the downstream; see LoadedDownstream. Only HTTP looks at it. */
  limit?: { concurrency: number; pipelining?: number }
  /** Aborted when the process must let go (shutdown); the outcome is then failed, `shutdown`. */
  signal: AbortSignal
  /** The text of the task's messageBody: what is sent where a request names no payload of its own. */
  raw?: string
  /** The task's: the key of a message whose request has none. */
  orderingKey?: string
  /** Our headers (webhook-id … ackbox-callback-token), lower case, signed over exactly this payload. */
  headers(payload: string | Uint8Array): Record<string, string>
}

/** What `accepted` may look at. `json` is parsed on first use, from at most 64 kB; undefined when it is not JSON. */
export interface Answer {
  status: number
  headers: Record<string, string>
  readonly json: unknown
  readonly text: string
}

/** true: delivered. false: failed, it may take it later. 'refused': it will never take this one. */
export type Verdict = boolean | 'refused'
export type Accepted = (answer: Answer) => Verdict

/** Sends an attempt. `send` never rejects over anything outside of this process: that is an outcome. */
export interface Transport<Request = unknown> {
  readonly name: string
  send(request: Request, context: SendContext, accepted?: Accepted): Promise<Outcome>
  close(): Promise<void>
}

export interface TransportDeps {
  guard: Guard
  /** By name, as handlers name them. */
  brokers: ReadonlyMap<string, Broker>
  log: Pick<Logger, 'info' | 'warn'>
}
