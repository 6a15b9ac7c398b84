// The receipts of one broker that are being handled: up to a hundred, and of a bounded size.
import { setMaxListeners } from 'node:events'
import { Failure } from './egress/guard.ts'
import { unfit } from './judged.ts'
import { heldMost, messageMost, type Handle, type ReceiptMessage } from './receipts.ts'
import { sleep } from '../runtime/repeat.ts'

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
