import type { Sql } from '../db/pool.ts'
import { readClaims } from './load.ts'
import type { LeasedDelivery } from './lease.ts'

/** An own claim that is older is read before its send: another process may have stopped it. */
const ownClaimTrustMs = 1_000

/** Claims of this process whose deliveries it stopped within the last second, before their send. */
export interface StoppedClaims {
  add(taskId: string, downstream: string): void
  /** The delivery if it may be sent. Undefined if it was stopped or claimed again. */
  confirm(
    sql: Sql,
    one: LeasedDelivery,
    owner: number | null
  ): LeasedDelivery | Promise<LeasedDelivery | undefined>
}

/** `now` is for tests: ms of a monotonic clock. */
export function stoppedClaims(now = (): number => performance.now()): StoppedClaims {
  const stoppedAt = new Map<string, number>()
  const keyOf = (taskId: string, downstream: string): string => taskId + downstream
  return {
    add(taskId, downstream) {
      for (const [key, at] of stoppedAt) {
        if (now() - at <= ownClaimTrustMs) break
        stoppedAt.delete(key)
      }
      stoppedAt.set(keyOf(taskId, downstream), now())
    },
    confirm(sql, one, owner) {
      const { task, downstream, attempt } = one.delivery
      if (!one.isOwnClaim) return one
      const isStopped = stoppedAt.size > 0 && stoppedAt.has(keyOf(task.id, downstream))
      if (!isStopped && now() - one.leasedFrom <= ownClaimTrustMs) return one
      return readClaims(sql, downstream, [{ taskId: task.id, attempt }], owner).then(([found]) => found)
    }
  }
}
