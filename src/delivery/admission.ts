import type { NewTask } from '../db/tasks.ts'
import type { Enqueuer } from './enqueue.ts'
import type { Cluster } from './cluster.ts'
import type { Owner } from './lease.ts'

/** Decides which accepted deliveries are claimed at once. The rest waits in PostgreSQL for a dispatcher. */
export interface Admission {
  /** Marks deliveries to claim while there is room. Returns their number by downstream. */
  take(tasks: readonly NewTask[]): Map<string, number>
  /** Gives the room back, once the marked deliveries are enqueued or their commit has failed. */
  give(marked: Map<string, number>): void
}

interface RoomDeps {
  enqueuer: Pick<Enqueuer, 'room'>
  cluster: Pick<Cluster, 'isPaused' | 'hasBacklog'>
  claiming: () => boolean
}

/** How many deliveries this process may claim at once. If the queue is full or older deliveries wait, they wait in PostgreSQL. */
export const roomOf = ({ enqueuer, cluster, claiming }: RoomDeps, downstream: string): number =>
  !claiming() || cluster.isPaused(downstream) || cluster.hasBacklog(downstream)
    ? 0
    : enqueuer.room(downstream)

interface AdmissionDeps extends RoomDeps {
  cluster: Pick<Cluster, 'isPaused' | 'hasBacklog' | 'now'>
  owner: Pick<Owner, 'number'>
}

/** Producers may name a start time that has passed, or a delay of 0: such a task is delivered like one without. */
export const startsNow = (
  { startAt, delayMs }: Pick<NewTask, 'startAt' | 'delayMs'>,
  now: () => Date
): boolean => (startAt === null ? (delayMs ?? 0) <= 0 : startAt <= now())

export function admission(deps: AdmissionDeps): Admission {
  const { owner } = deps
  /** The queue counts enqueued deliveries. This counts those whose commit is still running. */
  const pending = new Map<string, number>()
  const room = (downstream: string): number => roomOf(deps, downstream) - (pending.get(downstream) ?? 0)
  return {
    take(tasks) {
      const rooms = new Map<string, number>()
      const marked = new Map<string, number>()
      const number = owner.number()
      for (const task of tasks) {
        // Deliveries that wait for their start time take no room.
        const takes = startsNow(task, deps.cluster.now) ? 1 : 0
        for (const delivery of task.deliveries) {
          if (delivery.skipped) continue
          const { downstream } = delivery
          const left = rooms.get(downstream) ?? room(downstream)
          delivery.claim = left > 0
          delivery.owner = number
          rooms.set(downstream, left - takes)
          if (delivery.claim) marked.set(downstream, (marked.get(downstream) ?? 0) + takes)
        }
      }
      for (const [downstream, count] of marked)
        pending.set(downstream, (pending.get(downstream) ?? 0) + count)
      return marked
    },
    give(marked) {
      for (const [downstream, count] of marked)
        pending.set(downstream, (pending.get(downstream) ?? 0) - count)
    }
  }
}
