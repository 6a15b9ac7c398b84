import { byDownstream, type QueuedClaim, type Queue } from './enqueue.ts'
import type { ClaimedBatch } from './load.ts'
import type { Logger } from '../runtime/logger.ts'
import { waitGroup } from '../runtime/semaphore.ts'

/** The queue, as the local queue uses it. */
export interface SharedQueue extends Queue {
  /** Its server does not answer. */
  isAway(downstream: string): boolean
  /** Reports deliveries that start without the queue. The queue measures by them how fast deliveries start. */
  bypassed(downstream: string, deliveries: number): void
}

interface LocalQueueOptions {
  /** The queue for all deliveries that cannot start here. */
  queue: SharedQueue
  /** Resolves when each delivery has a slot or was released. */
  run: (claims: ClaimedBatch) => Promise<void>
  /** How many deliveries of a downstream could start in this process now or very soon. 0 without a worker. */
  open: (downstream: string) => number
  /** Aborts when the process stops: from then on all deliveries go to the queue. */
  stopping: AbortSignal
  log: Logger
}

interface LocalQueue extends Queue {
  /** Resolves when no delivery waits here for a slot. */
  idle(): Promise<void>
}

/**
 * Starts deliveries without BullMQ: those that this process can start at once. It keeps none. The rest goes to the queue, for any worker with
 * room. So no delivery waits here for long while another process is free, and the queue costs nothing if it is not needed
 * (docs/notes/performance-log.md).
 */
export function localQueue({ queue: jobQueue, run, open, stopping, log }: LocalQueueOptions): LocalQueue {
  /** By downstream: deliveries that have not requested a slot yet. */
  const starting = new Map<string, number>()
  const running = waitGroup()
  const count = (downstream: string, deliveries: number): void => {
    starting.set(downstream, (starting.get(downstream) ?? 0) + deliveries)
  }

  async function runOne(claims: ClaimedBatch): Promise<void> {
    try {
      await run(claims)
    } catch (err) {
      // The leases end, and the dispatcher decides.
      log.error({ err, downstream: claims.downstream, deliveries: claims.deliveries.length }, 'job.failed')
    }
  }

  function start(downstream: string, deliveries: QueuedClaim[]): void {
    count(downstream, deliveries.length)
    jobQueue.bypassed(downstream, deliveries.length)
    running.enter()
    void runOne({ downstream, deliveries }).then(() => {
      count(downstream, -deliveries.length)
      running.leave()
    })
  }

  const here = (downstream: string): number =>
    stopping.aborted ? 0 : Math.max(0, open(downstream) - (starting.get(downstream) ?? 0))

  return {
    // While the queue is away, this process works without it.
    room: downstream => (jobQueue.isAway(downstream) ? here(downstream) : jobQueue.room(downstream)),
    async add(deliveries) {
      const others: QueuedClaim[] = []
      for (const [downstream, group] of byDownstream(deliveries)) {
        const most = here(downstream)
        // All or none: two small jobs cost more than a large one. Except if there is no queue for the rest.
        const mine = group.length <= most || jobQueue.isAway(downstream) ? most : 0
        if (mine > 0) start(downstream, group.slice(0, mine))
        others.push(...group.slice(mine))
      }
      return others.length > 0 ? jobQueue.add(others) : []
    },
    idle: running.idle
  }
}
