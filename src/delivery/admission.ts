import type { NewTask } from '../db/tasks.ts'
import type { Enqueuer } from './enqueue.ts'
import type { Cluster } from './cluster.ts'

/** What accepted tasks may claim at once; the rest waits in PostgreSQL for a dispatcher. */
export interface Admission {
  /** Marks what is to be claimed of these tasks, as far as there is room for it; to be given back when it is hinted, or fails. */
  take(tasks: readonly NewTask[]): Map<string, number>
  give(places: Map<string, number>): void
}

export interface AdmissionDeps {
  /** Its room knows of what is hinted; what is still on its way through the commit is counted here. */
  enqueuer: Pick<Enqueuer, 'room'>
  cluster: Pick<Cluster, 'isPaused' | 'isBehind'>
  claiming: () => boolean
}

export function admission({ enqueuer, cluster, claiming }: AdmissionDeps): Admission {
  const taken = new Map<string, number>()
  // With no room in its queue, or older ones waiting, a delivery waits for its turn in PostgreSQL.
  const room = (downstream: string): number =>
    !claiming() || cluster.isPaused(downstream) || cluster.isBehind(downstream)
      ? 0
      : enqueuer.room(downstream) - (taken.get(downstream) ?? 0)
  return {
    take(tasks) {
      const rooms = new Map<string, number>()
      const places = new Map<string, number>()
      for (const { deliveries, startAt, delayMs } of tasks) {
        // Nearly all that have a time of their own wait for it.
        const takes = startAt === null && delayMs === null ? 1 : 0
        for (const delivery of deliveries) {
          if (delivery.skipped) continue
          const { downstream } = delivery
          const left = rooms.get(downstream) ?? room(downstream)
          delivery.claim = left > 0
          rooms.set(downstream, left - takes)
          if (delivery.claim) places.set(downstream, (places.get(downstream) ?? 0) + takes)
        }
      }
      for (const [downstream, count] of places) taken.set(downstream, (taken.get(downstream) ?? 0) + count)
      return places
    },
    give(places) {
      for (const [downstream, count] of places) taken.set(downstream, (taken.get(downstream) ?? 0) - count)
    }
  }
}
