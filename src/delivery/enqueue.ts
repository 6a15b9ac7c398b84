import { failpoint } from '../runtime/failpoint.ts'
import type { LeasedDelivery } from './load.ts'
import type { Complete } from './complete.ts'
import { waitGroup } from '../runtime/semaphore.ts'

/** A claimed delivery: its attempt has a running lease. */
export interface ClaimedDelivery {
  downstream: string
  taskId: string
  attempt: number
  /** Set if this process has just accepted it: the data that a worker would read. */
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
  room(downstream: string): number
}

export interface Enqueuer {
  add(deliveries: ClaimedDelivery[]): Promise<void>
  room(downstream: string): number
  /** Resolves when each claimed delivery is enqueued or released. */
  idle(): Promise<void>
}

/** Enqueues deliveries. It releases those that the queue did not add: they are due again at once, and no try is counted. */
export function enqueuer(queue: Queue, complete: Complete): Enqueuer {
  const busy = waitGroup()
  const enqueueOrRelease = async (deliveries: ClaimedDelivery[]): Promise<void> => {
    failpoint('queue.before_add')
    const left = await queue.add(deliveries)
    failpoint('queue.after_add')
    // If the release fails too, the lease ends. The delivery is late, but not lost.
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
