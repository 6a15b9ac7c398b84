import { setMaxListeners } from 'node:events'
import type { Logger } from '../runtime/logger.ts'
import type { Broker } from './broker.ts'
import type { Guard } from './egress/guard.ts'
import { Failure } from './failure.ts'
import { unfit } from './judged.ts'
import { sleep } from '../runtime/repeat.ts'

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

/** Messages that are handled at a time. */
export const atATime = 100
/** What a message holds beside its bytes, and each of its headers, roughly. */
const [overhead, ofHeader] = [1_024, 100]
/** The pause before a receipt is handled again. */
export const laterMs = 1_000

/** More bytes than may be held: of messages larger than any receipt, or of more than were asked for. */
export class TooMuch extends Failure {
  constructor() {
    super(unfit(`more than ${heldMost} bytes of messages at a time`).outcome)
  }
}

/**
 * One for each broker, and not one for each connection: while PostgreSQL hangs, what a lost connection brought is still there when
 * the next one brings more.
 */
export interface InHand {
  /** How many more may be taken: none while a large one could be too much. */
  room(): number
  /** Throws TooMuch and does not begin where more would be held than may be; one alone may always begin. */
  begin(message: ReceiptMessage, handling: () => Promise<unknown>): void
  /** Resolves when one has ended; at once where there is none. */
  oneEnded(): Promise<void>
  allEnded(): Promise<void>
}

export function inHand(): InHand {
  const open = new Set<Promise<void>>()
  let held = 0
  return {
    room: () => (held + messageMost > heldMost ? 0 : Math.max(0, atATime - open.size)),

    begin(message, handling) {
      const size = sizeOf(message)
      if (held > 0 && held + size > heldMost) throw new TooMuch()
      held += size
      const ended = (): void => {
        open.delete(one)
        held -= size
      }
      const one: Promise<void> = handling().then(ended, ended)
      open.add(one)
    },

    async oneEnded() {
      if (open.size > 0) await Promise.race(open)
    },

    async allEnded() {
      await Promise.all(open)
    }
  }
}

function sizeOf({ body, headers }: ReceiptMessage): number {
  let size = overhead + body.length
  for (const [name, text] of Object.entries(headers)) size += ofHeader + 2 * (name.length + text.length)
  return size
}

/** A signal for one connection's receipts. Each waiting receipt listens to it, and Node must not warn of a leak. */
export function anyOf(...signals: AbortSignal[]): AbortSignal {
  const any = AbortSignal.any(signals)
  setMaxListeners(0, any)
  return any
}

/** Handles a message until it is done. False: the signal aborted before. */
export async function handled(
  handle: Handle,
  message: ReceiptMessage,
  signal: AbortSignal
): Promise<boolean> {
  // An exception over one message must not stop the others.
  while ((await handle(message).catch(() => 'later' as const)) === 'later') {
    await sleep(laterMs, signal)
    if (signal.aborted) return false
  }
  return true
}

/**
 * Takes receipts by `take` again and again, until the signal aborts. `take` returns what went wrong, after which there is a rest;
 * undefined: nothing. What keeps receipts from coming is logged once, and once when it is over; `about` names the queue in these lines.
 */
export async function keepTaking(
  log: ReceiptConsumerDeps['log'],
  about: object,
  waitMost: number,
  signal: AbortSignal,
  take: (onReady: (more?: object) => void) => Promise<string | undefined>
): Promise<void> {
  let failures = 0
  const onReady = (more?: object): void => {
    if (failures > 0) log.info({ ...about, ...more }, 'receipts.available')
    failures = 0
  }
  while (!signal.aborted) {
    const reason = await take(onReady)
    if (signal.aborted) return
    if (reason === undefined) continue
    if (failures++ === 0) log.warn({ ...about, reason }, 'receipts.unavailable')
    await sleep(Math.min(waitMost, 250 * 2 ** failures), signal)
  }
}
