import type { ClaimedBatch } from './load.ts'

/**
 * What a worker of this process has begun with, and what was withdrawn from the queue because the queue did not confirm it in time. The
 * queue may have it all the same. Who comes first has the claim: between processes its owner in PostgreSQL decides, here this does.
 */
export interface Withdrawals {
  /** These claims without the withdrawn ones, and without those that this process has begun with already: a queue may bring a job twice. It has begun with each until its `end`. */
  begin(batch: ClaimedBatch): ClaimedBatch
  end(downstream: string, taskId: string, attempt: number): void
  /** Releases the claims that nobody here has begun with. Until that is done, nobody here begins with them. */
  withdraw<C extends Claim>(claims: readonly C[], release: (claim: C) => Promise<unknown>): Promise<void>
}

interface Claim {
  downstream: string
  taskId: string
  attempt: number
}

export function withdrawals(downstreams: Iterable<string>): Withdrawals {
  /** By downstream and taskId: the latest attempt. */
  const begun = new Map([...downstreams].map(name => [name, new Map<string, number>()] as const))
  const withdrawn = new Set<string>()
  const keyOf = ({ downstream, taskId, attempt }: Claim): string => `${downstream} ${taskId} ${attempt}`

  return {
    begin({ downstream, deliveries }) {
      const attempts = begun.get(downstream)
      const mine = deliveries.filter(({ taskId, attempt, loaded }) => {
        // What was just accepted did not go through the queue.
        if (loaded) return true
        if (withdrawn.size > 0 && withdrawn.has(keyOf({ downstream, taskId, attempt }))) return false
        if (attempts?.get(taskId) === attempt) return false
        attempts?.set(taskId, attempt)
        return true
      })
      return { downstream, deliveries: mine }
    },
    end(downstream, taskId, attempt) {
      const attempts = begun.get(downstream)
      if (attempts?.get(taskId) === attempt) attempts.delete(taskId)
    },
    async withdraw(claims, release) {
      const mine = claims.filter(
        ({ downstream, taskId, attempt }) => begun.get(downstream)?.get(taskId) !== attempt
      )
      const keys = mine.map(keyOf)
      for (const key of keys) withdrawn.add(key)
      // If the release fails too, the lease ends. The delivery is late, but not lost.
      await Promise.allSettled(mine.map(release))
      for (const key of keys) withdrawn.delete(key)
    }
  }
}
