import { byDownstream, type ClaimedDelivery, type Queue } from './enqueue.ts'
import type { ClaimedBatch } from './load.ts'
import type { Logger } from '../runtime/logger.ts'
import { inFlight } from '../runtime/semaphore.ts'

/** What is known here of the queue. */
export interface SharedQueue extends Queue {
  /** It does not answer. */
  isAway(downstream: string): boolean
  /** So many start without it: it is to know the pace. */
  bypassed(downstream: string, deliveries: number): void
}

export interface LocalQueueOptions {
  /** The queue, for all that cannot start here. */
  queue: SharedQueue
  /** Resolves when each delivery has its slot or was let go. */
  run: (claims: ClaimedBatch) => Promise<void>
  /** How many deliveries of a downstream could start in this process now or very soon; 0 where it has no worker. */
  open: (downstream: string) => number
  /** Aborts when we stop: from then on everything goes to the queue. */
  stopping: AbortSignal
  log: Logger
}

export interface LocalQueue extends Queue {
  /** Resolves when nothing waits here for its slot. */
  idle(): Promise<void>
}

/**
 * Spares the way through the queue: what this process can start at once it starts, and the rest is for whoever has room. So
 * none waits here for long while another process is free, and the queue costs nothing where there is no need of it
 * (docs/notes/performance-log.md).
 */
export function localQueue({ queue: hints, run, open, stopping, log }: LocalQueueOptions): LocalQueue {
  /** Deliveries by downstream that have not asked for their slots yet. */
  const held = new Map<string, number>()
  const running = inFlight()
  const hold = (downstream: string, deliveries: number): void => {
    held.set(downstream, (held.get(downstream) ?? 0) + deliveries)
  }

  async function runOne(claims: ClaimedBatch): Promise<void> {
    try {
      await run(claims)
    } catch (err) {
      // Their leases run out, and the dispatcher decides.
      log.error({ err, downstream: claims.downstream, deliveries: claims.deliveries.length }, 'job.failed')
    }
  }

  function start(downstream: string, deliveries: ClaimedDelivery[]): void {
    hold(downstream, deliveries.length)
    hints.bypassed(downstream, deliveries.length)
    running.enter()
    void runOne({ downstream, deliveries }).then(() => {
      hold(downstream, -deliveries.length)
      running.leave()
    })
  }

  const here = (downstream: string): number =>
    stopping.aborted ? 0 : Math.max(0, open(downstream) - (held.get(downstream) ?? 0))

  return {
    // While the queue is away this process goes on by itself.
    room: downstream => (hints.isAway(downstream) ? here(downstream) : hints.room(downstream)),
    async add(deliveries) {
      const others: ClaimedDelivery[] = []
      for (const [downstream, group] of byDownstream(deliveries)) {
        const most = here(downstream)
        // All or none: two small hints cost more than a large one. Unless there is no queue for the rest.
        const mine = group.length <= most || hints.isAway(downstream) ? most : 0
        if (mine > 0) start(downstream, group.slice(0, mine))
        others.push(...group.slice(mine))
      }
      return others.length > 0 ? hints.add(others) : []
    },
    idle: running.idle
  }
}
