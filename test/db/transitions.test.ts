import fc from 'fast-check'
import t from 'tap'
import type { AttemptRow } from '../../src/db/attempt-rows.ts'
import { applyMoves } from '../../src/db/transitions.ts'
import { claimDue } from '../../src/db/deliveries.ts'
import { moveNames, states, type Move, type MoveName, type State } from '../../src/domain/transitions.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'
import { standing, stored, tried } from '../support/rows.ts'
import { apply, type DeliveryState } from '../support/model.ts'

const at = (state: State, more: Partial<DeliveryState> = {}): DeliveryState => ({
  state,
  attempt: 5,
  triesLeft: 3,
  lost: 1,
  roundFrom: 3,
  ...more
})

/** A move with the fields that its state needs. */
const moveOf = (taskId: string, name: MoveName, attempt: number, more: Partial<Move> = {}): Move => ({
  taskId,
  downstream: 'warehouse',
  attempt,
  name,
  ...(name === 'fail' ? { reason: 'SEND_EXHAUSTED' } : {}),
  ...(name === 'skip' ? { reason: 'SKIPPED' } : {}),
  ...(name === 'delete' ? { reason: 'DELETED' } : {}),
  ...(name === 'handled' ? { handledBy: 'send' } : {}),
  ...(name === 'probed' ? { handledBy: 'probe' } : {}),
  ...(name === 'receive' ? { handledBy: 'receipt' } : {}),
  ...(name === 'settle' ? { handledBy: 'operator' } : {}),
  ...(name === 'redeliver' || name === 'repeat' ? { retryTimes: 7 } : {}),
  ...more
})

const failed = (more: Partial<AttemptRow> = {}): AttemptRow =>
  tried({
    outcome: 'failed',
    reason: 'http_503',
    statusCode: 503,
    answer: Buffer.from([0, 255, 1]),
    headers: '[["a","b"]]',
    address: '10.0.0.1:80',
    ...more
  })

// Promote and requeue need an orderingKey: see ordering.test.ts.
const unkeyed = moveNames.filter(name => name !== 'promote' && name !== 'requeue')
// A claim has its own statement, in the dispatcher.
const written = unkeyed.filter(name => name !== 'claim')

t.test('every state × move × attempt is in SQL what it is on paper', async t => {
  const { sql } = await testDb(t)
  const cases = states.flatMap(state =>
    written.flatMap(name => [2, 3, 4, 5, 6].map(attempt => ({ state, name, attempt })))
  )
  const ids = await Promise.all(cases.map(({ state }) => standing(sql, at(state), { inMs: 5_000 })))
  const done = await applyMoves(
    sql,
    cases.map(({ name, attempt }, index) => ({
      move: moveOf(ids[index]!, name, attempt, { afterMs: 20_000 })
    }))
  )
  for (const [index, { state, name, attempt }] of cases.entries()) {
    const expected = apply(at(state), { name, attempt, retryTimes: 7 })
    const row = await stored(sql, ids[index]!)
    const story = `${name} from ${state}, attempt ${attempt}`
    t.same(row.standing, expected ?? at(state), story)
    t.equal(done[index], expected ? (state === 'FAILED' ? 'late' : 'moved') : 'stale', story)
    if (expected && row.inMs !== null) t.ok(row.inMs > 10_000 && row.inMs <= 20_000, `${story}: ${row.inMs}`)
  }
})

t.test('any sequence of moves leads PostgreSQL and the model to the same state', async t => {
  const { sql } = await testDb(t)
  const step = fc.record({ name: fc.constantFrom(...unkeyed), back: fc.constantFrom(0, 0, 0, 1, 2) })
  const walks = fc.sample(fc.array(step, { minLength: 10, maxLength: 25 }), { numRuns: 60, seed: 20 })
  const start: DeliveryState = { state: 'WAITING', attempt: 0, triesLeft: 30, lost: 0, roundFrom: 1 }
  // Half of the deliveries start BLOCKED.
  const models = walks.map((_, n): DeliveryState => (n % 2 ? start : { ...start, state: 'BLOCKED' }))
  const ids = await Promise.all(models.map(model => standing(sql, model)))
  // All walks take their nth step in one batch, as in production.
  for (let n = 0; n < 25; n++) {
    const moves: Move[] = []
    const expected: (DeliveryState | null)[] = []
    const claims: number[] = []
    for (const [index, walk] of walks.entries()) {
      const one = walk[n]
      const now = models[index]!
      if (!one) continue
      const attempt = Math.max(0, now.attempt - one.back)
      const after = apply(now, { name: one.name, attempt, retryTimes: 7 })
      if (one.name === 'claim') {
        if (one.back === 0 && after) claims.push(index)
      } else {
        moves.push(moveOf(ids[index]!, one.name, attempt))
        expected.push(after)
        models[index] = after ?? now
      }
    }
    const done = await applyMoves(
      sql,
      moves.map(move => ({ move }))
    )
    t.same(
      done.map(one => one !== 'stale'),
      expected.map(one => one !== null)
    )
    // All other deliveries are due in an hour, so that only these are due now.
    await sql`update delivery set next_action_at = now() + interval '1 hour' where status = 0`
    await sql`update delivery set next_action_at = now() where task_id = any(${claims.map(index => ids[index]!)}::uuid[])`
    const claimed = await claimDue(sql, [{ downstream: 'warehouse', room: 1_000, leaseMs: 3_600_000 }], null)
    t.same(claimed.map(one => one.taskId).toSorted(), claims.map(index => ids[index]!).toSorted())
    for (const index of claims)
      models[index] = apply(models[index]!, { name: 'claim', attempt: models[index]!.attempt })!
  }
  for (const [index, id] of ids.entries()) t.same((await stored(sql, id)).standing, models[index])
})

t.test('a move of something overdue is guarded by the clock that had run out', async t => {
  const { sql } = await testDb(t)
  const [late, renewed] = [
    await standing(sql, at('IN_FLIGHT'), { inMs: -1 }),
    await standing(sql, at('IN_FLIGHT'), { inMs: 5_000 })
  ]
  const moves = [late, renewed].map(id => ({ move: moveOf(id, 'lose', 5, { overdue: true }) }))
  t.same(await applyMoves(sql, moves), ['moved', 'stale'])
})

t.test('two who decide the same at once: the slower one touches nothing', async t => {
  const { sql } = await testDb(t)
  for (let n = 0; n < 30; n++) {
    const id = await standing(sql, at('IN_FLIGHT'))
    const done = await Promise.all([
      applyMoves(sql, [
        { move: moveOf(id, 'handled', 5), attempt: failed({ outcome: 'delivered', reason: null }) }
      ]),
      applyMoves(sql, [{ move: moveOf(id, 'lose', 5, { overdue: true }) }]),
      applyMoves(sql, [{ move: moveOf(id, 'receive', 4) }])
    ])
    const moved = done.flat().filter(one => one !== 'stale')
    const { standing: now } = await stored(sql, id)
    // The receipt may still move a delivery after its lease was lost. A lost lease never moves it after the receipt.
    t.ok(moved.length === 1 || (moved.length === 2 && now.state === 'HANDLED'), done.flat().join())
    if (done[2][0] === 'moved') t.equal(now.state, 'HANDLED')
  }
})

t.test('batches that name the same rows in any order do not wait for each other for ever', async t => {
  const { sql } = await testDb(t, { max: 6 })
  const ids = await Promise.all(Array.from({ length: 40 }, () => standing(sql, at('AWAITING_RECEIPT'))))
  await Promise.all(
    Array.from({ length: 30 }, (_, n) =>
      applyMoves(
        sql,
        (n % 2 ? ids : ids.toReversed()).map(id => ({ move: moveOf(id, 'extend', 5, { afterMs: n }) }))
      )
    )
  )
  t.pass('no deadlock')
})

t.test(
  'what FAILED has its alarm from the same statement; HANDLED late or a new round resolves it',
  async t => {
    const { sql } = await testDb(t)
    const ids = await Promise.all([1, 2, 3].map(() => standing(sql, at('IN_FLIGHT'))))
    const open = async () =>
      (await sql<{ task_id: string }[]>`select task_id from alarm where resolved_at is null`).map(
        row => row.task_id
      )
    await applyMoves(
      sql,
      ids.map(id => ({ move: moveOf(id, 'fail', 5) }))
    )
    t.same((await open()).toSorted(), ids.toSorted())
    const rows = await sql`select attempt, kind, sent_at, tries from alarm where task_id = ${ids[0]!}`
    t.same([...rows], [{ attempt: 5, kind: 'FAILED', sent_at: null, tries: 0 }])
    await applyMoves(sql, [
      { move: moveOf(ids[0]!, 'receive', 3) },
      { move: moveOf(ids[1]!, 'redeliver', 5) }
    ])
    t.same(await open(), [ids[2]])
    // The new round fails before its first claim, with the same attempt number. The alarm must be sent again.
    await sql`update alarm set sent_at = now(), tries = 3`
    await applyMoves(sql, [{ move: moveOf(ids[1]!, 'fail', 5, { reason: 'EXPIRED' }) }])
    t.same((await open()).toSorted(), ids.slice(1).toSorted())
    t.match(
      await sql`select sent_at, tries from alarm where task_id = ${ids[1]!}`,
      only({ sent_at: null, tries: 0 })
    )
  }
)

t.test('a move that came too late raises no alarm and resolves none', async t => {
  const { sql } = await testDb(t)
  const id = await standing(sql, at('HANDLED'))
  await applyMoves(sql, [{ move: moveOf(id, 'fail', 5), attempt: failed({ alarm: 'TLS' }) }])
  t.equal((await sql`select from alarm`).length, 0)
})

t.test('NO_HANDLER of a delivery that was never claimed is resolved by its first send', async t => {
  const { sql } = await testDb(t)
  const id = await standing(sql, { state: 'IN_FLIGHT', attempt: 1, triesLeft: 3, lost: 0, roundFrom: 1 })
  await sql`update delivery set created_at = now() - interval '2 minutes'`
  await sql`insert into alarm (task_id, downstream, attempt, kind) values (${id}, 'warehouse', 0, 'NO_HANDLER')`
  await applyMoves(sql, [{ move: moveOf(id, 'release', 1) }])
  t.equal((await sql`select from alarm where resolved_at is null`).length, 1, 'a release is no send')
  await sql`update delivery set phase = 'IN_FLIGHT'`
  await applyMoves(sql, [{ move: moveOf(id, 'retry', 1), attempt: failed() }])
  t.equal((await sql`select from alarm where resolved_at is null`).length, 0)
})

t.test('an attempt is kept even when its move came too late; a zombie’s second row is only said', async t => {
  const { sql } = await testDb(t)
  const id = await standing(sql, at('HANDLED'))
  const late = { move: moveOf(id, 'handled', 4), attempt: failed() }
  t.same(await applyMoves(sql, [late]), ['stale'])
  t.same(await applyMoves(sql, [{ ...late, attempt: failed({ node: 'b' }) }]), ['recorded'])
  const rows = await sql`select * from attempt`
  t.match(
    [...rows],
    only({
      attempt: 4,
      outcome: 'failed',
      reason: 'http_503',
      status_code: 503,
      headers: '[["a","b"]]',
      address: '10.0.0.1:80',
      ms: 12,
      node: 'a',
      started_at: new Date('2026-01-02T03:04:05.678Z')
    })
  )
  t.same(Buffer.from(rows[0]?.['answer'] as Uint8Array), Buffer.from([0, 255, 1]))
})

t.test('at most 20 receipts of a delivery are kept, also when they come in one batch', async t => {
  const { sql } = await testDb(t)
  const [loud, quiet] = [await standing(sql, at('HANDLED')), await standing(sql, at('AWAITING_RECEIPT'))]
  const receipt = (taskId: string, data: string | null = null) => ({
    taskId,
    downstream: 'warehouse',
    attempt: 5,
    result: 'HANDLED' as const,
    reason: null,
    data,
    remote: '127.0.0.1'
  })
  const batch = Array.from({ length: 30 }, (_, n) => ({ move: null, receipt: receipt(loud, `${n}`) }))
  await applyMoves(sql, [...batch, { move: moveOf(quiet, 'receive', 5), receipt: receipt(quiet) }])
  const kept = await sql<{ data: string }[]>`select data from receipt where task_id = ${loud} order by id`
  t.same(
    kept.map(row => row.data),
    batch.slice(0, 20).map((_, n) => `${n}`)
  )
  await applyMoves(sql, batch)
  t.equal((await sql`select from receipt where task_id = ${loud}`).length, 20)
  t.same(
    [...(await sql`select applied, late from receipt where task_id = ${quiet}`)],
    [{ applied: true, late: false }]
  )
})

t.test('a receipt whose move was overtaken is not kept: its caller comes back with it', async t => {
  const { sql } = await testDb(t)
  const id = await standing(sql, at('HANDLED'))
  const receipt = {
    taskId: id,
    downstream: 'warehouse',
    attempt: 5,
    result: 'RETRY',
    reason: null,
    data: null,
    remote: ''
  } as const
  t.same(await applyMoves(sql, [{ move: moveOf(id, 'retry', 5), receipt }]), ['stale'])
  t.equal((await sql`select from receipt`).length, 0)
})

t.test('nothing waits beyond its deliverBefore, and no clock lies in the past', async t => {
  const { sql } = await testDb(t)
  const [soon, passed, forced] = await Promise.all([1, 2, 3].map(() => standing(sql, at('IN_FLIGHT'))))
  await sql`update delivery set deliver_before = now() + interval '5 s' where task_id = ${soon!}`
  await sql`update delivery set deliver_before = now() - interval '5 s' where task_id <> ${soon!}`
  await applyMoves(
    sql,
    [soon!, passed!].map(id => ({ move: moveOf(id, 'retry', 5, { afterMs: 60_000 }) }))
  )
  const near = (ms: number | null, expected: number) => ms !== null && Math.abs(ms - expected) < 1_000
  t.ok(near((await stored(sql, soon!)).inMs, 5_000))
  t.ok(near((await stored(sql, passed!)).inMs, 0))
  await applyMoves(sql, [{ move: moveOf(forced!, 'fail', 5, { reason: 'EXPIRED' }) }])
  await applyMoves(sql, [{ move: moveOf(forced!, 'redeliver', 5) }])
  t.same(await sql`select deliver_before from delivery where task_id = ${forced!}`, [
    { deliver_before: null }
  ])
})

t.test('a downstream may be called null', async t => {
  const { sql } = await testDb(t)
  const id = await standing(sql, at('WAITING'), { downstream: 'null' })
  const claimed = await claimDue(sql, [{ downstream: 'null', room: 5, leaseMs: 1_000 }], null)
  t.same(claimed, [{ taskId: id, downstream: 'null', attempt: 6 }])
  t.same(await applyMoves(sql, [{ move: { ...moveOf(id, 'handled', 6), downstream: 'null' } }]), ['moved'])
})
