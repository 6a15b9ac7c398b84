// Repeated arrivals, and their causes. Delivery at least once allows repeats, but no repeat without a cause.
import { isUnclear } from '../client.ts'
import type { Arrival, Fault, History, Try } from '../history.ts'
import { concurrency, downstreamsOf, leaseMs, receiptTimeoutMs, sharing, timeoutMs } from '../terms.ts'
import { callsOf, findingOf, isOk, wasSilenced, type Case, type Evidence } from './evidence.ts'
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
      unexplained.push(findingOf(one, 'unexplained', detail))
    })
  }
  // A killed worker loses at most the deliveries that it had in flight.
  const most = concurrency * Object.values(downstreamsOf).flat().length
  for (const [{ action, target }, count] of byKill)
    if (action.startsWith('kill.') && count > most)
      unexplained.push({
        charge: 'unexplained',
        detail: `${count} for one kill of ${target}, ${most} at most`
      })
  return { extra, causes, unexplained }
}

/** The effects last longer than the fault: clients must reconnect, and pending answers are written first. ms in which the machine works. */
const afterMs = { 'postgres.': 2_000, 'redis.': 1_000 }

/**
 * Why it was sent again after `before`. Undefined if there is no cause. It compares the times at which requests were built,
 * because the time of a read depends on the machine.
 */
function causeOf(
  evidence: Evidence,
  one: Case,
  before: Arrival,
  arrival: Arrival
): string | Fault | undefined {
  const { faultsIn, killOf, heldIn, hasWorked, connections, history } = evidence
  if (!isOk(Number(before.answer))) return `answer ${before.answer}`
  const outcome = one.seen?.attempts.find(({ attempt }) => attempt === before.attempt)?.outcome
  if (outcome !== 'delivered') {
    // A delivery that waited in its queue has less than its whole timeout left, but never less than half.
    const patience = before.builtAt + timeoutMs / 2
    const isShared = sharing.includes(one.downstream)
    // A sender that gives up ends the connection, unless another request waits on it.
    const isOver = isShared || (before.closedAfter ?? Infinity) <= arrival.at
    const isGivenUp = (before.answeredAt ?? Infinity) > patience && isOver
    const isUnread = isGivenUp || !hasWorked(before.builtAt, arrival.builtAt)
    if (isUnread && arrival.builtAt > patience) return 'timeout'
    if (isShared) {
      const neighbour = neighbourOf(connections.get(before.connection) ?? [], before, arrival, hasWorked)
      if (neighbour) return `neighbour ${neighbour.answer}`
    }
  }
  const between = one.receipts.filter(
    receipt => receipt.attempt === before.attempt && receipt.token === 'good'
  )
  if (between.some(({ result, tries }) => result === 'RETRY' && tries.some(({ at }) => at <= arrival.at)))
    return 'receipt RETRY'
  // A delivery that was loaded before the receipt may still be sent during its lease.
  const applied = one.receipts.some(
    ({ result, tries }) =>
      result === 'HANDLED' &&
      tries.some(({ applied, at, ms }) => applied === true && at + ms + leaseMs < arrival.builtAt)
  )
  if (one.owed && !applied && arrival.builtAt - before.builtAt >= receiptTimeoutMs)
    return 'no receipt in time'
  const again = callsOf(one, 'redeliver').flatMap(call => call.tries)
  // A redelivery without a clear answer may take effect at any later time.
  const isAgain = ({ at, ms, status }: Try) =>
    at < arrival.at && (isUnclear(status) || at + ms > before.builtAt)
  if (again.some(isAgain)) return 'redelivered'
  // Its sender was killed before it had written the outcome.
  const kill = outcome === undefined ? killOf(before.sender) : undefined
  if (kill && kill.from <= arrival.builtAt) return kill
  // During the lease its sender was stopped, or the outcome could not be written.
  const until = Math.min(arrival.builtAt, before.builtAt + leaseMs)
  const held = heldIn(before.sender, before.builtAt, until)
  if (held) return held
  for (const [action, after] of Object.entries(afterMs)) {
    const [fault] = faultsIn(before.builtAt, until, one => one.action.startsWith(action), after)
    if (fault) return fault
  }
  // Its sender could not beat for so long that it was declared dead, and others sent its deliveries.
  const isDead = (one: History['calledDead'][number]): boolean =>
    before.sender.startsWith(`${one.process}#`) &&
    one.at > before.builtAt &&
    one.at < before.builtAt + leaseMs + 10_000 &&
    wasSilenced(evidence, one)
  return history.calledDead.some(isDead) ? 'called dead' : undefined
}

/**
 * The request that ended the connection of `before`. Requests on a shared connection end together: by a reset, or when the service
 * gives up a request that hangs or is late. A request that a busy sink reads late counts as late, and so does an answer that a starved
 * sender may not have read. An answer that was sent may then still be unread.
 */
function neighbourOf(
  onIt: readonly Arrival[],
  before: Arrival,
  arrival: Arrival,
  hasWorked: Evidence['hasWorked']
): Arrival | undefined {
  if ((before.closedAfter ?? Infinity) > arrival.at) return undefined
  return onIt.find(({ taskNo, answer, answeredAt, builtAt }) => {
    if (taskNo === before.taskNo) return false
    const mayBeGivenUp = builtAt + timeoutMs / 2 < arrival.builtAt
    if (answeredAt !== undefined) return mayBeGivenUp && !hasWorked(builtAt, arrival.builtAt)
    return mayBeGivenUp || ['reset', 'hang', 'late'].includes(answer)
  })
}
