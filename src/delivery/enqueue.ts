import { failpoint } from '../runtime/failpoint.ts'
import type { LeasedDelivery } from './load.ts'
import type { Complete } from './complete.ts'
import { inFlight } from '../runtime/semaphore.ts'

/** A delivery that is claimed: its attempt has a lease that runs. */
export interface ClaimedDelivery {
  downstream: string
  taskId: string
  attempt: number
  /** Where this process has just accepted it: what a worker would read. */
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

/** What the flow needs of a queue. */
export interface Queue {
  /** Within 250 ms those that were not added; never rejects. */
  add(deliveries: ClaimedDelivery[]): Promise<ClaimedDelivery[]>
  room(downstream: string): number
}

export interface Enqueuer {
  add(deliveries: ClaimedDelivery[]): Promise<void>
  room(downstream: string): number
  /** Resolves when each claimed delivery is hinted or released. */
  idle(): Promise<void>
}

/** Hints, and gives back what could not be hinted: released at once, it is due again and no try is burnt. */
export function enqueuer(queue: Queue, complete: Complete): Enqueuer {
  const busy = inFlight()
  const enqueueOrRelease = async (deliveries: ClaimedDelivery[]): Promise<void> => {
    failpoint('hint.before')
    const left = await queue.add(deliveries)
    failpoint('hint.after')
    // A release that fails for good leaves a lease that runs out: later, but not lost.
    await Promise.allSettled(
      left.map(({ taskId, downstream, attempt }) =>
        complete({ move: { taskId, downstream, attempt, name: 'release' } })
      )
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
