import type { Claim } from '../db/deliveries.ts'
import type { ClaimedBatch } from './load.ts'

/**
 * Claims that this process deals with: those that a worker here has begun with, and those that are withdrawn from the queue because it did
 * not confirm them in time. The queue may have them all the same. Who comes first has the claim: between processes its owner in
 * PostgreSQL decides, here this does.
 */
export interface Withdrawals {
  /** These claims without those that are being withdrawn or were begun with already: a queue may bring a job twice. Each is begun with until its `end`. */
  begin(batch: ClaimedBatch): ClaimedBatch
  end(downstream: string, taskId: string, attempt: number): void
  /** Releases the claims that nobody here has begun with. Until that is done, nobody here begins with them. */
  withdraw<C extends Claim>(claims: readonly C[], release: (claim: C) => Promise<unknown>): Promise<void>
}

export function withdrawals(downstreams: Iterable<string>): Withdrawals {
  /** By downstream and taskId: the latest attempt. */
  const held = new Map([...downstreams].map(name => [name, new Map<string, number>()] as const))

  /** False: it is held already. */
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
      // What was just accepted did not go through the queue.
      deliveries: deliveries.filter(one => one.loaded || hold(downstream, one.taskId, one.attempt))
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
