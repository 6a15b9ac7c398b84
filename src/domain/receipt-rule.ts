// What a receipt does to a delivery. Pure: without clock or I/O.
import { decide, type DeliveryTries, type Policy } from './retry-policy.ts'
import type { Move } from './transitions.ts'
import type { Phase, ReceiptResult, Status } from './types.ts'

/** The delivery that a receipt is about, as it was read. */
interface Found {
  status: Status
  phase: Phase | null
  attempt: number
  roundFrom: number
  /** ms since it was first delivered in this round; null: it was not. */
  deliveredMs: number | null
}

/** How long after the delivery PROCESSING extends the wait for the last receipt. ms. */
const processingMs = 24 * 3_600_000

/**
 * Whether the delivery still takes a receipt for this attempt. A receipt other than HANDLED may count and still change nothing, such as
 * PROCESSING before the outcome of its attempt is written. The hook changes only HANDLED, and no other result counts longer.
 */
export function receiptCounts(
  result: ReceiptResult,
  attempt: number,
  found: Pick<Found, 'status' | 'attempt' | 'roundFrom'>
): boolean {
  if (attempt < found.roundFrom || attempt > found.attempt) return false
  if (result === 'HANDLED') return found.status === 'SENDING' || found.status === 'FAILED'
  return attempt === found.attempt && found.status === 'SENDING'
}

/** The move for a receipt. Null: it changes nothing and is only stored. */
export function moveOnReceipt(
  result: ReceiptResult,
  attempt: number,
  found: Found & DeliveryTries,
  policy: () => Policy,
  random: number
): Pick<Move, 'name' | 'handledBy' | 'ifStill' | 'afterMs' | 'reason'> | null {
  if (!receiptCounts(result, attempt, found)) return null
  if (result === 'HANDLED') {
    const move = { name: 'receive', handledBy: 'receipt' } as const
    return found.status === 'SENDING' ? { ...move, ifStill: 'SENDING' } : move
  }
  if (result === 'PROCESSING') {
    const leftMs = found.deliveredMs === null ? 0 : processingMs - found.deliveredMs
    if (found.phase === 'IN_FLIGHT' || leftMs <= 0) return null
    return { name: 'extend', afterMs: Math.min(policy().receiptTimeoutMs, leftMs) }
  }
  // It already waits for its next try. Only FAILED still changes that.
  if (result === 'RETRY' && found.phase === 'WAITING') return null
  const { move: name, ...more } = decide({ kind: 'receipt', result }, found, policy(), random)
  return { name, ...more }
}
