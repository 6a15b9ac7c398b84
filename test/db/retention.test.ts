import { uuidv7 } from '../../src/domain/ids.ts'
import t from 'tap'
import { removeOldOperations } from '../../src/db/operations.ts'
import { removeOld } from '../../src/db/retention.ts'
import { applyMoves } from '../../src/db/transitions.ts'
import type { Sql } from '../../src/db/pool.ts'
import { phaseOf, states, type State } from '../../src/domain/transitions.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'
import { idOf, standing } from '../support/rows.ts'
import type { DeliveryState } from '../support/model.ts'

const at = (state: State): DeliveryState => ({ state, attempt: 1, triesLeft: 3, lost: 0, roundFrom: 1 })

async function rows(sql: Sql): Promise<{ [table: string]: number }> {
  const [row] = await sql<[{ [table: string]: number }]>`
    select (select count(*) from task)::int as task, (select count(*) from delivery)::int as delivery,
      (select count(*) from attempt)::int as attempt, (select count(*) from receipt)::int as receipt,
      (select count(*) from alarm)::int as alarm`
  return row
}

t.test('only what is old and at rest goes, with all that hangs on it', async t => {
  const { sql } = await testDb(t)
  const kept: string[] = []
  for (const state of states) {
    const old = await standing(sql, at(state), { taskId: idOf(31) })
    const young = await standing(sql, at(state), { taskId: idOf(29) })
    kept.push(young)
    if (phaseOf(state) !== null) kept.push(old)
  }
  const half = await standing(sql, at('HANDLED'), { taskId: idOf(40) })
  await standing(sql, at('WAITING'), { taskId: half, downstream: 'points' })
  kept.push(half)
  await sql`
    insert into attempt (task_id, downstream, attempt, outcome, ms, node, started_at)
    select task_id, downstream, 1, 'delivered', 1, 'a', now() from delivery`
  await sql`
    insert into receipt (task_id, downstream, attempt, result, applied)
    select task_id, downstream, 1, 'HANDLED', true from delivery`
  await sql`insert into alarm (task_id, downstream, attempt, kind) select task_id, downstream, 1, 'FAILED' from delivery`
  t.same(await removeOld(sql, 30, 100, null), { removed: 3, next: null })
  const left = await sql<{ id: string }[]>`select id from task`
  t.same(left.map(row => row.id).toSorted(), kept.toSorted())
  t.same(await rows(sql), { task: 12, delivery: 13, attempt: 13, receipt: 13, alarm: 13 })
})

t.test('a task that ended late has its days from then on', async t => {
  const { sql } = await testDb(t)
  const ended = async (state: State, days: number): Promise<string> => {
    const taskId = await standing(sql, at(state), { taskId: idOf(90) })
    await sql`update delivery set updated_at = now() - ${days}::int * interval '1 day' where task_id = ${taskId}`
    return taskId
  }
  const kept = [await ended('HANDLED', 29), await ended('FAILED', 1)]
  await ended('HANDLED', 31)
  await ended('FAILED', 31)
  t.same(await removeOld(sql, 30, 100, null), { removed: 2, next: null })
  const left = await sql<{ id: string }[]>`select id from task order by id`
  t.same(
    left.map(row => row.id),
    kept.toSorted()
  )
})

t.test('whatever the clock says, an open task keeps its attempts and its receipts', async t => {
  const { sql } = await testDb(t)
  // Near the start of the uuid v7 times. For the database it is as if its clock had jumped ahead by 50 years.
  const ancient = 20_000
  const open = states.filter(state => phaseOf(state) !== null)
  const expected: string[] = []
  for (const state of open) {
    const taskId = await standing(sql, at(state), { taskId: idOf(ancient) })
    for (const ended of ['HANDLED', 'FAILED', 'DELETED'] as const)
      await standing(sql, at(ended), { taskId, downstream: ended.toLowerCase() })
    expected.push(taskId)
  }
  const half = await standing(sql, at('DELETED'), { taskId: idOf(ancient) })
  await sql`update task set state = 'PREPARED' where id = ${half}`
  expected.push(half)
  await standing(sql, at('HANDLED'), { taskId: idOf(ancient) })
  await sql`
    insert into attempt (task_id, downstream, attempt, outcome, ms, node, started_at)
    select task_id, downstream, 1, 'failed', 1, 'a', now() - interval '50 years' from delivery`
  await sql`
    insert into receipt (task_id, downstream, attempt, result, applied, created_at)
    select task_id, downstream, 1, 'RETRY', false, now() - interval '50 years' from delivery`
  const all = expected.length + 3 * open.length
  t.same(await removeOld(sql, 1, 100, null), { removed: 1, next: null })
  const left = await sql<{ id: string }[]>`select id from task order by id`
  t.same(
    left.map(row => row.id),
    expected.toSorted()
  )
  t.match(await rows(sql), { delivery: all, attempt: all, receipt: all })
})

t.test('it walks in bounded batches, past those that must stay', async t => {
  const { sql } = await testDb(t)
  for (let n = 0; n < 25; n++)
    await standing(sql, at(n % 5 ? 'HANDLED' : 'WAITING'), { taskId: idOf(60 - n / 10) })
  let after: string | null = null
  const removed: number[] = []
  do {
    const step: Awaited<ReturnType<typeof removeOld>> = await removeOld(sql, 30, 10, after)
    removed.push(step.removed)
    after = step.next
  } while (after !== null)
  t.same(removed, [8, 8, 4])
  t.equal((await rows(sql))['task'], 5)
})

t.test('what is redelivered at the very moment of its removal stays', async t => {
  const { sql } = await testDb(t)
  const taskId = await standing(sql, at('FAILED'), { taskId: idOf(31) })
  const other = await standing(sql, at('FAILED'), { taskId: idOf(32) })
  await sql.begin(async held => {
    await applyMoves(held as unknown as Sql, [
      { move: { taskId, downstream: 'warehouse', attempt: 1, name: 'redeliver', retryTimes: 5 } }
    ])
    t.match(await removeOld(sql, 30, 100, null), { removed: 1 }, 'it holds up no other task')
    t.same(await sql`select from task where id = ${other}`, [])
  })
  t.match(await removeOld(sql, 30, 100, null), { removed: 0 })
  t.match(await sql`select phase from delivery`, only({ phase: 'WAITING' }))
  t.equal((await rows(sql))['task'], 1)
})

t.test('what somebody still waits for stays, however old, and goes when nobody does', async t => {
  const { sql } = await testDb(t)
  const [held, done] = [
    await standing(sql, at('FAILED'), { taskId: idOf(40) }),
    await standing(sql, at('HANDLED'), { taskId: idOf(40) })
  ]
  const waits = await standing(sql, at('BLOCKED'), { taskId: idOf(39) })
  await sql`
    insert into dependency (task_id, after_id, done_at) values (${waits}, ${held}, null), (${waits}, ${done}, now())`
  t.match(await removeOld(sql, 30, 100, null), { removed: 1 })
  t.same([...(await sql`select id from task order by id`)], [{ id: held }, { id: waits }])
  await sql`update dependency set done_at = now()`
  await applyMoves(sql, [
    { move: { taskId: waits, downstream: 'warehouse', attempt: 1, name: 'delete', reason: 'DELETED' } }
  ])
  await sql`update delivery set updated_at = now() - interval '31 days'`
  t.match(await removeOld(sql, 30, 100, null), { removed: 2 })
  t.equal((await sql`select from dependency`).length, 0)
})

t.test(
  'ended operations go with their lists, a bounded number of rows at a time; what runs stays',
  async t => {
    const { sql } = await testDb(t)
    const [old, young, running] = [uuidv7(), uuidv7(), uuidv7()]
    await sql`
    insert into operation (id, state, filter, matched, created_by, ended_at) values
      (${old}, 'DONE', '{}', 5, 'ops', now() - interval '31 days'), (${young}, 'STOPPED', '{}', 1, 'ops', now() - interval '1 day'),
      (${running}, 'RUNNING', '{}', 1, 'ops', null)`
    await sql`
    insert into operation_delivery (operation_id, task_id, downstream, attempt)
    select id, gen_random_uuid(), 'warehouse', 1 from operation cross join generate_series(1, 5)`
    const left = async (id: string) =>
      (await sql`select from operation_delivery where operation_id = ${id}`).length
    t.equal(await removeOldOperations(sql, 30, 3), true)
    t.equal(await left(old), 2)
    while (await removeOldOperations(sql, 30, 3));
    t.same([await left(old), await left(young), await left(running)], [0, 5, 5])
    t.same([...(await sql`select id from operation order by id`)], [{ id: young }, { id: running }])
  }
)

t.test('the longest RETENTION_DAYS, which begins before 1970, removes nothing', async t => {
  const { sql } = await testDb(t)
  await standing(sql, at('HANDLED'), { taskId: idOf(400) })
  t.same(await removeOld(sql, 36_500, 100, null), { removed: 0, next: null })
  t.equal((await rows(sql))['task'], 1)
  t.match(await sql`select lowest_id(now() - interval '36500 days')::text as id`, [{ id: /^[0-]+$/ }])
})
