import type { ClaimedBatch } from './load.ts'

/**
 * What a worker of this process has begun with, and what was withdrawn from the queue because the queue did not confirm it in time. The
 * queue may have it all the same. Who comes first has the claim: between processes its owner in PostgreSQL decides, here this does.
 */
export interface Withdrawals {
  /** These claims without the withdrawn ones. This process has begun with each until its `end`. */
  begin(batch: ClaimedBatch): ClaimedBatch
  end(downstream: string, taskId: string): void
  /** Releases the claims that nobody here has begun with. Until that is done, nobody here begins with them. */
  withdraw<C extends Claim>(claims: readonly C[], release: (claim: C) => Promise<unknown>): Promise<void>
}

interface Claim {
  downstream: string
  taskId: string
  attempt: number
}

export function withdrawals(downstreams: Iterable<string>): Withdrawals {
  /** By downstream: taskIds. */
  const begun = new Map([...downstreams].map(name => [name, new Set<string>()] as const))
  const withdrawn = new Set<string>()
  const keyOf = ({ downstream, taskId, attempt }: Claim): string => `${downstream} ${taskId} ${attempt}`

  return {
    begin(batch) {
      const { downstream } = batch
      const deliveries =
        withdrawn.size === 0
          ? batch.deliveries
          : batch.deliveries.filter(
              ({ taskId, attempt }) => !withdrawn.has(keyOf({ downstream, taskId, attempt }))
            )
      const ids = begun.get(downstream)
      // What was just accepted did not go through the queue.
      for (const { taskId, loaded } of deliveries) if (!loaded) ids?.add(taskId)
      return { downstream, deliveries }
    },
    end(downstream, taskId) {
      begun.get(downstream)?.delete(taskId)
    },
    async withdraw(claims, release) {
      const mine = claims.filter(({ downstream, taskId }) => !begun.get(downstream)?.has(taskId))
      const keys = mine.map(keyOf)
      for (const key of keys) withdrawn.add(key)
      // If the release fails too, the lease ends. The delivery is late, but not lost.
      await Promise.allSettled(mine.map(release))
      for (const key of keys) withdrawn.delete(key)
    }
  }
}
