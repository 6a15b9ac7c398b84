import { extendLeases, loadDeliveries } from '../db/deliveries.ts'
import type { Sql } from '../db/pool.ts'
import { failpoint } from '../runtime/failpoint.ts'
import { leastLeaseMs, type LeasedDelivery } from './lease.ts'
import type { Semaphore } from '../runtime/semaphore.ts'

/** Claims of deliveries of one downstream. */
export interface ClaimedBatch {
  downstream: string
  deliveries: readonly { taskId: string; attempt: number; leased?: LeasedDelivery | undefined }[]
}

/** The time for a send to a downstream, and the lease that leaves it. ms. */
export interface SendTime {
  timeoutMs: number
  leaseMs: number
}

/**
 * The deliveries of these claims that have not changed since. From now on this process owns them. Its own claims are used as they are,
 * the others are read with one SELECT, which leaves locked rows out: their leases end, as if they had not been read. A read waits for its
 * place in `ahead`. If `isRead` is true, the caller must give the place back. A lease that leaves too little of `time` is extended: the
 * process that claimed has handlers with a shorter timeout, or the job has waited long.
 */
export async function load(
  sql: Sql,
  ahead: Semaphore | undefined,
  { downstream, deliveries }: ClaimedBatch,
  owner: () => number | null,
  time?: SendTime
): Promise<{ leased: LeasedDelivery[]; isRead: boolean }> {
  const own = deliveries.flatMap(one => one.leased ?? [])
  const unread = deliveries.filter(one => one.leased === undefined)
  if (unread.length === 0) return { leased: own, isRead: false }
  for (let full = ahead?.full(); full; full = ahead?.full()) await full
  ahead?.enter()
  try {
    // The current number: during the wait, this process may have been declared dead and have joined again.
    const number = owner()
    const read = await readClaims(sql, downstream, unread, number)
    const leased = time && number !== null ? await inTime(sql, downstream, read, number, time) : read
    return { leased: [...own, ...leased], isRead: true }
  } catch (err) {
    // PostgreSQL is away: the leases end, and the dispatcher finds them.
    ahead?.leave()
    throw err
  }
}

/** Reads these claims back. Those that have changed since are missing. */
export async function readClaims(
  sql: Sql,
  downstream: string,
  claims: ClaimedBatch['deliveries'],
  owner: number | null
): Promise<LeasedDelivery[]> {
  // Measured before the SELECT: otherwise its duration would be missing from every lease.
  const leasedFrom = performance.now()
  failpoint('execute.before_read')
  const rows = await loadDeliveries(sql, downstream, claims, owner)
  return rows.map(delivery => ({ delivery, leasedFrom, isOwnClaim: false }))
}

const none: ReadonlySet<string> = new Set()

/** The same deliveries, each with a lease that leaves this time if it can be extended. */
async function inTime(
  sql: Sql,
  downstream: string,
  read: LeasedDelivery[],
  owner: number,
  { timeoutMs, leaseMs }: SendTime
): Promise<LeasedDelivery[]> {
  // Others are not sent (timeLeft).
  const short = read.filter(({ delivery }) => delivery.leaseLeftMs < leastLeaseMs(timeoutMs))
  if (short.length === 0) return read
  const from = performance.now()
  const claims = short.map(({ delivery: { task, attempt } }) => ({ taskId: task.id, attempt }))
  const extended = await extendLeases(sql, downstream, claims, { owner, leaseMs }).catch(() => none)
  return read.map(one =>
    extended.has(one.delivery.task.id)
      ? { ...one, delivery: { ...one.delivery, leaseLeftMs: from - one.leasedFrom + leaseMs } }
      : one
  )
}
