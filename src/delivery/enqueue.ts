import { failpoint } from '../runtime/failpoint.ts'
import type { Claim } from '../db/deliveries.ts'
import type { ClaimedBatch, LeasedDelivery } from './load.ts'
import type { Complete } from './complete.ts'
import type { Owner } from './lease.ts'
import { waitGroup } from '../runtime/semaphore.ts'

/** A claimed delivery: its attempt has a running lease. */
export interface ClaimedDelivery extends Claim {
  /** Set if this process has just claimed it itself: the data that a worker would read. */
  loaded?: LeasedDelivery
}

export function byDownstream(deliveries: readonly ClaimedDelivery[]): Map<string, ClaimedDelivery[]> {
  const groups = new Map<string, ClaimedDelivery[]>()
  for (const delivery of deliveries) {
    const group = groups.get(delivery.downstream)
    if (group) group.push(delivery)
    else groups.set(delivery.downstream, [delivery])
  }
  return groups
}

/** The queue, as delivery code uses it. */
export interface Queue {
  /** Returns, within 250 ms, the deliveries that were not added. Never rejects. */
  add(deliveries: ClaimedDelivery[]): Promise<ClaimedDelivery[]>
  /** How many more deliveries may be enqueued now. 0 while nothing can be added. */
  room(downstream: string): number
}

export interface Enqueuer extends Pick<Withdrawals, 'begin' | 'end'> {
  add(deliveries: ClaimedDelivery[]): Promise<void>
  room(downstream: string): number
  /** Resolves when each claimed delivery is enqueued or released. */
  idle(): Promise<void>
}

interface EnqueuerDeps {
  queue: Queue
  complete: Complete
  owner: Pick<Owner, 'number'>
  downstreams: Iterable<string>
}

/**
 * Enqueues deliveries. It releases those that the queue did not add: they are due again at once, and no try is counted. A queue that did
 * not answer in time may still have added them: a delivery that a worker has read by now stays with the worker.
 */
export function enqueuer({ queue, complete, owner, downstreams }: EnqueuerDeps): Enqueuer {
  const { begin, end, withdraw } = withdrawals(downstreams)
  const busy = waitGroup()
  const enqueueOrRelease = async (deliveries: ClaimedDelivery[]): Promise<void> => {
    failpoint('queue.before_add')
    const left = await queue.add(deliveries)
    failpoint('queue.after_add')
    if (left.length === 0) return
    // The guard spares deliveries that a worker of another process has taken: that process is their owner now.
    const number = owner.number()
    const guard = number === null ? {} : { owner: number }
    await withdraw(left, ({ taskId, downstream, attempt }) =>
      complete({ move: { taskId, downstream, attempt, name: 'release', ...guard } })
    )
  }
  return {
    begin,
    end,
    room: downstream => queue.room(downstream),
    add(deliveries) {
      busy.enter()
      return enqueueOrRelease(deliveries).finally(busy.leave)
    },
    idle: busy.idle
  }
}

/**
 * Claims that this process holds: those that a worker here has begun, and those that are withdrawn because the queue did not confirm them in
 * time. The queue may still have them, so a withdrawal and a worker may compete for the same claim. The first one gets it: within this
 * process by this map, between processes by the owner in PostgreSQL.
 */
interface Withdrawals {
  /** The claims that are neither withdrawn nor begun yet: a queue may return a job twice. A claim is held until its `end`. */
  begin(batch: ClaimedBatch): ClaimedBatch
  end(downstream: string, taskId: string, attempt: number): void
  /** Releases the claims that no worker here has begun. Until then no worker here begins them. */
  withdraw<C extends Claim>(claims: readonly C[], release: (claim: C) => Promise<unknown>): Promise<void>
}

export function withdrawals(downstreams: Iterable<string>): Withdrawals {
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
