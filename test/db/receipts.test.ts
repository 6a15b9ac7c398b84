// The short statement for receipts writes the same rows as the general one. All cases run through both, in one transaction,
// so that even now() is the same. Every column of every table is compared.
import t, { type Test } from 'tap'
import { applyMoves, type Applied, type ReceiptRow } from '../../src/db/transitions.ts'
import type { Sql } from '../../src/db/pool.ts'
import { isHandledReceipt, completeReceipts, type HandledReceipt } from '../../src/db/receipts.ts'
import { states, type State } from '../../src/domain/transitions.ts'
import { testDb } from '../support/postgres.ts'
import { standing, undone, written } from '../support/rows.ts'

interface Case {
  state: State
  /** The attempt of the receipt. The delivery is at attempt 5, in a round that began with attempt 3. */
  attempt: number
  /** The rows before the receipt: open alarms, and receipts, up to more than are kept. `old`: the delivery is over a minute old. */
  before: { alarm: boolean; receipts: number; old: boolean }
}

const befores: Case['before'][] = [
  { alarm: false, receipts: 0, old: false },
  { alarm: true, receipts: 25, old: false },
  { alarm: true, receipts: 1, old: true }
]
const cases: Case[] = states.flatMap(state =>
  [2, 3, 4, 5, 6].flatMap(attempt => befores.map(before => ({ state, attempt, before })))
)

const idOf = (n: number): string => `00000000-0000-7000-8000-${n.toString(16).padStart(12, '0')}`
const rowOf = (n: number, attempt: number): ReceiptRow => ({
  taskId: idOf(n),
  downstream: 'null',
  attempt,
  result: 'HANDLED',
  reason: n % 2 ? 'a "reason", {with} all' : null,
  data: n % 3 ? '{"a":"\\\\,null"}' : null,
  remote: n % 4 ? '10.0.0.1' : 'null'
})
const receiptOf = ({ attempt }: Pick<Case, 'attempt'>, n: number): HandledReceipt => ({
  move: {
    taskId: idOf(n),
    downstream: 'null',
    attempt,
    name: 'receive',
    handledBy: 'receipt',
    ifStill: 'SENDING'
  },
  receipt: rowOf(n, attempt)
})

/** Stores all cases, each beside a neighbour that must stay untouched, and writes. Returns the answers and all tables. */
async function story<Asked>(
  sql: Sql,
  cases: readonly Omit<Case, 'attempt'>[],
  asked: readonly Asked[],
  write: (sql: Sql, asked: readonly Asked[]) => Promise<Applied[]>
): Promise<{ applied: Applied[]; tables: unknown }> {
  for (const [n, { state, before }] of cases.entries()) {
    const at = { state, attempt: 5, triesLeft: 3, lost: 1, roundFrom: 3 }
    await standing(sql, at, { taskId: idOf(n), inMs: 5_000, downstream: 'null' })
    await standing(sql, at, { taskId: idOf(n), inMs: 5_000, downstream: 'neighbour' })
    if (before.old)
      await sql`update delivery set created_at = now() - interval '2 minutes' where task_id = ${idOf(n)}`
    if (before.alarm)
      await sql`
        insert into alarm (task_id, downstream, attempt, kind)
        select ${idOf(n)}, 'null', attempt, kind
        from (values (0, 'NO_HANDLER'), (3, 'FAILED')) as a (attempt, kind)`
    await sql`
      insert into receipt (task_id, downstream, attempt, result, applied)
      select ${idOf(n)}, 'null', 5, 'RETRY', false from generate_series(1, ${before.receipts}::int)`
  }
  await sql`update delivery set handled_at = now() where handled_at is not null`
  const applied = await write(sql, asked.toReversed())
  return { applied: applied.toReversed(), tables: await written(sql) }
}

t.test('a plain receipt leaves the same rows by either statement', async (t: Test) => {
  const { sql } = await testDb(t, { max: 1 })
  const receipts = cases.map(receiptOf)
  await sql.unsafe('begin')
  const wide = await undone(sql, sql => story(sql, cases, receipts, applyMoves))
  const narrow = await undone(sql, sql => story(sql, cases, receipts, completeReceipts))
  await sql.unsafe('rollback')
  t.same(narrow.applied, wide.applied)
  t.same(narrow.tables, wide.tables)
  for (const [n, { state, attempt }] of cases.entries()) {
    const fits =
      ['WAITING', 'IN_FLIGHT', 'AWAITING_RECEIPT', 'BLOCKED'].includes(state) && attempt >= 3 && attempt <= 5
    if (narrow.applied[n] !== (fits ? 'moved' : 'stale'))
      t.fail(`${state}, the receipt of attempt ${attempt}`)
  }
})

t.test('only what was seen SENDING goes the short way', t => {
  const plain = receiptOf({ attempt: 5 }, 0)
  const { ifStill: _, ...late } = plain.move
  t.ok(isHandledReceipt(plain))
  t.notOk(isHandledReceipt({ ...plain, move: late }), 'it may be FAILED')
  t.notOk(isHandledReceipt({ ...plain, move: { ...late, name: 'retry' } }), 'another move')
  t.notOk(isHandledReceipt({ ...plain, move: null }), 'it moves nothing')
  t.end()
})
