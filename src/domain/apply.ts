// What a move does to the row of a delivery, as a pure function of the table of moves. The statements of db/ do the same in SQL:
// test/db/apply.test.ts compares all columns. The model (model/) explores every interleaving of it.
import { moves, type Move, type MoveName, type Rule, type State } from './transitions.ts'
import { phases, type HandledBy, type Reason } from './types.ts'

/** The row of a delivery. Times in ms since 1970. */
export interface DeliveryRow {
  state: State
  attempt: number
  triesLeft: number
  lost: number
  /** The first attempt of its round. */
  roundFrom: number
  round: number
  /** null without an orderingKey; below zero: out of order. */
  position: number | null
  owner: number | null
  /** Its clock. null: it has ended. */
  nextActionAt: number | null
  deliverBefore: number | null
  deliveredAt: number | null
  handledAt: number | null
  handledBy: HandledBy | null
  reason: Reason | null
}

/** How a move is written. */
export interface Written {
  /** The time of the statement. */
  now: number
  /** It comes with a receipt. */
  hasReceipt?: boolean
  /** For a move that claims: the process, and its lease in ms. */
  claimer?: number | null
  leaseMs?: number
}

const rules: Readonly<Record<MoveName, Rule>> = moves

/** The row after the move. null: the guard refuses it, and nothing is written. */
export function apply(
  row: DeliveryRow,
  move: Omit<Move, 'taskId' | 'downstream'>,
  written: Written
): DeliveryRow | null {
  const rule = rules[move.name]
  if (!isAllowed(row, move, rule, written)) return null
  return rule.claims ? claimed(row, written) : moved(row, move, rule, written)
}

function isAllowed(
  row: DeliveryRow,
  move: Omit<Move, 'taskId' | 'downstream'>,
  rule: Rule,
  { now, hasReceipt = false }: Written
): boolean {
  const { attempt } = move
  if (!rule.from.includes(row.state) || !isStill(row.state, move.ifStill)) return false
  if (rule.attempt === 'current' && attempt !== row.attempt) return false
  if (rule.attempt === 'of round' && attempt > row.attempt) return false
  // The number of an attempt stays when a new round begins.
  if ((rule.attempt === 'of round' || hasReceipt) && attempt < row.roundFrom) return false
  if (move.overdue && !isOverdue(row, move.reason, now)) return false
  if (move.owner !== undefined && (row.owner ?? 0) !== move.owner) return false
  if (move.timely && !isTimely(row, now)) return false
  return rule.place !== 'kept' || (row.position ?? 0) > 0
}

const isStill = (state: State, still: Move['ifStill']): boolean =>
  still === undefined || still === state || (still === 'SENDING' && phases.some(phase => phase === state))

const isOverdue = ({ nextActionAt, deliverBefore }: DeliveryRow, reason: Reason | undefined, now: number) =>
  nextActionAt !== null &&
  nextActionAt <= now &&
  (reason !== 'EXPIRED' || (deliverBefore !== null && deliverBefore <= now))

const isTimely = ({ deliverBefore }: DeliveryRow, now: number): boolean =>
  deliverBefore === null || deliverBefore > now

const claimed = (row: DeliveryRow, { now, claimer = null, leaseMs = 0 }: Written): DeliveryRow => ({
  ...row,
  state: 'IN_FLIGHT',
  attempt: row.attempt + 1,
  triesLeft: row.triesLeft - 1,
  nextActionAt: now + leaseMs,
  owner: claimer
})

function moved(
  row: DeliveryRow,
  { name, afterMs = 0, reason, handledBy, retryTimes }: Omit<Move, 'taskId' | 'downstream'>,
  { to, tries, lost, place }: Rule,
  { now }: Written
): DeliveryRow {
  const isAnew = tries === 'anew'
  // A new round has no deadline that has passed.
  const deliverBefore = !isAnew || isTimely(row, now) ? row.deliverBefore : null
  const deliveredAt = name === 'sent' || name === 'handled' ? (row.deliveredAt ?? now) : row.deliveredAt
  return {
    ...row,
    state: to,
    triesLeft: isAnew ? (retryTimes ?? row.triesLeft) : row.triesLeft + tries,
    lost: isAnew ? 0 : row.lost + (lost ?? 0),
    roundFrom: isAnew ? row.attempt + 1 : row.roundFrom,
    round: isAnew ? row.round + 1 : row.round,
    position: place === 'left' && row.position !== null ? -Math.abs(row.position) : row.position,
    owner: null,
    nextActionAt: clockOf(to, now, afterMs, deliverBefore),
    deliverBefore,
    deliveredAt: isAnew ? null : deliveredAt,
    handledAt: to === 'HANDLED' ? now : null,
    handledBy: handledBy ?? null,
    reason: reason ?? null
  }
}

/** Never in the past. */
function clockOf(to: State, now: number, afterMs: number, deliverBefore: number | null): number | null {
  if (to === 'WAITING') return Math.max(now, Math.min(now + afterMs, deliverBefore ?? Infinity))
  if (to === 'AWAITING_RECEIPT') return now + afterMs
  if (to === 'BLOCKED') return deliverBefore ?? never
  return null
}

/** The clock of a delivery that only another one sets going: 9999-12-31. */
export const never = Date.UTC(9999, 11, 31)
