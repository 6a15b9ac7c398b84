import { failpoint } from '../runtime/failpoint.ts'
import type { Claim } from '../db/deliveries.ts'
import type { HeldClaims } from './held-claims.ts'
import type { Complete } from './complete.ts'
import type { Owner, LeasedDelivery } from './lease.ts'
import { waitGroup } from '../runtime/semaphore.ts'

/** A claim on its way to a worker. */
export interface QueuedClaim extends Claim {
  /** Set if this process has just claimed it itself: what a worker would read. */
  leased?: LeasedDelivery
}

export function byDownstream(deliveries: readonly QueuedClaim[]): Map<string, QueuedClaim[]> {
  const groups = new Map<string, QueuedClaim[]>()
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
  add(deliveries: QueuedClaim[]): Promise<QueuedClaim[]>
  /** How many more deliveries may be enqueued now. 0 while nothing can be added. */
  room(downstream: string): number
}

export interface Enqueuer {
  add(deliveries: QueuedClaim[]): Promise<void>
  room(downstream: string): number
  /** Resolves when each claimed delivery is enqueued or released. */
  idle(): Promise<void>
}

interface EnqueuerDeps {
  queue: Queue
  complete: Complete
  heldClaims: Pick<HeldClaims, 'withdraw'>
  owner: Pick<Owner, 'number'>
}

/**
 * Enqueues deliveries. It releases those that the queue did not add: they are due again at once, and no try is counted. A queue that did
 * not answer in time may still have added them: a delivery that a worker has read by now stays with the worker.
 */
export function enqueuer({ queue, complete, heldClaims, owner }: EnqueuerDeps): Enqueuer {
  const busy = waitGroup()
  const enqueueOrRelease = async (deliveries: QueuedClaim[]): Promise<void> => {
    failpoint('queue.before_add')
    const left = await queue.add(deliveries)
    failpoint('queue.after_add')
    if (left.length === 0) return
    // Spares deliveries that a worker of another process has taken. If this process has lost its number, others take its claims back.
    const guard = owner.number() ?? 0
    await heldClaims.withdraw(left, ({ taskId, downstream, attempt }) =>
      complete({ move: { taskId, downstream, attempt, name: 'release', owner: guard } })
    )
  }
  return {
    room: downstream => queue.room(downstream),
    add(deliveries) {
      busy.enter()
      return enqueueOrRelease(deliveries).finally(busy.leave)
    },
    idle: busy.idle
  }
}
