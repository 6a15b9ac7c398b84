import type { Logger } from '../runtime/logger.ts'
import type { Broker } from './broker.ts'
import type { Guard } from './egress/guard.ts'

/** Where receipts wait on every broker: a queue, a topic, a subject of that name. */
export const address = 'ackbox.receipts'

/**
 * Of one message. A receipt over HTTP has 80 kB at most; a message that is larger than this ends the connection before it is
 * read, whatever else it may be.
 */
export const messageMost = 2_097_152
/** Of all that are being handled. Who sends more than that, or more than was asked for, loses the connection. */
export const heldMost = 8_388_608

/** A receipt as a queue brought it: the JSON of POST /callback, and the token among its headers (lower case names). */
export interface ReceiptMessage {
  body: Uint8Array
  headers: Record<string, string>
}

/**
 * done: written, or good for nothing and said so; it may leave the queue. later: PostgreSQL is away or we have a bug; it must
 * come again.
 */
export type Handle = (reply: ReceiptMessage) => Promise<'done' | 'later'>

export interface ReceiptConsumerDeps {
  broker: Broker
  guard: Guard
  log: Pick<Logger, 'info' | 'warn'>
}

/**
 * Takes receipts until `signal` aborts; up to 100 are handled at a time. A message leaves the queue only after `handle` said
 * done. Reconnects for ever; a broker or queue that is not there is said once, and when it is over.
 */
export type Consume = (deps: ReceiptConsumerDeps, handle: Handle, signal: AbortSignal) => Promise<void>
