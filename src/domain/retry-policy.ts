import type { AttemptEnd, Backoff, HandledBy, Reason } from './types.ts'

/** The history of a half message at a check. The counts do not include this check. */
export interface CheckHistory {
  answered: number
  unanswered: number
  /** Time since it was prepared. */
  ageMs: number
  /** The wait that its producer requested, before the first check and between checks. */
  checkAfterMs: number
}

const hourMs = 3_600_000
const firstMs = 10_000
/** After this many UNKNOWN answers, or after `stuckAfterMs`, a half message is stuck: an operator must be informed. */
const mostAnswered = 15
const stuckAfterMs = 24 * hourMs

/**
 * The wait until the next check, after a check that left it open. The checks never stop: only the producer or an operator may
 * decide it. `random` in [0, 1) is the jitter of the backoff.
 */
export function nextCheck(
  answer: 'UNKNOWN' | 'NONE',
  { answered, unanswered, ageMs, checkAfterMs }: CheckHistory,
  random: number
): { waitMs: number; isStuck: boolean } {
  const isStuck = answered + (answer === 'UNKNOWN' ? 1 : 0) >= mostAnswered || ageMs >= stuckAfterMs
  if (isStuck) return { waitMs: hourMs, isStuck }
  if (answer === 'UNKNOWN') return { waitMs: checkAfterMs, isStuck }
  const waitMs = Math.min(hourMs, firstMs * 2 ** Math.min(unanswered, 30))
  return { waitMs: waitMs * (0.9 + random / 5), isStuck }
}

/** The retry policy of a downstream. `times`: tries including the first. Undefined: the default. */
export interface Policy {
  times: number | undefined
  backoff: Backoff
  receiptTimeoutMs: number
}

const defaultTimes = 10
export const defaultBackoff: Backoff = { kind: 'exponential', firstMs: 10_000, maxMs: 3_600_000 }

/** The longest wait that a downstream's `Retry-After` can request. */
const retryAfterCapMs = 3_600_000
/** The shortest wait after errors that an operator must fix (a blocked target, a bad certificate). */
const slowMs = 60_000
/** The number of lost leases of a round that do not count as tries: they may be our own fault. */
const lostForFree = 2

/** For a downstream that no handler of this process names. */
export const defaultPolicy: Policy = {
  times: undefined,
  backoff: defaultBackoff,
  receiptTimeoutMs: 60_000
}

/** The input of the retry rule. The claim has already lowered `triesLeft`. */
export interface DeliveryTries {
  triesLeft: number
  lost: number
  needsReceipt: boolean
  /** The task's own `retryTimes`. It overrides that of the downstream and the default. */
  retryTimes: number | null
}

/** An event of a delivery that needs a decision. */
export type DeliveryEvent =
  | AttemptEnd
  /** Cut off by our own shutdown: the request may or may not have arrived. */
  | { kind: 'shutdown' }
  /** The lease ended. */
  | { kind: 'lost'; mayHaveBeenSent: boolean }
  /** The receipt timeout passed. */
  | { kind: 'no_receipt' }
  /** A receipt was RETRY or FAILED. */
  | { kind: 'receipt'; result: 'RETRY' | 'FAILED' }

export type Decision =
  | { move: 'handled' | 'probed'; handledBy: HandledBy }
  | { move: 'sent'; afterMs: number }
  | { move: 'retry'; afterMs: number }
  | { move: 'release' | 'lose'; afterMs: number }
  | { move: 'fail'; reason: Reason }

/** Tries of a round in total, including the first: the task's `retryTimes`, else the downstream's, else the default. */
export const effectiveRetryTimes = (retryTimes: number | null, policy: Policy): number =>
  retryTimes ?? policy.times ?? defaultTimes

/** Whether a claimed delivery is at its first counted try. Attempt numbers have gaps: a delivery that was not sent is claimed again. */
export const isFirstTry = (
  delivery: { attempt: number; roundFrom: number; lost: number; triesLeft: number },
  retryTimes: number
): boolean =>
  delivery.attempt <= 1 ||
  (delivery.roundFrom === 1 && delivery.lost === 0 && delivery.triesLeft === retryTimes - 1)

export const triesOf = (
  delivery: Omit<DeliveryTries, 'retryTimes'> & { task: Pick<DeliveryTries, 'retryTimes'> }
): DeliveryTries => ({
  triesLeft: delivery.triesLeft,
  lost: delivery.lost,
  needsReceipt: delivery.needsReceipt,
  retryTimes: delivery.task.retryTimes
})

/**
 * The only retry rule. It is pure, without clock or I/O. It decides after a send, a lost lease, a missing receipt, and a
 * receipt of RETRY or FAILED. `random` is in [0, 1) and gives the jitter.
 */
export function decide(event: DeliveryEvent, tried: DeliveryTries, policy: Policy, random: number): Decision {
  switch (event.kind) {
    case 'delivered':
      if (event.handled) return { move: 'handled', handledBy: 'answer' }
      if (tried.needsReceipt) return { move: 'sent', afterMs: policy.receiptTimeoutMs }
      return { move: 'handled', handledBy: 'send' }
    case 'probed':
      return { move: 'probed', handledBy: 'probe' }
    case 'refused':
      return { move: 'fail', reason: 'REFUSED' }
    case 'failed': {
      const floor = Math.max(event.alarm ? slowMs : 0, Math.min(event.retryAfterMs ?? 0, retryAfterCapMs))
      return again('SEND_EXHAUSTED', floor)
    }
    case 'no_receipt':
      return again('RECEIPT_TIMEOUT', 0)
    case 'receipt':
      return event.result === 'FAILED'
        ? { move: 'fail', reason: 'RECEIPT_FAILED' }
        : again('RECEIPT_FAILED', 0)
    case 'shutdown':
      return tried.lost < lostForFree ? { move: 'lose', afterMs: 0 } : again('SEND_EXHAUSTED', 0)
    case 'lost':
      if (!event.mayHaveBeenSent) return { move: 'release', afterMs: 0 }
      return tried.lost < lostForFree ? { move: 'lose', afterMs: 0 } : again('SEND_EXHAUSTED', 0)
  }

  function again(exhausted: Reason, floorMs: number): Decision {
    if (tried.triesLeft <= 0) return { move: 'fail', reason: exhausted }
    const tryNo = Math.max(1, effectiveRetryTimes(tried.retryTimes, policy) - tried.triesLeft)
    return { move: 'retry', afterMs: Math.max(floorMs, backoffMs(policy.backoff, tryNo, random)) }
  }
}

/** Wait after try `k` (1 for the first): its base ± 10 %, in whole ms. */
export function backoffMs(backoff: Backoff, k: number, random: number): number {
  const base =
    backoff.kind === 'exponential'
      ? Math.min(backoff.maxMs, backoff.firstMs * 2 ** Math.min(k - 1, 40))
      : (backoff.ms[Math.min(k, backoff.ms.length) - 1] ?? 0)
  return Math.round(base * (0.9 + 0.2 * random))
}
