// What arrived more than once, and why. At least once means that this may happen; never that it may happen for no reason.
import type { Arrival, Fault } from '../history.ts'
import { concurrency, downstreamsOf, leaseMs, receiptTimeoutMs, sharing, timeoutMs } from '../terms.ts'
import { asked, found, isOk, type Case, type Evidence } from './evidence.ts'
import type { Finding } from './finding.ts'

export interface Duplicates {
  /** Arrivals beyond the first of each delivery. */
  extra: number
  /** How many of them each cause explains. */
  causes: Record<string, number>
  unexplained: Finding[]
}

export function duplicates(evidence: Evidence): Duplicates {
  const causes: Record<string, number> = {}
  const unexplained: Finding[] = []
  const byKill = new Map<Fault, number>()
  let extra = 0
  for (const one of evidence.cases) {
    one.arrivals.slice(1).forEach((arrival, at) => {
      extra++
      const before = one.arrivals[at] as Arrival
      const cause = causeOf(evidence, one, before, arrival)
      if (cause !== undefined) {
        const name = typeof cause === 'string' ? cause : cause.action
        causes[name] = (causes[name] ?? 0) + 1
        if (typeof cause !== 'string') byKill.set(cause, (byKill.get(cause) ?? 0) + 1)
        return
      }
      const gap = arrival.at - before.at
      const detail = `attempt ${arrival.attempt} came ${gap} ms after attempt ${before.attempt}, answered ${before.answer}`
      unexplained.push(found(one, 'unexplained', detail))
    })
  }
  // A worker that dies takes along what it had under way, and no more.
  const most = concurrency * Object.values(downstreamsOf).flat().length
  for (const [{ action, target }, count] of byKill)
    if (action === 'kill.worker' && count > most)
      unexplained.push({
        charge: 'unexplained',
        detail: `${count} for one kill of ${target}, ${most} at most`
      })
  return { extra, causes, unexplained }
}

/** It is logged once in so long. */
const silenceMs = 10_000

/** Why it was sent again after `before`; undefined when nothing tells. */
function causeOf(
  { faultsIn, history, connections }: Evidence,
  one: Case,
  before: Arrival,
  arrival: Arrival
): string | Fault | undefined {
  if (!isOk(Number(before.answer))) return `answer ${before.answer}`
  // A delivery that waited in its queue has less than its whole timeout left, but never less than half.
  if (before.answeredAt === undefined && arrival.at - before.at > timeoutMs / 2) return 'timeout'
  if (sharing.includes(one.downstream)) {
    const neighbour = neighbourOf(connections.get(before.connection) ?? [], before, arrival)
    if (neighbour) return `neighbour ${neighbour.answer}`
  }
  const between = one.receipts.filter(
    receipt => receipt.attempt === before.attempt && receipt.token === 'good'
  )
  if (between.some(({ result, tries }) => result === 'RETRY' && tries.some(({ at }) => at <= arrival.at)))
    return 'receipt RETRY'
  // What was loaded before the receipt was in may still be sent, while its lease lasts.
  const applied = one.receipts.some(
    ({ result, tries }) =>
      result === 'HANDLED' &&
      tries.some(({ applied, at, ms }) => applied === true && at + ms + leaseMs < arrival.at)
  )
  const waited = arrival.at - (before.answeredAt ?? before.at)
  if (one.owed && !applied && waited > receiptTimeoutMs * 0.95) return 'no receipt in time'
  const again = asked(one, 'redeliver').flatMap(call => call.tries)
  if (again.some(({ at }) => at > before.at - 100 && at < arrival.at)) return 'redelivered'
  const until = Math.min(arrival.at, before.at + timeoutMs + 1_000)
  // Whoever had it was killed or stood still, or what came of it could not be written in time.
  for (const [action, after] of [
    ['kill.worker', 0],
    ['stop.worker', 0],
    ['postgres.', 2_000],
    ['redis.', 1_000]
  ] as const) {
    const faults = faultsIn(before.at - 200, until, fault => fault.action.startsWith(action), after)
    if (faults[0]) return faults[0]
  }
  // A hint without an answer in 250 ms is released; if the queue had it, a worker may have been faster than the release.
  const isSilent = history.queueSilent.some(at => at > before.at - silenceMs && at < arrival.at)
  return isSilent ? 'hint given up' : undefined
}

/** What has left the sink is not yet read by the service, and is lost if the connection ends within this. */
const unreadMs = 500

/**
 * Whoever shares a connection waits for those before it, and ends with it: by a reset, or when the service gives up one that
 * hangs or is late, after half its timeout at the earliest. The one that ended it while `before` was on it.
 */
function neighbourOf(onIt: readonly Arrival[], before: Arrival, arrival: Arrival): Arrival | undefined {
  return onIt.find(({ taskNo, at, answer }) => {
    if (taskNo === before.taskNo || !['reset', 'hang', 'late'].includes(answer)) return false
    const [from, to] = answer === 'reset' ? [at, at] : [at + timeoutMs / 2, at + timeoutMs]
    const isGone = (before.answeredAt ?? Infinity) + unreadMs < from
    return before.at < to + unreadMs && !isGone && arrival.at > from
  })
}
