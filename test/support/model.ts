import { moves, type Move, type MoveName, type Rule, type State } from '../../src/domain/transitions.ts'

const rules: Readonly<Record<MoveName, Rule>> = moves

/** The columns of a delivery that a move reads and changes. */
export interface DeliveryState {
  state: State
  attempt: number
  triesLeft: number
  lost: number
  roundFrom: number
}

/** The move as a pure function: the tests compare the SQL with this model. Null: the guard refuses the move. */
export function apply(
  at: DeliveryState,
  move: Pick<Move, 'name' | 'attempt' | 'retryTimes'>
): DeliveryState | null {
  const rule = rules[move.name]
  if (!rule.from.includes(at.state)) return null
  const fits =
    move.name === 'receive'
      ? move.attempt >= at.roundFrom && move.attempt <= at.attempt
      : move.attempt === at.attempt
  if (!fits) return null
  if (rule.tries === 'anew') {
    return {
      state: rule.to,
      attempt: at.attempt,
      triesLeft: move.retryTimes ?? 1,
      lost: 0,
      roundFrom: at.attempt + 1
    }
  }
  return {
    state: rule.to,
    attempt: move.name === 'claim' || move.name === 'promote' ? at.attempt + 1 : at.attempt,
    triesLeft: at.triesLeft + rule.tries,
    lost: at.lost + (rule.lost ?? 0),
    roundFrom: at.roundFrom
  }
}
