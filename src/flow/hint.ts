import { failpoint } from '../failpoint.ts'
import type { Record } from './record.ts'
import { underway } from './room.ts'

/** A delivery that is claimed: its attempt has a lease that runs. */
export interface Hinted {
  downstream: string
  taskId: string
  attempt: number
}

export function byDownstream(deliveries: readonly Hinted[]): Map<string, Hinted[]> {
  const groups = new Map<string, Hinted[]>()
  for (const delivery of deliveries) {
    const group = groups.get(delivery.downstream)
    if (group) group.push(delivery)
    else groups.set(delivery.downstream, [delivery])
  }
  return groups
}

/** What the flow needs of a queue. */
export interface Hints {
  /** Within 250 ms those that were not added; never rejects. */
  add(deliveries: Hinted[]): Promise<Hinted[]>
  room(downstream: string): number
}

export interface Hinter {
  add(deliveries: Hinted[]): Promise<void>
  room(downstream: string): number
  /** Resolves when each claimed delivery is hinted or released. */
  idle(): Promise<void>
}

/** Hints, and gives back what could not be hinted: released at once, it is due again and no try is burnt. */
export function hinter(hints: Hints, record: Record): Hinter {
  const busy = underway()
  const hintOrRelease = async (deliveries: Hinted[]): Promise<void> => {
    failpoint('hint.before')
    const left = await hints.add(deliveries)
    failpoint('hint.after')
    // A release that fails for good leaves a lease that runs out: later, but not lost.
    await Promise.allSettled(left.map(delivery => record({ move: { ...delivery, name: 'release' } })))
  }
  return {
    room: downstream => hints.room(downstream),
    add(deliveries) {
      busy.enter()
      return hintOrRelease(deliveries).finally(busy.leave)
    },
    idle: busy.idle
  }
}
