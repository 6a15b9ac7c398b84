// What arrived more than once, and why. At least once means that this may happen; never that it may happen for no reason.
import { isUnclear } from '../client.ts'
import type { Arrival, Fault, Try } from '../history.ts'
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
    if (action.startsWith('kill.') && count > most)
      unexplained.push({
        charge: 'unexplained',
        detail: `${count} for one kill of ${target}, ${most} at most`
      })
  return { extra, causes, unexplained }
}

/** What PostgreSQL and Redis leave behind: clients connect again, and answers in hand are written first. */
const afterMs = { 'postgres.': 2_000, 'redis.': 1_000 }

/**
 * Why it was sent again after `before`; undefined when nothing tells. Times are those at which requests were built: when the
 * sink read them depends on the machine.
 */
function causeOf(
  { faultsIn, killOf, heldIn, connections, history }: Evidence,
  one: Case,
  before: Arrival,
  arrival: Arrival
): string | Fault | undefined {
  if (!isOk(Number(before.answer))) return `answer ${before.answer}`
  const outcome = one.seen?.attempts.find(({ attempt }) => attempt === before.attempt)?.outcome
  if (outcome !== 'delivered') {
    // A delivery that waited in its queue has less than its whole timeout left, but never less than half.
    const patience = before.builtAt + timeoutMs / 2
    if ((before.answeredAt ?? Infinity) > patience && arrival.builtAt > patience) return 'timeout'
    if (sharing.includes(one.downstream)) {
      const neighbour = neighbourOf(connections.get(before.connection) ?? [], before, arrival)
      if (neighbour) return `neighbour ${neighbour.answer}`
    }
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
      tries.some(({ applied, at, ms }) => applied === true && at + ms + leaseMs < arrival.builtAt)
  )
  if (one.owed && !applied && arrival.builtAt - before.builtAt >= receiptTimeoutMs)
    return 'no receipt in time'
  const again = asked(one, 'redeliver').flatMap(call => call.tries)
  // Without a clear answer it may take effect at any time after.
  const isAgain = ({ at, ms, status }: Try) =>
    at < arrival.at && (isUnclear(status) || at + ms > before.builtAt)
  if (again.some(isAgain)) return 'redelivered'
  // Its sender took along what was not written down.
  const kill = outcome === undefined ? killOf(before.sender) : undefined
  if (kill && kill.from <= arrival.builtAt) return kill
  // Its sender stood still, or what came of it could not be written, while it had the lease.
  const until = Math.min(arrival.builtAt, before.builtAt + leaseMs)
  const held = heldIn(before.sender, before.builtAt, until)
  if (held) return held
  for (const [action, after] of Object.entries(afterMs)) {
    const [fault] = faultsIn(before.builtAt, until, one => one.action.startsWith(action), after)
    if (fault) return fault
  }
  // Without a processor for long enough it was called dead, and others sent what it had.
  const isDead = ({ process, at }: { process: string; at: number }): boolean =>
    before.sender.startsWith(`${process}#`) && at > before.builtAt && at < before.builtAt + leaseMs + 10_000
  return history.calledDead.some(isDead) ? 'called dead' : undefined
}

/**
 * Whoever shares a connection ends with it: by a reset, or when the service gives up one that hangs or is late. So is one that a busy sink
 * reads late, whatever it would have answered. An answer that had left may then still be unread. The one that ended the connection of `before`.
 */
function neighbourOf(onIt: readonly Arrival[], before: Arrival, arrival: Arrival): Arrival | undefined {
  if ((before.closedAfter ?? Infinity) > arrival.at) return undefined
  return onIt.find(
    ({ taskNo, answer, answeredAt, builtAt }) =>
      taskNo !== before.taskNo &&
      answeredAt === undefined &&
      (['reset', 'hang', 'late'].includes(answer) || builtAt + timeoutMs / 2 < arrival.builtAt)
  )
}
