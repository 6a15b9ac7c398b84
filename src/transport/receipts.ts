import { setMaxListeners } from 'node:events'
import type { Logger } from '../runtime/logger.ts'
import type { Broker } from './broker.ts'
import type { Guard } from './egress/guard.ts'
import { Failure } from './failure.ts'
import { protocolFailure } from './judged.ts'
import { sleep } from '../runtime/repeat.ts'

/** The queue, topic, subject or stream of the receipts. RocketMQ's topic has another name: no dot is allowed there. */
export const receiptQueue = 'ackbox.receipts'

/**
 * Bytes of one message. A receipt over HTTP has at most 80 kB. A message larger than this limit ends the connection before it
 * is read.
 */
export const messageMost = 2_097_152
/** Bytes of all messages that are being handled. A broker that sends more, or more than was requested, loses the connection. */
export const heldMost = 8_388_608

/** A receipt from a queue: the JSON of POST /callback, and headers with lower case names, the token among them. */
export interface ReceiptMessage {
  body: Uint8Array
  headers: Record<string, string>
}

/**
 * done: the receipt is stored, or it is useless and that is logged; it may leave the queue. later: PostgreSQL is away or we have
 * a bug; it is handled again.
 */
export type TakeReceipt = (receipt: ReceiptMessage) => Promise<'done' | 'later'>

export interface ReceiptReaderDeps {
  broker: Broker
  guard: Guard
  log: Pick<Logger, 'info' | 'warn'>
}

/**
 * Takes receipts until `signal` aborts; up to 100 are handled at a time. A message leaves the queue only after `takeReceipt` returned
 * done. Reconnects for ever; a missing broker or queue is logged once, and once when it is available again.
 */
export type ReadReceipts = (
  deps: ReceiptReaderDeps,
  takeReceipt: TakeReceipt,
  signal: AbortSignal
) => Promise<void>

/** The number of messages that are handled at a time. */
export const atATime = 100
/** The approximate memory of a message beside its bytes, and of each of its headers. */
const [overhead, ofHeader] = [1_024, 100]
/** The pause before a receipt is handled again. */
export const laterMs = 1_000

/** More bytes than may be held: messages larger than any receipt, or more messages than were requested. */
export class TooMuch extends Failure {
  constructor() {
    super(protocolFailure(`more than ${heldMost} bytes of messages at a time`).outcome)
  }
}

/**
 * The messages being handled. One object for each broker, not for each connection: while PostgreSQL hangs, the messages of a lost
 * connection are still in memory when the next connection brings more.
 */
export interface InHand {
  /** The number of messages that may be taken now. 0 while one more of the largest size would be too much. */
  room(): number
  /** Throws TooMuch, without handling the message, if it exceeds the limit. A message alone may always begin. */
  begin(message: ReceiptMessage, handling: () => Promise<unknown>): void
  /** Resolves when a message has ended; at once if there is none. */
  oneEnded(): Promise<void>
  allEnded(): Promise<void>
}

export function inHand(): InHand {
  const open = new Set<Promise<void>>()
  let held = 0
  /** Not a race of `open`: each would add to a receipt that stays open for hours. */
  let waiting: (() => void)[] = []
  return {
    room: () => (held + messageMost > heldMost ? 0 : Math.max(0, atATime - open.size)),

    begin(message, handling) {
      const size = sizeOf(message)
      if (held > 0 && held + size > heldMost) throw new TooMuch()
      held += size
      const ended = (): void => {
        open.delete(work)
        held -= size
        const resolved = waiting
        waiting = []
        for (const resolve of resolved) resolve()
      }
      const work: Promise<void> = handling().then(ended, ended)
      open.add(work)
    },

    async oneEnded() {
      if (open.size > 0) await new Promise<void>(resolve => waiting.push(resolve))
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

/** Takes a receipt, again and again until it is done. False: the signal aborted first. */
export async function takeUntilDone(
  takeReceipt: TakeReceipt,
  message: ReceiptMessage,
  signal: AbortSignal
): Promise<boolean> {
  // An exception over one message must not stop the others.
  while ((await takeReceipt(message).catch(() => 'later' as const)) === 'later') {
    await sleep(laterMs, signal)
    if (signal.aborted) return false
  }
  return true
}

/** What `take` reports to `keepTaking`. */
export interface ReaderEvents {
  /** It is open, but may still be unable to read: the login may lack the right. `more` is for the log. */
  onOpen(more?: object): void
  /** A read has succeeded. */
  onRead(): void
}

/**
 * Calls `take` again and again, until the signal aborts. If `take` returns a reason for its end, a rest follows; if undefined, none.
 * A problem that stops the receipts is logged once, and once when it is over: `take` has read, or stayed open for `waitMost`. `about`
 * names the queue in these log lines.
 */
export async function keepTaking(
  log: ReceiptReaderDeps['log'],
  about: object,
  waitMost: number,
  signal: AbortSignal,
  take: (events: ReaderEvents) => Promise<string | undefined>
): Promise<void> {
  let failures = 0
  while (!signal.aborted) {
    let opened: object | undefined
    let lasting: NodeJS.Timeout | undefined
    const onRead = (): void => {
      clearTimeout(lasting)
      if (failures > 0) log.info({ ...about, ...opened }, 'receipts.available')
      failures = 0
    }
    const onOpen = (more?: object): void => {
      opened = more
      if (failures > 0) lasting = setTimeout(onRead, waitMost)
    }
    const reason = await take({ onOpen, onRead })
    clearTimeout(lasting)
    if (signal.aborted) return
    if (reason === undefined) continue
    if (failures++ === 0) log.warn({ ...about, reason }, 'receipts.unavailable')
    await sleep(Math.min(waitMost, 250 * 2 ** failures), signal)
  }
}
