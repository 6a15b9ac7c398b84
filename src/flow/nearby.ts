import type { Hint } from './fresh.ts'
import { byDownstream, type Hinted, type Hints } from './hint.ts'
import type { Log } from './log.ts'
import { underway } from './room.ts'

/** What is known here of the queue. */
export interface SharedHints extends Hints {
  /** It does not answer. */
  isAway(downstream: string): boolean
  /** So many start without it: it is to know the pace. */
  spared(downstream: string, deliveries: number): void
}

export interface NearbyOptions {
  /** The queue, for all that cannot start here. */
  hints: SharedHints
  /** Resolves when each delivery of the hint has its slot or was let go. */
  run: (hint: Hint) => Promise<void>
  /** How many deliveries of a downstream could start in this process now or very soon; 0 where it has no worker. */
  open: (downstream: string) => number
  /** Aborts when we stop: from then on everything goes to the queue. */
  stopping: AbortSignal
  log: Log
}

export interface Nearby extends Hints {
  /** Resolves when nothing waits here for its slot. */
  idle(): Promise<void>
}

/**
 * Spares the way through the queue: what this process can start at once it starts, and the rest is for whoever has room. So
 * none waits here for long while another process is free, and the queue costs nothing where there is no need of it
 * (docs/performance.md).
 */
export function nearby({ hints, run, open, stopping, log }: NearbyOptions): Nearby {
  /** Deliveries by downstream that have not asked for their slots yet. */
  const held = new Map<string, number>()
  const running = underway()
  const hold = (downstream: string, deliveries: number): void => {
    held.set(downstream, (held.get(downstream) ?? 0) + deliveries)
  }

  async function runOne(hint: Hint): Promise<void> {
    try {
      await run(hint)
    } catch (err) {
      // Their leases run out, and the dispatcher decides.
      log.error({ err, downstream: hint.downstream, deliveries: hint.deliveries.length }, 'hint.failed')
    }
  }

  function start(downstream: string, deliveries: Hinted[]): void {
    hold(downstream, deliveries.length)
    hints.spared(downstream, deliveries.length)
    const hint = { downstream, deliveries: deliveries.map(one => [one.taskId, one.attempt] as const) }
    running.enter()
    void runOne(hint).then(() => {
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
      const others: Hinted[] = []
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
