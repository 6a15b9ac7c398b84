// The narrow statement for sends writes the same rows as the general one. All cases run through both, in one transaction, so
// that even now() is the same. Every column of every table is compared.
import t, { type Test } from 'tap'
import { applyMoves, type Applied } from '../../src/db/transitions.ts'
import type { Sql } from '../../src/db/pool.ts'
import { isSuccessfulSend, completeSends, type SuccessfulSend } from '../../src/db/successful-sends.ts'
import { states } from '../../src/domain/transitions.ts'
import { testDb } from '../support/postgres.ts'
import { standing, tried, undone, written } from '../support/rows.ts'

const full = tried({
  statusCode: 200,
  answer: Buffer.from([0, 255, 1]),
  headers: '[["a","{\\"b,c\\"}"]]',
  address: '10.0.0.1:80',
  warning: 'NULL',
  messageId: 'orders/0/7',
  handlerVersion: -7,
  request: {
    requestShape: 2 ** 48 - 1,
    target: 'https://a.test/?b="c\\',
    bodyBytes: 3,
    bodySha256: Buffer.alloc(32, 254)
  }
})

const ends = [
  { name: 'handled', handledBy: 'send' },
  { name: 'handled', handledBy: 'answer' },
  { name: 'sent', afterMs: 20_000 },
  { name: 'sent' }
] as const

interface Case {
  state: (typeof states)[number]
  attempt: number
  end: (typeof ends)[number]
  /** The rows before the send: an attempt row by another process, an open alarm. `old`: the delivery is over a minute old. */
  before: { attempt: boolean; alarm: boolean; old: boolean }
}

const cases: Case[] = states.flatMap(state =>
  [4, 5, 6].flatMap(attempt =>
    ends.flatMap(end =>
      [
        { attempt: false, alarm: false, old: false },
        { attempt: true, alarm: true, old: false },
        { attempt: false, alarm: true, old: true }
      ].map(before => ({ state, attempt, end, before }))
    )
  )
)

/** Stores all cases, each beside a neighbour that must stay untouched, and writes. Returns the answers and all tables. */
async function story(
  sql: Sql,
  write: (sql: Sql, sends: SuccessfulSend[]) => Promise<Applied[]>
): Promise<{ applied: Applied[]; tables: unknown }> {
  const ids = cases.map((_, n) => `00000000-0000-7000-8000-${n.toString(16).padStart(12, '0')}`)
  for (const [n, { state, before }] of cases.entries()) {
    const at = { state, attempt: 5, triesLeft: 3, lost: 1, roundFrom: 3 }
    await standing(sql, at, { taskId: ids[n]!, inMs: 5_000, downstream: 'null' })
    await standing(sql, at, { taskId: ids[n]!, inMs: 5_000, downstream: 'neighbour' })
    if (before.old)
      await sql`update delivery set created_at = now() - interval '2 minutes' where task_id = ${ids[n]!}`
    if (before.attempt)
      await sql`
        insert into attempt (task_id, downstream, attempt, outcome, ms, node, started_at)
        values (${ids[n]!}, 'null', 5, 'failed', 1, 'b', now())`
    if (before.alarm)
      await sql`insert into alarm (task_id, downstream, attempt, kind) values (${ids[n]!}, 'null', 0, 'NO_HANDLER')`
  }
  await sql`update delivery set handled_at = now() where handled_at is not null`
  const sends = cases.map(({ attempt, end }, n) => ({
    move: { taskId: ids[n]!, downstream: 'null', attempt, ...end },
    attempt: n % 2 ? full : tried()
  }))
  const applied = await write(sql, sends.toReversed())
  return { applied: applied.toReversed(), tables: await written(sql) }
}

t.test('a send that went well leaves the same rows by either statement', async (t: Test) => {
  const { sql } = await testDb(t, { max: 1 })
  await sql.unsafe('begin')
  const wide = await undone(sql, sql => story(sql, applyMoves))
  const narrow = await undone(sql, sql => story(sql, completeSends))
  await sql.unsafe('rollback')
  t.same(narrow.applied, wide.applied)
  t.same(narrow.tables, wide.tables)
  t.same(new Set(wide.applied), new Set(['moved', 'stale', 'recorded']), 'the cases show every answer')
})

t.test('nothing but a plain send goes the short way', t => {
  const move = { taskId: 'a', downstream: 'b', attempt: 1, name: 'handled', handledBy: 'send' } as const
  t.ok(isSuccessfulSend({ move, attempt: tried() }))
  t.notOk(isSuccessfulSend({ move }), 'no attempt')
  t.notOk(isSuccessfulSend({ move, attempt: tried({ alarm: 'TLS' }) }), 'an alarm to raise')
  t.notOk(isSuccessfulSend({ move: { ...move, name: 'retry' }, attempt: tried() }), 'another move')
  t.end()
})

t.test('an attempt whose delivery is gone is kept, and says that it is stale', async t => {
  const { sql } = await testDb(t)
  const move = {
    taskId: '00000000-0000-7000-8000-000000000001',
    downstream: 'b',
    attempt: 1,
    name: 'sent'
  } as const
  t.same(await completeSends(sql, [{ move, attempt: tried() }]), ['stale'])
  t.same(await completeSends(sql, [{ move, attempt: tried() }]), ['recorded'])
  t.equal((await sql`select from attempt`).length, 1)
})
