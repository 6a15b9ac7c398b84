// Histories of real runs, replayed through the table of moves: whatever changed a delivery, and whichever version wrote it, each change of a
// row must be a move that the table allows.
import { apply, type DeliveryRow } from '../src/domain/apply.ts'
import { moveNames, moves, type Move, type Rule, type State } from '../src/domain/transitions.ts'
import { statusWord, type HandledBy, type Phase, type Reason } from '../src/domain/types.ts'

/** A trigger that keeps each change of a delivery: the row before and after, its transaction, and the order. Leases and owners are left out. */
export const recordChanges = `
  create table if not exists public.delivery_change (
    nth bigserial primary key, txid xid8 not null default pg_catalog.pg_current_xact_id(), was jsonb not null, "is" jsonb not null
  );
  create or replace function public.keep_delivery_change() returns trigger language plpgsql as $$ begin
    insert into public.delivery_change (was, "is") values (to_jsonb(old), to_jsonb(new));
    return null;
  end $$;
  create or replace trigger delivery_change after update on public.delivery for each row
  when ((old.status, old.phase, old.attempt, old.tries_left, old.lost, old.round_from, old.position, old.reason)
    is distinct from (new.status, new.phase, new.attempt, new.tries_left, new.lost, new.round_from, new.position, new.reason))
  execute function public.keep_delivery_change()`

/** A row of `delivery`, as to_jsonb gives it. */
export interface JsonRow {
  task_id: string
  downstream: string
  status: number
  phase: Phase | null
  next_action_at: string | null
  attempt: number
  tries_left: number
  lost: number
  round_from: number
  round: number | null
  position: number | null
  owner: number | null
  deliver_before: string | null
  delivered_at: string | null
  handled_at: string | null
  handled_by: HandledBy | null
  reason: Reason | null
  updated_at: string
}

export interface Change {
  was: JsonRow
  is: JsonRow
}

/** What the change was: a move, or that a place in an orderingKey was passed. Undefined: nothing that the table allows. */
export function explainChange({ was, is }: Change): Move['name'] | 'passed' | undefined {
  const [before, after] = [rowOf(was), rowOf(is)]
  // Not a move: it FAILED, and those behind it go on.
  if (before.state === 'FAILED' && isSame({ ...before, position: -(before.position ?? 0) }, after))
    return 'passed'
  const now = ms(is.updated_at) ?? 0
  return moveNames.find(name => {
    const rule: Rule = moves[name]
    if (!rule.from.includes(before.state) || rule.to !== after.state) return false
    const wait = after.nextActionAt === null ? 0 : after.nextActionAt - now
    const move = {
      name,
      attempt: before.attempt,
      afterMs: wait,
      ...(after.reason === null ? {} : { reason: after.reason }),
      ...(after.handledBy === null ? {} : { handledBy: after.handledBy }),
      ...(rule.tries === 'anew' ? { retryTimes: after.triesLeft } : {})
    }
    const expected = apply(before, move, { now, claimer: after.owner, leaseMs: wait })
    return expected !== null && isSame(expected, after)
  })
}

const stateOf = ({ status, phase }: JsonRow): State => {
  const word = statusWord(status)
  return word === 'SENDING' ? (phase ?? 'WAITING') : word
}

const ms = (at: string | null): number | null => (at === null ? null : Date.parse(at))

const rowOf = (row: JsonRow): DeliveryRow => ({
  state: stateOf(row),
  attempt: row.attempt,
  triesLeft: row.tries_left,
  lost: row.lost,
  roundFrom: row.round_from,
  round: row.round ?? 1,
  position: row.position,
  owner: row.owner,
  nextActionAt: ms(row.next_action_at),
  deliverBefore: ms(row.deliver_before),
  deliveredAt: ms(row.delivered_at),
  handledAt: ms(row.handled_at),
  handledBy: row.handled_by,
  reason: row.reason
})

/** Times of PostgreSQL have microseconds. The narrow statements leave the owner, which means nothing after a claim. */
function isSame(expected: DeliveryRow, found: DeliveryRow): boolean {
  const near = (a: number | null, b: number | null): boolean =>
    a === null || b === null ? a === b : Math.abs(a - b) <= 2
  return (
    expected.state === found.state &&
    expected.attempt === found.attempt &&
    expected.triesLeft === found.triesLeft &&
    expected.lost === found.lost &&
    expected.roundFrom === found.roundFrom &&
    expected.round === found.round &&
    expected.position === found.position &&
    expected.handledBy === found.handledBy &&
    (expected.reason ?? null) === (found.reason ?? null) &&
    near(expected.deliverBefore, found.deliverBefore) &&
    near(expected.nextActionAt, found.nextActionAt) &&
    near(expected.deliveredAt, found.deliveredAt) &&
    near(expected.handledAt, found.handledAt)
  )
}
