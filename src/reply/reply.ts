import type { Broker } from '../transport/broker.ts'
import type { Guard } from '../transport/guard.ts'

/** Where receipts wait on every broker: a queue, a topic, a subject of that name. */
export const address = 'ackbox.receipts'

/** A receipt as a queue brought it: the JSON of POST /callback, and the token among its headers (lower case names). */
export interface Reply {
  body: Uint8Array
  headers: Record<string, string>
}

/**
 * done: written, or good for nothing and said so; it may leave the queue. later: PostgreSQL is away or we have a bug; it must
 * come again.
 */
export type Handle = (reply: Reply) => Promise<'done' | 'later'>

export interface ReplyDeps {
  broker: Broker
  guard: Guard
  log: { info(fields: object, message: string): void; warn(fields: object, message: string): void }
}

/**
 * Takes receipts until `signal` aborts; up to 100 are handled at a time. A message leaves the queue only after `handle` said
 * done. Reconnects for ever; a broker or queue that is not there is said once, and when it is over.
 */
export type Consume = (deps: ReplyDeps, handle: Handle, signal: AbortSignal) => Promise<void>
