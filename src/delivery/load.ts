import { loadDeliveries, type LoadedDelivery } from '../db/deliveries.ts'
import type { Sql } from '../db/pool.ts'
import type { Semaphore } from '../runtime/semaphore.ts'

/** A claimed delivery with its task, as a worker's SELECT finds it, or as this process has just committed it. */
export interface LeasedDelivery {
  delivery: LoadedDelivery
  /** From when its lease counts: before the statement that began or read it, ms of our monotonic clock. */
  leasedFrom: number
  /** This process accepted it and has not read it back. */
  isAccepted: boolean
}

/** Deliveries of one downstream, by their claims. */
export interface ClaimedBatch {
  downstream: string
  deliveries: readonly { taskId: string; attempt: number; loaded?: LeasedDelivery | undefined }[]
}

/**
 * What of these claims is still ours: accepted deliveries as they came, the others in one SELECT. What must be read waits for its
 * place in `ahead`; `isRead` says that the caller has to give the place back.
 */
export async function load(
  sql: Sql,
  ahead: Semaphore | undefined,
  { downstream, deliveries }: ClaimedBatch
): Promise<{ loaded: LeasedDelivery[]; isRead: boolean }> {
  const accepted = deliveries.flatMap(one => one.loaded ?? [])
  const unread = deliveries.filter(one => one.loaded === undefined)
  if (unread.length === 0) return { loaded: accepted, isRead: false }
  for (let full = ahead?.full(); full; full = ahead?.full()) await full
  ahead?.enter()
  try {
    return { loaded: [...accepted, ...(await read(sql, downstream, unread))], isRead: true }
  } catch (err) {
    // PostgreSQL is away: then the leases run out and are found by the dispatcher.
    ahead?.leave()
    throw err
  }
}

async function read(
  sql: Sql,
  downstream: string,
  claims: ClaimedBatch['deliveries']
): Promise<LeasedDelivery[]> {
  // From before the SELECT, or the time it took would be missing from every lease.
  const leasedFrom = performance.now()
  const rows = await loadDeliveries(
    sql,
    downstream,
    claims.map(({ taskId, attempt }) => [taskId, attempt] as const)
  )
  return rows.map(delivery => ({ delivery, leasedFrom, isAccepted: false }))
}

/** What was accepted longer ago is read before it is sent: another process may have stopped it meanwhile. */
const trustMs = 1_000

/** Deliveries that this process stopped within the last second, for what it accepted and has not sent yet. */
export interface Cancelled {
  add(taskId: string, downstream: string): void
  /** The delivery as it may be sent: undefined when it was stopped or claimed anew. */
  confirm(sql: Sql, one: LeasedDelivery): LeasedDelivery | Promise<LeasedDelivery | undefined>
}

/** `now` is for tests: ms of a monotonic clock. */
export function cancelled(now = (): number => performance.now()): Cancelled {
  const stoppedAt = new Map<string, number>()
  const keyOf = (taskId: string, downstream: string): string => taskId + downstream
  return {
    add(taskId, downstream) {
      for (const [key, at] of stoppedAt) {
        if (now() - at <= trustMs) break
        stoppedAt.delete(key)
      }
      stoppedAt.set(keyOf(taskId, downstream), now())
    },
    confirm(sql, one) {
      const { task, downstream, attempt } = one.delivery
      if (!one.isAccepted) return one
      const isStopped = stoppedAt.size > 0 && stoppedAt.has(keyOf(task.id, downstream))
      if (!isStopped && now() - one.leasedFrom <= trustMs) return one
      return read(sql, downstream, [{ taskId: task.id, attempt }]).then(([found]) => found)
    }
  }
}
