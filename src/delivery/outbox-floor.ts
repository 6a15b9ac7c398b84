import type { OutboxRead } from '../db/outbox.ts'

/** A look reads the rows above this id. The rows below it are gone, but PostgreSQL cannot forget them while an old transaction is open. */
export interface OutboxFloor {
  id(): number
  /** What a look from the floor on saw; `isWhole`: it left no shard out. */
  saw(read: OutboxRead, isWhole: boolean): void
}

/**
 * Now and then all is looked at: somebody may have set the sequence back, or a backend stood still between taking its id and its
 * first write, which is when its transaction can be seen.
 */
const fullLookMs = 60_000

/**
 * An id is taken before its transaction commits, so that a higher one may be seen first. Below the floor is only what no open
 * transaction can still bring: those that had begun when the highest id was seen have ended, and nothing up to it is left.
 */
export function outboxFloor(clock: () => number = performance.now.bind(performance)): OutboxFloor {
  let floor = 0
  let next: { id: number; begunBelow: number } | undefined
  let fullAt = clock() + fullLookMs
  return {
    id() {
      if (clock() < fullAt) return floor
      fullAt = clock() + fullLookMs
      next = undefined
      return (floor = 0)
    },
    saw({ rows, endedBelow, begunBelow }, isWhole) {
      const last = rows.at(-1)
      if (next && isWhole && endedBelow >= next.begunBelow && (rows[0]?.id ?? Infinity) > next.id) {
        floor = next.id
        next = undefined
      }
      if (last) next ??= { id: last.id, begunBelow }
    }
  }
}
