import type { Claim } from '../db/deliveries.ts'
import type { ClaimedBatch } from './load.ts'

/**
 * Claims that this process holds: those that a worker here has begun, and those that are withdrawn because the queue did not confirm them in
 * time. The queue may still have them, so a withdrawal and a worker may compete for the same claim. The first one gets it: within this
 * process by this map, between processes by the owner in PostgreSQL.
 */
export interface HeldClaims {
  /** The claims that are neither withdrawn nor begun yet: a queue may return a job twice. A claim is held until its `end`. */
  begin(batch: ClaimedBatch): ClaimedBatch
  end(downstream: string, taskId: string, attempt: number): void
  /** Releases the claims that no worker here has begun. Until then no worker here begins them. */
  withdraw<C extends Claim>(claims: readonly C[], release: (claim: C) => Promise<unknown>): Promise<void>
}

export function heldClaims(downstreams: Iterable<string>): HeldClaims {
  /** By downstream and taskId: the latest attempt. */
  const held = new Map([...downstreams].map(name => [name, new Map<string, number>()] as const))

  /** False if the claim is held already. */
  function hold(downstream: string, taskId: string, attempt: number): boolean {
    const attempts = held.get(downstream)
    if (attempts?.get(taskId) === attempt) return false
    attempts?.set(taskId, attempt)
    return true
  }

  function end(downstream: string, taskId: string, attempt: number): void {
    const attempts = held.get(downstream)
    if (attempts?.get(taskId) === attempt) attempts.delete(taskId)
  }

  return {
    begin: ({ downstream, deliveries }) => ({
      downstream,
      // Deliveries that this process has just claimed itself did not pass through the queue.
      deliveries: deliveries.filter(one => one.leased || hold(downstream, one.taskId, one.attempt))
    }),
    end,
    async withdraw(claims, release) {
      const mine = claims.filter(one => hold(one.downstream, one.taskId, one.attempt))
      // If the release fails too, the lease ends. The delivery is late, but not lost.
      await Promise.allSettled(mine.map(release))
      for (const { downstream, taskId, attempt } of mine) end(downstream, taskId, attempt)
    }
  }
}
