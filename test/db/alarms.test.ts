import t from 'tap'
import { writeNode } from '../../src/db/cluster.ts'
import { claimAlarms, markLogged, raiseNoHandler, sweepAlarms } from '../../src/db/alarms.ts'
import { raiseDependencyFailed } from '../../src/db/dependents.ts'
import type { Sql } from '../../src/db/pool.ts'
import { completeReceipts } from '../../src/db/receipts.ts'
import type { AttemptRow } from '../../src/db/attempt-rows.ts'
import { applyMoves } from '../../src/db/transitions.ts'
import { alarmKinds } from '../../src/domain/types.ts'
import { only } from '../support/only.ts'
import { lockWaits, testDb } from '../support/postgres.ts'
import { standing } from '../support/rows.ts'
import { until } from '../support/until.ts'
import type { DeliveryState } from '../support/model.ts'

const failed: DeliveryState = { state: 'FAILED', attempt: 1, triesLeft: 0, lost: 0, roundFrom: 1 }

async function alarm(sql: Sql, count: number): Promise<void> {
  for (let n = 0; n < count; n++) {
    const id = await standing(sql, failed)
    await sql`insert into alarm (task_id, downstream, attempt, kind) values (${id}, 'warehouse', 1, 'FAILED')`
  }
}

t.test('two who send alarms at once never take the same one, and take them all', async t => {
  const { sql } = await testDb(t)
  await alarm(sql, 60)
  const taken = (await Promise.all(Array.from({ length: 6 }, () => claimAlarms(sql, 10)))).flat()
  const rest = await claimAlarms(sql, 100)
  t.equal(new Set([...taken, ...rest].map(one => one.taskId)).size, 60)
  t.equal(taken.length + rest.length, 60)
  t.match(taken[0], {
    taskNo: /^no:/,
    messageCode: 'order.paid',
    kind: 'FAILED',
    reason: 'SEND_EXHAUSTED',
    tries: 1
  })
})

t.test('an alarm that was not taken comes again, later and later, at most a minute apart', async t => {
  const { sql } = await testDb(t)
  await alarm(sql, 1)
  const waits: number[] = []
  for (let n = 0; n < 8; n++) {
    t.equal((await claimAlarms(sql, 10)).length, 1)
    t.equal((await claimAlarms(sql, 10)).length, 0, 'not at once')
    const [row] = await sql<[{ s: number }]>`
      select round(extract(epoch from next_action_at - now()))::int as s from alarm`
    waits.push(row.s)
    await sql`update alarm set next_action_at = now()`
  }
  t.same(waits, [2, 4, 8, 16, 32, 60, 60, 60])
})

t.test('what was sent is not sent again', async t => {
  const { sql } = await testDb(t)
  await alarm(sql, 3)
  const claimed = await claimAlarms(sql, 2)
  await markLogged(sql, claimed)
  await sql`update alarm set next_action_at = now()`
  t.equal((await claimAlarms(sql, 10)).length, 1)
})

t.test('NO_HANDLER is one alarm a delivery, and opens again when it comes back', async t => {
  const { sql } = await testDb(t)
  const taskId = await standing(sql, { ...failed, state: 'WAITING' })
  const raise = async (attempt: number) =>
    (await raiseNoHandler(sql, [{ taskId, downstream: 'warehouse', attempt }]))[0]?.afterMs
  t.equal(await raise(1), 60_000)
  t.equal(await raise(2), 60_000)
  await sql`update alarm set created_at = now() - interval '5 minutes'`
  const later = await raise(3)
  t.ok(later !== undefined && Math.abs(later - 300_000) < 5_000, `${later}`)
  await sql`update alarm set created_at = now() - interval '5 hours'`
  t.equal(await raise(4), 3_600_000)
  t.equal((await sql`select from alarm`).length, 1)
  await sql`update alarm set resolved_at = now(), sent_at = now()`
  t.equal(await raise(1), 60_000)
  t.match(
    await sql`select resolved_at, sent_at, tries from alarm`,
    only({ resolved_at: null, sent_at: null, tries: 0 })
  )
})

t.test('no alarm while a live worker and a live dispatcher have a handler', async t => {
  const { sql } = await testDb(t)
  const at = { ...failed, state: 'WAITING' } as const
  const [paid, moved] = [await standing(sql, at), await standing(sql, at, { messageCode: 'stock.moved' })]
  const raise = () =>
    raiseNoHandler(
      sql,
      [paid, moved].map(taskId => ({ taskId, downstream: 'warehouse', attempt: 1 }))
    )
  const isElsewhere = { afterMs: 5_000, isElsewhere: true }
  const isNowhere = { afterMs: 60_000, isElsewhere: false }
  const handles = ['order.paid warehouse']
  await writeNode(sql, { id: 'old', roles: 'worker,dispatcher', version: '1' })
  await writeNode(sql, { id: 'worker', roles: 'worker', version: '2', handles })
  t.same(await raise(), [isNowhere, isNowhere], 'nobody would claim it again')
  await writeNode(sql, { id: 'dispatcher', roles: 'dispatcher', version: '2', handles })
  await sql`delete from alarm`
  t.same(await raise(), [isElsewhere, isNowhere])
  t.same([...(await sql`select task_id from alarm`)], [{ task_id: moved }])
  await writeNode(sql, { id: 'worker', roles: 'worker', version: '2' })
  t.same(await raise(), [isElsewhere, isNowhere], 'a later writing need not bring them again')
  const leaves = (isDoubt: boolean, s: number) => {
    const until = new Date(Date.now() + s * 1_000).toISOString()
    const yielded = [{ downstream: 'warehouse', until, reason: 'test', isDoubt }]
    return writeNode(sql, { id: 'worker', roles: 'worker', version: '2', yielded })
  }
  await leaves(true, 600)
  t.same(await raise(), [isElsewhere, isNowhere])
  await leaves(false, 600)
  t.same(await raise(), [isNowhere, isNowhere], 'it leaves the downstream to others')
  await leaves(false, -600)
  t.same(await raise(), [isElsewhere, isNowhere])
  await sql`update node set seen_at = now() - interval '16 s' where id = 'worker'`
  t.same(await raise(), [isNowhere, isNowhere])
})

const open = async (sql: Sql): Promise<string[]> =>
  (
    await sql<{ kind: string }[]>`
      select kind from alarm where resolved_at is null and kind <> 'FAILED' order by kind`
  ).map(one => one.kind)

/** Raises an alarm in a transaction. `end` begins before the commit, so it does not see the alarm. */
async function amid(sql: Sql, raise: (sql: Sql) => Promise<unknown>, end: (sql: Sql) => Promise<unknown>) {
  let ended: Promise<unknown> | undefined
  await sql.begin(async transaction => {
    await raise(transaction as unknown as Sql)
    ended = end(sql)
    await until('it waits', async () => (await lockWaits(sql)) > 0)
  })
  await ended
}

t.test('an alarm that is raised while its delivery ends is resolved by the next sweep', async t => {
  const { sql } = await testDb(t)
  const inFlight = { state: 'IN_FLIGHT', attempt: 2, triesLeft: 3, lost: 0, roundFrom: 1 } as const
  const taskId = await standing(sql, inFlight, { inMs: 60_000 })
  const key = { taskId, downstream: 'warehouse' }
  const attempt: AttemptRow = {
    outcome: 'failed',
    reason: 'certificate has expired',
    alarm: 'TLS',
    statusCode: null,
    answer: null,
    headers: null,
    address: null,
    warning: null,
    messageId: null,
    ms: 5,
    node: 'test',
    startedAt: new Date()
  }
  const receipt = { ...key, attempt: 1, result: 'HANDLED', reason: null, data: null, remote: null } as const
  await amid(
    sql,
    transaction =>
      applyMoves(transaction, [{ move: { ...key, attempt: 2, name: 'retry', afterMs: 0 }, attempt }]),
    other =>
      completeReceipts(other, [
        { move: { ...key, attempt: 1, name: 'receive', handledBy: 'receipt', ifStill: 'SENDING' }, receipt }
      ])
  )
  t.same(await open(sql), ['TLS'], 'the receipt could not see it')
  t.same(await sweepAlarms(sql, 10, null), { resolved: 1, next: null })
  t.same(await open(sql), [])
})

t.test('a sweep leaves what is not over, page by page', async t => {
  const { sql } = await testDb(t)
  const at = (state: DeliveryState['state']) => standing(sql, { ...failed, state })
  const blocked = async () => {
    const taskId = await at('BLOCKED')
    await sql`insert into dependency (task_id, after_id) values (${taskId}, ${taskId})`
    await raiseDependencyFailed(sql, [{ taskId, downstream: 'warehouse', attempt: 1 }])
    return taskId
  }
  const half = async (ended: boolean) => {
    const taskId = await at('WAITING')
    await sql`
      insert into prepared (task_id, message_code, check_after_ms, next_action_at, ended_at, ended_by) values (
        ${taskId}, 'order.paid', 1, ${ended ? null : new Date()}, ${ended ? new Date() : null}, ${ended ? 'shop' : null})`
    await sql`insert into alarm (task_id, downstream, attempt, kind) values (${taskId}, '', 0, 'PREPARED_STUCK')`
  }
  for (const state of ['HANDLED', 'WAITING'] as const)
    for (const kind of alarmKinds.filter(one => one !== 'DEPENDENCY_FAILED' && one !== 'PREPARED_STUCK'))
      await sql`insert into alarm (task_id, downstream, attempt, kind) values (${await at(state)}, 'warehouse', 1, ${kind})`
  await half(true)
  await half(false)
  await blocked()
  await sql`update dependency set done_at = now() where task_id = ${await blocked()}`
  await sql`update delivery set phase = 'WAITING' where task_id = ${await blocked()}`
  let resolved = 0
  let turns = 0
  for (
    let after: Parameters<typeof sweepAlarms>[2] = null, first = true;
    first || after;
    first = false, turns++
  ) {
    const done = await sweepAlarms(sql, 3, after)
    resolved += done.resolved
    after = done.next
  }
  t.ok(turns > 3, `${turns} pages`)
  t.equal(resolved, 6, 'of what is HANDLED three, a half message, and two that wait no more')
  const others = ['KEY_HELD', 'MISMATCH', 'REJECTED']
  t.same(
    (await open(sql)).filter(kind => !others.includes(kind)),
    ['BLOCKED_TARGET', 'DEPENDENCY_FAILED', 'NO_HANDLER', 'PREPARED_STUCK', 'TLS']
  )
  t.equal((await open(sql)).length, 5 + 2 * others.length, 'others look after these')
})
