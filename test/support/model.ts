import { apply as applyToRow, type DeliveryRow } from '../../src/domain/apply.ts'
import type { Move } from '../../src/domain/transitions.ts'

/** The columns of a delivery that the tests of single moves read and change. */
export type DeliveryState = Pick<DeliveryRow, 'state' | 'attempt' | 'triesLeft' | 'lost' | 'roundFrom'>

/** A move on these columns alone. Null: the guard refuses the move. */
export function apply(
  at: DeliveryState,
  { name, attempt, retryTimes = 1 }: Pick<Move, 'name' | 'attempt' | 'retryTimes'>
): DeliveryState | null {
  const isAnew = name === 'redeliver' || name === 'requeue' || name === 'repeat'
  const row = applyToRow(
    {
      round: 1,
      position: 1,
      owner: null,
      nextActionAt: 0,
      deliverBefore: null,
      deliveredAt: null,
      handledAt: null,
      handledBy: null,
      reason: null,
      ...at
    },
    { name, attempt, ...(isAnew ? { retryTimes } : {}) },
    { now: 0 }
  )
  return (
    row && {
      state: row.state,
      attempt: row.attempt,
      triesLeft: row.triesLeft,
      lost: row.lost,
      roundFrom: row.roundFrom
    }
  )
}
