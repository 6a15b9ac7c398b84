// Random rows and moves, written by PostgreSQL and by the pure function: all columns of the delivery are compared.
import fc from 'fast-check'
import t from 'tap'
import { applyMoves, isMoved, type Completion } from '../../src/db/transitions.ts'
import { apply, type DeliveryRow } from '../../src/domain/apply.ts'
import { uuidv7 } from '../../src/domain/ids.ts'
import { moveNames, moves, phaseOf, statusOf, type Move, type Rule } from '../../src/domain/transitions.ts'
import { handledBys, phases, reasons, receiptResults, statusNumber } from '../../src/domain/types.ts'
import type { Sql } from '../../src/db/pool.ts'
import { testDb } from '../support/postgres.ts'

/** What `applyMoves` writes: claims, and the moves that promote decides, have statements of their own. */
const written = moveNames.filter(name => name !== 'claim' && name !== 'promote')
const states = [...phases, 'FAILED', 'HANDLED', 'DELETED'] as const

const second = fc.integer({ min: -20, max: 20 })
const rows = fc
  .record({
    state: fc.constantFrom(...states),
    attempt: fc.integer({ min: 2, max: 4 }),
    triesLeft: fc.integer({ min: 0, max: 3 }),
    lost: fc.integer({ min: 0, max: 2 }),
    roundFrom: fc.constantFrom(1, 1, 2, 3, 5),
    round: fc.integer({ min: 1, max: 3 }),
    owner: fc.option(fc.integer({ min: 1, max: 2 })),
    clock: second,
    position: fc.option(fc.integer({ min: 1, max: 9 })),
    isOutOfOrder: fc.boolean(),
    deliverBefore: fc.option(second),
    delivered: fc.option(second),
    reason: fc.option(fc.constantFrom(...reasons)),
    handledBy: fc.constantFrom(...handledBys)
  })
  .map(one => ({
    ...one,
    position:
      one.position !== null && one.isOutOfOrder && one.state !== 'BLOCKED' ? -one.position : one.position
  }))

const requests = fc.record({
  name: fc.constantFrom(...written),
  back: fc.constantFrom(0, 0, 0, 1, 2, -1),
  afterMs: fc.constantFrom(0, 5_000, 60_000),
  overdue: fc.constantFrom(false, false, false, true),
  owner: fc.constantFrom(undefined, undefined, undefined, 0, 1),
  ifStill: fc.constantFrom(
    ...Array.from({ length: 6 }, () => undefined),
    'SENDING' as const,
    'FAILED' as const,
    ...phases
  ),
  timely: fc.constantFrom(false, false, true),
  isExpiry: fc.boolean(),
  result: fc.option(fc.constantFrom(...receiptResults))
})

type Row = typeof rows extends fc.Arbitrary<infer T> ? T : never
type Request = typeof requests extends fc.Arbitrary<infer T> ? T : never

/** All times are relative to `now`, which is that of the database. */
const rowOf = (one: Row, now: number): DeliveryRow => ({
  state: one.state,
  attempt: one.attempt,
  triesLeft: one.triesLeft,
  lost: one.lost,
  roundFrom: one.roundFrom,
  round: one.round,
  position: one.state === 'BLOCKED' && one.position !== null ? Math.abs(one.position) : one.position,
  owner: one.owner,
  nextActionAt: phaseOf(one.state) === null ? null : now + one.clock * 1_000 - 500,
  deliverBefore: one.deliverBefore === null ? null : now + one.deliverBefore * 1_000 - 500,
  deliveredAt: one.delivered === null ? null : now + one.delivered * 1_000,
  handledAt: one.state === 'HANDLED' ? now : null,
  handledBy: one.state === 'HANDLED' ? one.handledBy : null,
  reason: one.state === 'FAILED' ? (one.reason ?? 'REFUSED') : one.reason
})

const isAnew = (name: Move['name']): boolean => (moves[name] as Rule).tries === 'anew'

function moveOf(taskId: string, { attempt }: Row, one: Request): Move {
  const { name, back, afterMs, owner, ifStill } = one
  return {
    taskId,
    downstream: 'warehouse',
    name,
    attempt: attempt - back,
    afterMs,
    overdue: one.overdue,
    ...(owner === undefined ? {} : { owner }),
    ...(ifStill === undefined ? {} : { ifStill }),
    ...(one.timely ? { timely: true } : {}),
    ...(isAnew(name) ? { retryTimes: 7, orderingKey: 'k' } : {}),
    ...(moves[name].to === 'HANDLED' ? { handledBy: 'operator' } : {}),
    ...(name === 'fail' ? { reason: one.isExpiry ? 'EXPIRED' : 'SEND_EXHAUSTED' } : {}),
    ...(name === 'skip' ? { reason: 'SKIPPED' } : {}),
    ...(name === 'delete' ? { reason: 'DELETED' } : {})
  }
}

async function insert(sql: Sql, ids: readonly string[], all: readonly DeliveryRow[]): Promise<void> {
  const at = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString())
  const records = all.map((row, n) => ({
    task_id: ids[n],
    downstream: 'warehouse',
    status: statusNumber[statusOf(row.state)],
    phase: phaseOf(row.state),
    next_action_at: at(row.nextActionAt),
    attempt: row.attempt,
    tries_left: row.triesLeft,
    lost: row.lost,
    round_from: row.roundFrom,
    round: row.round,
    needs_receipt: true,
    ordering_key: row.position === null ? null : `k${n}`,
    position: row.position,
    owner: row.owner,
    deliver_before: at(row.deliverBefore),
    delivered_at: at(row.deliveredAt),
    handled_at: at(row.handledAt),
    handled_by: row.handledBy,
    reason: row.reason,
    created_at: at(0),
    updated_at: at(0)
  }))
  await sql`
    insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_by)
    select id, id::text, 'order.paid', '', '{}', 'hash', 'test' from unnest(${[...ids]}::uuid[]) id`
  await sql`
    insert into delivery select * from jsonb_populate_recordset(null::delivery, ${JSON.stringify(records)}::text::jsonb)`
}

const read = (
  sql: Sql
): Promise<(Omit<DeliveryRow, 'state'> & { id: string; phase: string | null; status: number })[]> =>
  sql`
    select task_id as id, phase, status, attempt, tries_left as "triesLeft", lost, round_from as "roundFrom", round, position::int,
      owner, extract(epoch from next_action_at)::float8 * 1000 as "nextActionAt",
      extract(epoch from deliver_before)::float8 * 1000 as "deliverBefore",
      extract(epoch from delivered_at)::float8 * 1000 as "deliveredAt",
      extract(epoch from handled_at)::float8 * 1000 as "handledAt", handled_by as "handledBy", reason
    from delivery`

/** PostgreSQL counts in microseconds. */
const rounded = (row: Omit<DeliveryRow, 'state'>) =>
  Object.fromEntries(
    Object.entries(row).map(([name, value]) => [
      name,
      name.endsWith('At') || name === 'deliverBefore' ? value && Math.round(Number(value)) : value
    ])
  )

t.test('of any row and any move, PostgreSQL and the table of moves make the same row', async t => {
  const { sql } = await testDb(t)
  const sampled = fc.sample(fc.tuple(rows, requests, fc.nat(9), fc.nat(99)), { numRuns: 6_000, seed: 11 })
  // Most moves are tried from a state that they may start from.
  const cases = sampled.map(([row, request, at, which]): [Row, Request] => {
    const { from } = moves[request.name]
    return [at < 2 ? row : { ...row, state: from[which % from.length] ?? row.state }, request]
  })
  const [{ ms }] = await sql<[{ ms: number }]>`select extract(epoch from now())::float8 * 1000 as ms`
  const before = cases.map(([row]) => rowOf(row, Math.round(ms)))
  const ids = cases.map(() => uuidv7())
  await insert(sql, ids, before)
  const completions = cases.map(([row, request], n): Completion => {
    const move = moveOf(ids[n] ?? '', row, request)
    if (request.result === null) return { move }
    const { taskId, downstream, attempt } = move
    return {
      move,
      receipt: { taskId, downstream, attempt, result: request.result, reason: null, data: null, remote: null }
    }
  })
  let now = 0
  const done = await applyMoves(sql, completions, 0, at => {
    now = at
  })
  const after = new Map((await read(sql)).map(({ id, ...row }) => [id, row]))
  let count = 0
  for (const [n, completion] of completions.entries()) {
    const [row, move] = [before[n], completion.move]
    if (!row || !move) continue
    const expected = apply(row, move, { now, hasReceipt: completion.receipt !== undefined })
    const { status, phase, ...columns } = after.get(ids[n] ?? '') ?? { status: 9, phase: null }
    const { state, ...kept } = expected ?? row
    const found = { ...rounded(columns as DeliveryRow), status, phase }
    const wanted = { ...rounded(kept), status: statusNumber[statusOf(state)], phase: phaseOf(state) }
    if (expected) count++
    const isSame =
      isMoved(done[n]) === (expected !== null) &&
      JSON.stringify(sorted(found)) === JSON.stringify(sorted(wanted))
    // Thousands of rows: only what differs is an assertion of its own.
    if (!isSame)
      t.same({ ...found, done: done[n] }, { ...wanted, move: move.name }, JSON.stringify({ row, move }))
  }
  t.ok(count > 500, `${count} of ${cases.length} moves were allowed`)
})

const sorted = (row: object): object =>
  Object.fromEntries(Object.entries(row).toSorted(([a], [b]) => (a < b ? -1 : 1)))
