// Charges about the requests that the downstreams received: are they complete, true, in time and in order?
import { createHash } from 'node:crypto'
import type { Arrival, Fault } from '../history.ts'
import { defaultTimes, leaseMs, longestBackoffMs, receiptTimeoutMs, timeoutMs } from '../terms.ts'
import { callsOf, findingOf, isOk, type Case, type Evidence } from './evidence.ts'
import type { Finding } from './finding.ts'

const when = (ms: number): string => new Date(ms).toISOString().slice(11, 23)

export function lost({ cases, hasWorked }: Evidence): Finding[] {
  return cases
    .filter(
      one =>
        one.okAt !== undefined &&
        one.arrivals.length === 0 &&
        callsOf(one, 'remove').length === 0 &&
        !wasNeverRead(one, hasWorked)
    )
    .map(one =>
      findingOf(
        one,
        'lost',
        `answered 2xx at ${when(one.okAt ?? 0)}, ${one.seen?.status ?? 'unknown'} at the end`
      )
    )
}

/** FAILED at its limit, and the machine did not work during any of its attempts: the sink could read none of them. */
function wasNeverRead({ seen }: Case, hasWorked: Evidence['hasWorked']): boolean {
  const times = seen?.status === 'FAILED' ? seen.attempts.map(row => Date.parse(row.startedAt)) : []
  return times.length > 0 && times.every(at => !hasWorked(at, at + timeoutMs))
}

export function unexpected({ history, cases }: Evidence): Finding[] {
  const known = new Set(cases.filter(posted).map(one => `${one.planned.taskNo} ${one.downstream}`))
  return history.arrivals
    .filter(one => !known.has(`${one.taskNo} ${one.downstream}`))
    .map(({ taskNo, downstream, at }) => ({
      charge: 'unexpected',
      taskNo,
      downstream,
      detail: `arrived at ${when(at)}`
    }))
}

/** Posted, and not clearly refused. */
const posted = (one: Case): boolean =>
  callsOf(one, 'first').some(call => call.tries.length > 0 && (call.status === 0 || isOk(call.status)))

export function corrupted({ cases }: Evidence): Finding[] {
  return cases.flatMap(one => {
    const hash = createHash('sha256').update(one.planned.body).digest('hex')
    return one.arrivals.flatMap(arrival => [
      ...(arrival.hash === hash
        ? []
        : [findingOf(one, 'corrupted', `attempt ${arrival.attempt}: another body`)]),
      ...(arrival.signed ? [] : [findingOf(one, 'corrupted', `attempt ${arrival.attempt}: wrong signature`)])
    ])
  })
}

export function early({ history, cases }: Evidence): Finding[] {
  return cases.flatMap(one => {
    const start = startOf(one)
    return one.arrivals
      .filter(({ at }) => at + history.clockAheadMs < start)
      .slice(0, 1)
      .map(({ at }) =>
        findingOf(one, 'early', `${start - at - history.clockAheadMs} ms before ${when(start)}`)
      )
  })
}

/** The latest of the times that the API shows and that its producer asked for: a service that ignores it shows none. */
function startOf(one: Case): number {
  const { delayMs } = one.planned
  const shownStart = one.task?.deliverStartTime === undefined ? 0 : Date.parse(one.task.deliverStartTime)
  const firsts = callsOf(one, 'first')
  const asked = firsts.map(({ startAt = 0 }) => startAt)
  const sentAt = Math.min(...firsts.flatMap(call => call.tries.map(({ at }) => at)))
  const delayed = delayMs === undefined || !Number.isFinite(sentAt) ? 0 : sentAt + delayMs
  return Math.max(shownStart, ...asked, delayed)
}

/** The kill of its sender excuses a request without a row, unless later events show that the row was written. */
export function unaccounted({ cases, killOf }: Evidence): Finding[] {
  return cases.flatMap(one => {
    const { seen } = one
    if (!seen) return []
    const rows = new Set(seen.attempts.map(row => row.attempt))
    return one.arrivals.flatMap(arrival => {
      const { at, attempt, sender } = arrival
      if (attempt > seen.attempt)
        return [findingOf(one, 'unaccounted', `attempt ${attempt} arrived, the API knows ${seen.attempt}`)]
      if (rows.has(attempt)) return []
      const kill = killOf(sender)
      const reason = !kill
        ? `${sender} was not killed`
        : wasRecorded(one, arrival, kill)
          ? `its outcome was recorded before the kill of ${sender}`
          : undefined
      return reason === undefined
        ? []
        : [
            findingOf(
              one,
              'unaccounted',
              `attempt ${attempt} arrived at ${when(at)} and has no row, and ${reason}`
            )
          ]
    })
  })
}

/**
 * Whether only the record of this attempt explains the rest of its delivery: this attempt made it HANDLED, or the next attempt
 * was sent before the kill, after the outcome of this one and before the lease could end, and was not requested.
 */
function wasRecorded(one: Case, arrival: Arrival, kill: Fault): boolean {
  const { seen } = one
  if (seen?.attempt === arrival.attempt) return seen.handledBy === 'send' || seen.handledBy === 'answer'
  const next = one.arrivals.find(({ attempt }) => attempt === arrival.attempt + 1)
  if (!next || next.builtAt >= kill.from) return false
  const { at, builtAt, answer, answeredAt = Infinity } = arrival
  const known = answer === 'reset' ? at : Math.min(answeredAt, builtAt + timeoutMs)
  const isRequested =
    callsOf(one, 'redeliver').length > 0 || one.receipts.some(receipt => receipt.result === 'RETRY')
  const isLost = next.builtAt >= claimedAfter(one, arrival) + leaseMs
  return known < next.builtAt && !isRequested && !isLost
}

/** A claim comes after the first POST, and after the attempts before it were sent. */
function claimedAfter(one: Case, arrival: Arrival): number {
  const posts = callsOf(one, 'first').flatMap(call => call.tries.map(({ at }) => at))
  const before = one.arrivals.filter(({ attempt }) => attempt < arrival.attempt)
  return Math.max(Math.min(...posts), ...before.map(({ builtAt }) => builtAt))
}

export function nonMonotone({ cases, heldIn, hasWorked }: Evidence): Finding[] {
  return cases.flatMap(one => {
    let highest: Arrival | undefined
    const seen = new Set<number>()
    const asRead = one.arrivals.toSorted((a, b) => a.at - b.at)
    return asRead.flatMap(arrival => {
      const { at, attempt, cameAfter } = arrival
      const before = highest
      const isRepeated = seen.has(attempt)
      seen.add(attempt)
      if (!before || attempt > before.attempt) {
        highest = arrival
        return []
      }
      // Two requests that wait at the same time are read in any order.
      const isLater = isRepeated || cameAfter > before.at
      return isLater && !wasHeld(arrival, heldIn, hasWorked)
        ? [
            findingOf(
              one,
              'nonMonotone',
              `attempt ${attempt} arrived at ${when(at)}, after ${before.attempt}`
            )
          ]
        : []
    })
  })
}

/**
 * Its sender was held after it had built the request: it was stopped, or had no processor. When it continues, it sends the request.
 * Nothing can prevent that.
 */
const wasHeld = (
  { sender, builtAt, at, cameAfter }: Arrival,
  heldIn: Evidence['heldIn'],
  hasWorked: Evidence['hasWorked']
): boolean => heldIn(sender, builtAt, at) !== undefined || !hasWorked(builtAt, cameAfter)

/** The end of its delivery, as seen from outside: the receipt's answer, the answer to DELETE, the API's `handledAt`, the alarm. */
function endOf(one: Case): number | undefined {
  const applied = one.receipts
    .filter(receipt => receipt.token === 'good' && receipt.result === 'HANDLED')
    .flatMap(receipt => receipt.tries.filter(({ applied }) => applied === true).map(({ at, ms }) => at + ms))
  const removed = callsOf(one, 'remove').flatMap(call =>
    call.tries.filter(({ status }) => isOk(status)).map(({ at, ms }) => at + ms)
  )
  const failed = one.seen?.status === 'FAILED' ? one.alarms.map(alarm => Date.parse(alarm.createdAt)) : []
  const handled = one.seen?.handledAt === undefined ? [] : [Date.parse(one.seen.handledAt)]
  const all = [...applied, ...removed, ...failed, ...handled]
  return all.length > 0 ? Math.min(...all) : undefined
}

/** A delivery claimed before the end may be sent during its lease. It must not be built later, nor sent later unless it was held. */
export function afterTerminal({ cases, heldIn, hasWorked }: Evidence): Finding[] {
  return cases.flatMap(one => {
    const redelivered = callsOf(one, 'redeliver').length > 0
    const end = (redelivered ? undefined : endOf(one)) ?? Infinity
    const sent = one.arrivals
      .filter(arrival => {
        const { builtAt, cameAfter } = arrival
        return builtAt > end + leaseMs || (cameAfter > end + leaseMs && !wasHeld(arrival, heldIn, hasWorked))
      })
      .map(({ at, attempt }) =>
        findingOf(one, 'afterTerminal', `attempt ${attempt} arrived ${at - end} ms after its end`)
      )
    return [...sent, ...regressed(one)]
  })
}

/** For a task with one downstream, a DELETE that was answered 200 has stopped its delivery. */
function regressed(one: Case): Finding[] {
  const removed = callsOf(one, 'remove').some(call => isOk(call.status))
  const isOnly = one.task?.deliveries.length === 1
  return removed && isOnly && one.seen?.status !== 'DELETED'
    ? [findingOf(one, 'afterTerminal', `DELETE was answered 200, and it is ${one.seen?.status ?? 'unknown'}`)]
    : []
}

/** Two lost leases in a round are allowed. */
export function overLimit({ cases }: Evidence): Finding[] {
  return cases.flatMap(one => {
    const rounds = 1 + callsOf(one, 'redeliver').flatMap(call => call.tries).length
    const limit = one.planned.retryTimes ?? defaultTimes
    return one.arrivals.length > (limit + 2) * rounds
      ? [
          findingOf(
            one,
            'overLimit',
            `${one.arrivals.length} arrived, the limit is ${limit} in each of ${rounds} rounds`
          )
        ]
      : []
  })
}

/** Checks the time from each moment at which it was due to the next attempt, until its end. */
export function overdue({ history, cases, deadline }: Evidence): Finding[] {
  const lastLook = history.arrivals.at(-1)?.at ?? history.loadEndedAt
  return cases.flatMap(one => {
    if (one.okAt === undefined || callsOf(one, 'remove').length > 0) return []
    const end = endOf(one) ?? Infinity
    // Behind another delivery of its key, it is due when that one has ended.
    const turnAt = one.before === undefined ? 0 : (endOf(one.before) ?? Infinity)
    let dueAt = Math.max(one.okAt, startOf(one), turnAt)
    for (const tried of [...triesOf(one), undefined]) {
      const by = deadline(dueAt)
      const at = tried?.at ?? Infinity
      // A new round is due at the request for it, which the last arrival does not show.
      const isAnew = callsOf(one, 'redeliver').some(call =>
        call.tries.some(again => again.at > dueAt && again.at < at)
      )
      if (at > by && end > by && by < lastLook && !isAnew) {
        const late = tried ? `attempted ${Math.round(at - by)} ms after that` : 'never attempted again'
        return [findingOf(one, 'overdue', `due at ${when(dueAt)}, promised by ${when(by)}, ${late}`)]
      }
      if (tried) dueAt = Math.max(dueAt, tried.nextDue)
    }
    return []
  })
}

/** The arrivals, and the attempts of the API that the sink never read: a busy sink accepts a connection after its sender has given up. */
function triesOf(one: Case): { at: number; nextDue: number }[] {
  const arrived = new Set(one.arrivals.map(({ attempt }) => attempt))
  const unread =
    one.seen?.attempts.filter(row => row.outcome !== 'delivered' && !arrived.has(row.attempt)) ?? []
  return [
    ...one.arrivals.map(arrival => ({ at: arrival.builtAt, nextDue: nextDue(one, arrival) })),
    ...unread.map(row => {
      const at = Date.parse(row.startedAt)
      return { at, nextDue: at + timeoutMs + longestBackoffMs }
    })
  ].sort((a, b) => a.at - b.at)
}

/** The latest time: the answer or the timeout, plus the receipt timeout if a receipt is owed, plus the longest backoff. */
function nextDue(one: Case, arrival: Arrival): number {
  const answered = Math.max(arrival.at, arrival.answeredAt ?? arrival.at + timeoutMs)
  return answered + (one.owed ? receiptTimeoutMs : 0) + longestBackoffMs
}
