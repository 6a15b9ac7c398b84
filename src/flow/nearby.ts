import type { Hint } from './fresh.ts'
import type { Hinted, Hints } from './hint.ts'
import type { Log } from './log.ts'

export interface NearbyOptions {
  /** The queue, for all that cannot start here. */
  hints: Hints
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
 * none waits here for long while another process is free, and the queue costs nothing where there is no need of it.
 */
export function nearby({ hints, run, open, stopping, log }: NearbyOptions): Nearby {
  /** Deliveries by downstream that have not asked for their slots yet. */
  const held = new Map<string, number>()
  const running = new Set<Promise<void>>()
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
    const hint = { downstream, deliveries: deliveries.map(one => [one.taskId, one.attempt] as const) }
    const done = runOne(hint).finally(() => {
      hold(downstream, -deliveries.length)
      running.delete(done)
    })
    running.add(done)
  }

  const here = (downstream: string): number =>
    stopping.aborted ? 0 : Math.max(0, open(downstream) - (held.get(downstream) ?? 0))

  return {
    // What starts here needs no queue: while that is away this process goes on by itself.
    room: downstream => Math.max(hints.room(downstream), here(downstream)),
    async add(deliveries) {
      const mine = new Map<string, { most: number; deliveries: Hinted[] }>()
      const others: Hinted[] = []
      for (const one of deliveries) {
        let group = mine.get(one.downstream)
        if (!group) mine.set(one.downstream, (group = { most: here(one.downstream), deliveries: [] }))
        if (group.deliveries.length < group.most) group.deliveries.push(one)
        else others.push(one)
      }
      for (const [downstream, group] of mine)
        if (group.deliveries.length > 0) start(downstream, group.deliveries)
      return others.length > 0 ? hints.add(others) : []
    },
    async idle() {
      while (running.size > 0) await Promise.all(running)
    }
  }
}
