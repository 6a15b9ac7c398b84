import t from 'tap'
import { claimAlarms, markAlarmsSent, raiseNoHandler } from '../../src/db/alarms.ts'
import type { Sql } from '../../src/db/pool.ts'
import { testDb } from '../support/postgres.ts'
import { standing } from '../support/rows.ts'
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
  await markAlarmsSent(sql, claimed)
  await sql`update alarm set next_action_at = now()`
  t.equal((await claimAlarms(sql, 10)).length, 1)
})

t.test('NO_HANDLER is one alarm a delivery, and opens again when it comes back', async t => {
  const { sql } = await testDb(t)
  const taskId = await standing(sql, { ...failed, state: 'WAITING' })
  const raise = (attempt: number) => raiseNoHandler(sql, [{ taskId, downstream: 'warehouse', attempt }])
  t.same(await raise(1), [60_000])
  t.same(await raise(2), [60_000])
  await sql`update alarm set created_at = now() - interval '5 minutes'`
  const [later] = await raise(3)
  t.ok(later !== undefined && Math.abs(later - 300_000) < 5_000, `${later}`)
  await sql`update alarm set created_at = now() - interval '5 hours'`
  t.same(await raise(4), [3_600_000])
  t.equal((await sql`select from alarm`).length, 1)
  await sql`update alarm set resolved_at = now(), sent_at = now()`
  t.same(await raise(1), [60_000])
  t.match(await sql`select resolved_at, sent_at, tries from alarm`, [
    { resolved_at: null, sent_at: null, tries: 0 }
  ])
})
