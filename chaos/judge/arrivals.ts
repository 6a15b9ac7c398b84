// What the downstreams saw: was it all, was it true, was it in time and in order?
import { createHash } from 'node:crypto'
import type { Arrival } from '../history.ts'
import { defaultTimes, leaseMs, longestBackoffMs, receiptTimeoutMs, timeoutMs } from '../terms.ts'
import { asked, found, isOk, type Case, type Evidence } from './evidence.ts'
import type { Finding } from './finding.ts'

/** Just continued, a stopped process may write what it was about to write: no one can close that gap. */
const thawMs = 1_000

const when = (ms: number): string => new Date(ms).toISOString().slice(11, 23)

export function lost({ cases }: Evidence): Finding[] {
  return cases
    .filter(one => one.okAt !== undefined && one.arrivals.length === 0 && asked(one, 'remove').length === 0)
    .map(one =>
      found(
        one,
        'lost',
        `answered 2xx at ${when(one.okAt ?? 0)}, ${one.seen?.status ?? 'unknown'} at the end`
      )
    )
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

/** Asked for, and not clearly refused. */
const posted = (one: Case): boolean =>
  asked(one, 'first').some(call => call.tries.length > 0 && (call.status === 0 || isOk(call.status)))

export function corrupted({ cases }: Evidence): Finding[] {
  return cases.flatMap(one => {
    const hash = createHash('sha256').update(one.planned.body).digest('hex')
    return one.arrivals.flatMap(arrival => [
      ...(arrival.hash === hash ? [] : [found(one, 'corrupted', `attempt ${arrival.attempt}: another body`)]),
      ...(arrival.signed ? [] : [found(one, 'corrupted', `attempt ${arrival.attempt}: wrong signature`)])
    ])
  })
}

export function early({ history, cases }: Evidence): Finding[] {
  return cases.flatMap(one => {
    const start = startOf(one)
    return one.arrivals
      .filter(({ at }) => at + history.clockAheadMs < start)
      .slice(0, 1)
      .map(({ at }) => found(one, 'early', `${start - at - history.clockAheadMs} ms before ${when(start)}`))
  })
}

function startOf(one: Case): number {
  const { delayMs } = one.planned
  const said = one.task?.deliverStartTime === undefined ? 0 : Date.parse(one.task.deliverStartTime)
  const sentAt = Math.min(...asked(one, 'first').flatMap(call => call.tries.map(({ at }) => at)))
  return Math.max(said, delayMs === undefined || !Number.isFinite(sentAt) ? 0 : sentAt + delayMs)
}

const unreadMs = 1_000

/** A request whose worker was killed has no row of its own; its number must be known all the same. */
export function unaccounted({ cases, faultsIn }: Evidence): Finding[] {
  return cases.flatMap(one => {
    const { seen } = one
    if (!seen) return []
    const rows = new Set(seen.attempts.map(row => row.attempt))
    return one.arrivals.flatMap(({ at, attempt }) => {
      if (attempt > seen.attempt)
        return [found(one, 'unaccounted', `attempt ${attempt} arrived, the API knows ${seen.attempt}`)]
      if (rows.has(attempt)) return []
      // Its record waits for a PostgreSQL that is away, and a kill meanwhile takes it along.
      const outage = faultsIn(at, at + timeoutMs, fault => fault.action.startsWith('postgres'), timeoutMs)
      const until = Math.max(at + timeoutMs + 500, ...outage.map(fault => fault.to + timeoutMs))
      // What it had sent is read a little later, on a busy machine by half a second.
      const from = at - unreadMs
      const killed = faultsIn(from, until, fault => fault.action === 'kill.worker').some(
        fault => fault.from >= from && fault.from <= until
      )
      return killed
        ? []
        : [found(one, 'unaccounted', `attempt ${attempt} arrived at ${when(at)} and has no row`)]
    })
  })
}

export function nonMonotone({ cases, faultsIn }: Evidence): Finding[] {
  return cases.flatMap(one => {
    let highest = 0
    return one.arrivals.flatMap(({ at, attempt }) => {
      const isRising = attempt > highest
      highest = Math.max(highest, attempt)
      return isRising || wasThawed(at, faultsIn)
        ? []
        : [found(one, 'nonMonotone', `attempt ${attempt} arrived at ${when(at)}, after ${highest}`)]
    })
  })
}

const wasThawed = (at: number, faultsIn: Evidence['faultsIn']): boolean =>
  faultsIn(at - thawMs, at, fault => fault.action === 'stop.worker').some(
    fault => fault.to <= at && fault.to >= at - thawMs
  )

/** Its end as outsiders know it: the receipt's answer, the answer to DELETE, the API's `handledAt`, the alarm. */
function endOf(one: Case): number | undefined {
  const applied = one.receipts
    .filter(receipt => receipt.token === 'good' && receipt.result === 'HANDLED')
    .flatMap(receipt => receipt.tries.filter(({ applied }) => applied === true).map(({ at, ms }) => at + ms))
  const removed = asked(one, 'remove').flatMap(call =>
    call.tries.filter(({ status }) => isOk(status)).map(({ at, ms }) => at + ms)
  )
  const failed = one.seen?.status === 'FAILED' ? one.alarms.map(alarm => Date.parse(alarm.createdAt)) : []
  const handled = one.seen?.handledAt === undefined ? [] : [Date.parse(one.seen.handledAt)]
  const all = [...applied, ...removed, ...failed, ...handled]
  return all.length > 0 ? Math.min(...all) : undefined
}

export function afterTerminal({ cases, faultsIn }: Evidence): Finding[] {
  return cases.flatMap(one => {
    const redelivered = asked(one, 'redeliver').length > 0
    const end = redelivered ? undefined : endOf(one)
    const sent = one.arrivals
      .filter(({ at }) => end !== undefined && at > end + leaseMs && !wasThawed(at, faultsIn))
      .map(({ at, attempt }) =>
        found(one, 'afterTerminal', `attempt ${attempt} left ${at - (end ?? 0)} ms after its end`)
      )
    return [...sent, ...regressed(one)]
  })
}

/** Of a task with one downstream, DELETE answered 200 says that this one was stopped. */
function regressed(one: Case): Finding[] {
  const removed = asked(one, 'remove').some(call => isOk(call.status))
  const isOnly = one.task?.deliveries.length === 1
  return removed && isOnly && one.seen?.status !== 'DELETED'
    ? [found(one, 'afterTerminal', `DELETE was answered 200, and it is ${one.seen?.status ?? 'unknown'}`)]
    : []
}

/** Two lost leases of a round do not count. */
export function overLimit({ cases }: Evidence): Finding[] {
  return cases.flatMap(one => {
    const rounds = 1 + asked(one, 'redeliver').flatMap(call => call.tries).length
    const limit = one.planned.retryTimes ?? defaultTimes
    return one.arrivals.length > (limit + 2) * rounds
      ? [
          found(
            one,
            'overLimit',
            `${one.arrivals.length} arrived, the limit is ${limit} in each of ${rounds} rounds`
          )
        ]
      : []
  })
}

/** From the moment it was due to the next arrival, again and again until it came to its end. */
export function overdue({ history, cases, deadline }: Evidence): Finding[] {
  const lastLook = history.arrivals.at(-1)?.at ?? history.loadEndedAt
  return cases.flatMap(one => {
    if (one.okAt === undefined || asked(one, 'remove').length > 0) return []
    const end = endOf(one) ?? Infinity
    let dueAt = Math.max(one.okAt, startOf(one))
    for (const arrival of [...one.arrivals, undefined]) {
      const by = deadline(dueAt)
      const at = arrival?.at ?? Infinity
      // A round that began anew is due when it was asked for, which the last arrival cannot know.
      const isAnew = asked(one, 'redeliver').some(call =>
        call.tries.some(tried => tried.at > dueAt && tried.at < at)
      )
      if (at > by && end > by && by < lastLook && !isAnew) {
        const late = arrival ? `attempted ${at - by} ms after that` : 'never attempted again'
        return [found(one, 'overdue', `due at ${when(dueAt)}, promised by ${when(by)}, ${late}`)]
      }
      if (arrival) dueAt = Math.max(dueAt, nextDue(one, arrival))
    }
    return []
  })
}

/** At the latest: the answer, or the timeout; the receipt timeout, if one is owed; the longest backoff. */
function nextDue(one: Case, arrival: Arrival): number {
  const answered = Math.max(arrival.at, arrival.answeredAt ?? arrival.at + timeoutMs)
  return answered + (one.owed ? receiptTimeoutMs : 0) + longestBackoffMs
}
