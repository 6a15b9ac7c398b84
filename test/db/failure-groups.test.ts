import t from 'tap'
import { archiveFailure, listFailures, type FailureFilter } from '../../src/db/failure-groups.ts'
import { listDeliveries } from '../../src/db/lists.ts'
import { readBlocks } from '../../src/db/blocks.ts'
import { readChanges } from '../../src/db/changes.ts'
import type { Sql } from '../../src/db/pool.ts'
import { readStats, removeOldStatistics, writeStatistics } from '../../src/db/statistics.ts'
import { applyMoves } from '../../src/db/transitions.ts'
import { openStatistics } from '../../src/runtime/statistics.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'
import { standing } from '../support/rows.ts'

const inFlight = { state: 'IN_FLIGHT', attempt: 1, triesLeft: 0, lost: 0, roundFrom: 1 } as const
const filter = (): FailureFilter => ({
  messageCodes: null,
  from: new Date(Date.now() - 3_600_000),
  to: new Date(Date.now() + 60_000),
  archived: false,
  limit: 50
})

/** Moves the delivery to FAILED, with an attempt that got `answer`. */
async function fail(sql: Sql, taskId: string, answer: string, attempt = 1, downstream = 'warehouse') {
  return await applyMoves(sql, [
    {
      move: { taskId, downstream, attempt, name: 'fail', reason: 'SEND_EXHAUSTED' },
      attempt: {
        outcome: 'failed',
        reason: 'http_500',
        statusCode: 500,
        answer: Buffer.from(answer),
        headers: null,
        address: null,
        warning: null,
        messageId: null,
        alarm: null,
        ms: 5,
        node: 'test',
        startedAt: new Date()
      }
    }
  ])
}

t.test('what FAILED for one cause is one group, written with the failure itself', async t => {
  const { sql, reads } = await testDb(t)
  for (let n = 0; n < 3; n++)
    await fail(sql, await standing(sql, inFlight), `stock ${n} of order-${n} is gone`)
  const other = await standing(sql, inFlight, { messageCode: 'stock.moved', taskNo: 'moved-1' })
  await fail(sql, other, 'the warehouse is closed')
  t.same(await fail(sql, other, 'again'), ['recorded'], 'who comes late')

  const { failures, partial } = await listFailures(reads, filter())
  t.equal(partial, undefined)
  t.match(failures, [
    {
      downstream: 'warehouse',
      reason: 'SEND_EXHAUSTED',
      status: 500,
      line: 'stock # of order-# is gone',
      failed: 3,
      failures: 3,
      again: 0
    },
    {
      line: 'the warehouse is closed',
      failed: 1,
      failures: 1,
      example: { taskNo: 'moved-1', answer: 'the warehouse is closed' }
    }
  ])
  t.equal(failures.length, 2, 'one that came late is no failure')
  const listed = async (fingerprint = '', more = {}) => {
    const page = { messageCodes: null, from: new Date(0), limit: 50, status: 'FAILED' as const, ...more }
    const found = await listDeliveries(reads, { ...page, fingerprint })
    if (found === 'bad_cursor') throw new Error(found)
    return found.deliveries.map(one => one.taskNo)
  }
  t.equal((await listed(failures[0]?.fingerprint)).length, 3)
  t.same(await listed(failures[1]?.fingerprint), ['moved-1'])
  t.same(await listed(failures[1]?.fingerprint, { downstream: 'ads' }), [])
  t.same(await listed('0123456789abcdef'), [])
  t.equal(
    failures[0]?.histogram.reduce((sum, n) => sum + n, 0),
    3
  )
  const seen = async (more: Partial<FailureFilter>) =>
    (await listFailures(reads, { ...filter(), ...more })).failures.map(one => one.failed)
  t.same(await seen({ messageCodes: ['stock.moved'] }), [1], 'a key of some messageCodes sees those')
  t.same(await seen({ messageCode: 'order.paid' }), [3])
  t.same(await seen({ downstream: 'ads' }), [])
  t.same(await seen({ fingerprint: failures[0]?.fingerprint ?? '' }), [3])
  t.same(await seen({ to: new Date(Date.now() - 60_000) }), [])
})

t.test(
  'failures of one downstream are found behind those of another, and what was left out is said',
  async t => {
    const { sql, reads } = await testDb(t)
    await fail(
      sql,
      await standing(sql, inFlight, { messageCode: 'stock.moved', taskNo: 'moved-1' }),
      'closed'
    )
    /** Newer failures of ads, in `groups` groups. */
    const add = (n: number, groups: number) => sql`
    insert into failure (task_id, downstream, attempt, message_code, fingerprint, reason, created_at)
    select gen_random_uuid(), 'ads', 1, 'order.paid', lpad((n % ${groups}::int)::text, 16, '0'), 'REFUSED', now() + interval '1 s'
    from generate_series(1, ${n}::int) n`
    await add(12_000, 3)
    const seen = async (more: Partial<FailureFilter>) => {
      const { failures, partial = false } = await listFailures(reads, { ...filter(), ...more })
      return { groups: failures.map(one => one.downstream), partial }
    }
    const mine = { groups: ['warehouse'], partial: false }
    t.same(await seen({ downstream: 'warehouse' }), mine)
    t.same(await seen({ messageCode: 'stock.moved' }), mine)
    t.same(await seen({ messageCodes: ['stock.moved'] }), mine)
    t.same(await seen({}), { groups: ['ads', 'ads', 'ads'], partial: true }, 'the newest 10,000 are read')
    t.same(await seen({ downstream: 'nobody' }), { groups: [], partial: false }, 'all were searched')

    await add(90_000, 3)
    t.same(await seen({ downstream: 'warehouse' }), { groups: [], partial: true }, 'behind 100,000 others')
    await sql`delete from failure where downstream = 'ads'`
    await add(5, 5)
    t.same(
      await seen({ limit: 2 }),
      { groups: ['warehouse', 'ads'], partial: true },
      'more groups than asked for'
    )
    t.match(await seen({ limit: 6 }), { groups: { length: 6 }, partial: false })
  }
)

t.test('what fails again after a redelivery stands out; what is HANDLED is FAILED no more', async t => {
  const { sql, reads } = await testDb(t)
  const [again, mended] = [await standing(sql, inFlight), await standing(sql, inFlight)]
  for (const taskId of [again, mended]) await fail(sql, taskId, 'no')
  for (const taskId of [again, mended]) {
    await applyMoves(sql, [
      { move: { taskId, downstream: 'warehouse', attempt: 1, name: 'redeliver', retryTimes: 1 } }
    ])
    await sql`update delivery set phase = 'IN_FLIGHT', attempt = 2, tries_left = 0 where task_id = ${taskId}`
  }
  t.match(
    (await listFailures(reads, filter())).failures,
    only({ failed: 0, failures: 2 }),
    'both are on their way'
  )
  await fail(sql, again, 'no', 2)
  await applyMoves(sql, [
    { move: { taskId: mended, downstream: 'warehouse', attempt: 2, name: 'handled', handledBy: 'send' } }
  ])
  t.match((await listFailures(reads, filter())).failures, only({ failed: 1, failures: 3, again: 1 }))
})

t.test('an archived group is hidden until it fails again, and nobody hides what is not theirs', async t => {
  const { sql, reads } = await testDb(t)
  await fail(sql, await standing(sql, inFlight), 'no')
  const fingerprint = (await listFailures(reads, filter())).failures[0]?.fingerprint ?? ''
  const archive = (messageCodes: string[] | null, print = fingerprint) =>
    archiveFailure(sql, { fingerprint: print, note: 'their outage', who: { name: 'ops-1' }, messageCodes })
  t.equal(await archive(['stock.moved']), false)
  t.equal(await archive(null, '0'.repeat(16)), false)
  t.equal(await archive(null), true)
  t.same((await listFailures(reads, filter())).failures, [])
  t.match(
    (await listFailures(reads, { ...filter(), archived: true })).failures,
    only({ fingerprint, archived: { note: 'their outage', by: 'ops-1' } })
  )
  t.match(
    await sql`select who, what, target from audit`,
    only({ who: 'ops-1', what: 'failure.archive', target: fingerprint })
  )
  await fail(sql, await standing(sql, inFlight), 'no')
  t.match((await listFailures(reads, filter())).failures, only({ failures: 2 }), 'it is back')
})

t.test('a look at changes tells of failures, acts and watched tasks since the last one', async t => {
  const { sql } = await testDb(t)
  const taskId = await standing(sql, inFlight, { taskNo: 'watched' })
  const first = await readChanges(sql, null, ['watched', 'nobody'])
  t.match(first, { failures: { length: 0 }, audit: false })
  t.same([...first.tasks.keys()], ['watched'])
  const same = await readChanges(sql, first, ['watched'])
  t.equal(same.tasks.get('watched')?.state, first.tasks.get('watched')?.state)
  await fail(sql, taskId, 'no')
  await sql`insert into audit (who, what) values ('ops-1', 'task.redeliver')`
  const next = await readChanges(sql, same, ['watched'])
  t.same(next.failures, [{ messageCode: 'order.paid', downstream: 'warehouse' }])
  t.equal(next.audit, true)
  t.not(next.tasks.get('watched')?.state, first.tasks.get('watched')?.state)
  const last = await readChanges(sql, next, [])
  t.same([last.failures, last.audit], [[], false])
})

t.test('a look at changes finds what was committed after a row with a higher id', async t => {
  const { sql } = await testDb(t)
  const [early, late] = [await standing(sql, inFlight), await standing(sql, inFlight)]
  const act = (sql: Sql, who: string) => sql`insert into audit (who, what) values (${who}, 'task.redeliver')`
  const seen = await readChanges(sql, null, [])
  const slow = await sql.reserve()
  t.teardown(() => slow.release())
  await slow`begin`
  await fail(slow, early, 'no')
  await act(slow, 'ops-1')
  await fail(sql, late, 'no')
  await act(sql, 'ops-2')
  const first = await readChanges(sql, seen, [])
  t.equal(first.failures.length, 1)
  await slow`commit`
  const next = await readChanges(sql, first, [])
  t.same([next.failures.length, next.audit], [1, true])
  await sql`delete from failure where id = (select max(id) from failure)`
  t.same((await readChanges(sql, next, [])).failures, [], 'an old row is not new when a newer one is deleted')
})

t.test('counts are written twice without counting twice, and summed up by time and downstream', async t => {
  const { sql, reads } = await testDb(t)
  let now = Date.parse('2026-11-24T10:00:30Z')
  const statistics = openStatistics(() => now)
  const write = () => statistics.flush(counts => writeStatistics(sql, 'node-1', counts))
  for (let n = 0; n < 3; n++) statistics.accepted('order.paid')
  const first = statistics.at('warehouse', 'order.paid')
  first.attempted(true, true)
  first.handled(true, now - 90)
  await write()
  statistics.at('ads', 'order.paid').attempted(false, false)
  statistics.at('ads', 'order.paid').failed(false, true)
  await t.rejects(statistics.flush(() => Promise.reject(new Error('away'))))
  now += 60_000
  statistics.at('warehouse', 'stock.moved').handled(false, now - 4_000)
  await write()
  await write()

  const asked = {
    messageCodes: null,
    from: new Date('2026-11-24T10:00:00Z'),
    to: new Date('2026-11-24T11:00:00Z'),
    stepS: 60,
    byDownstream: false
  }
  const [all] = await readStats(reads, asked)
  t.match(all, {
    points: only(
      {
        at: '2026-11-24T10:00:00.000Z',
        accepted: 3,
        attempts: 2,
        failedAttempts: 1,
        firstTries: 1,
        firstDelivered: 1,
        handled: 1,
        direct: 1,
        p50Ms: 90,
        failed: 1,
        failedLater: 1,
        exhausted: 1
      },
      { at: '2026-11-24T10:01:00.000Z', accepted: 0, handled: 1, direct: 0 }
    ),
    total: { accepted: 3, handled: 2, failed: 1 }
  })
  t.equal(all?.total.p99Ms, 4_000, 'no percentile is beyond the longest time')
  t.match(
    await readStats(reads, { ...asked, byDownstream: true }),
    only({ downstream: 'ads', total: { failed: 1 } }, { downstream: 'warehouse', total: { handled: 2 } })
  )
  t.match(
    await readStats(reads, { ...asked, messageCodes: ['stock.moved'] }),
    only({ total: { accepted: 0, handled: 1, failed: 0 } })
  )
  t.match(await readStats(reads, { ...asked, stepS: 3_600 }), only({ points: { length: 1 } }))
})

t.test('counts are removed after 30 days, two hours of them at once', async t => {
  const { sql } = await testDb(t)
  const days = [45, 44.99, 40, 29]
  await sql`
    insert into stat_minute (
      minute, node, downstream, message_code, accepted, attempts, failed_attempts, handled, direct, failed, exhausted, handled_ms)
    select now() - age * interval '1 day', 'n', '', 'order.paid', 1, 0, 0, 0, 0, 0, 0, '{}' from unnest(${days}::float8[]) age`
  const left: number[] = []
  for (let n = 0; n < 3; n++) {
    await removeOldStatistics(sql)
    const [row] = await sql<{ count: number }[]>`select count(*)::int as count from stat_minute`
    left.push(row?.count ?? 0)
  }
  t.same(left, [2, 1, 1])
})

t.test('what keeps a task from going on is named, but not tasks of other messageCodes', async t => {
  const { sql, reads } = await testDb(t)
  const [mine, theirs] = [
    await standing(sql, inFlight, { taskNo: 'mine' }),
    await standing(sql, { ...inFlight, state: 'FAILED' }, { taskNo: 'theirs', messageCode: 'stock.moved' })
  ]
  const waits = await standing(sql, { ...inFlight, state: 'BLOCKED' }, { taskNo: 'waits' })
  for (const after of [mine, theirs])
    await sql`insert into dependency (task_id, after_id) values (${waits}, ${after})`
  await sql`insert into downstream (name, paused_at, paused_by) values ('warehouse', now(), 'ops-1')`
  const { paused, blockers } = await readBlocks(reads, 'waits', ['warehouse'], null)
  t.match(
    blockers,
    only({ taskNo: 'mine', status: 'SENDING' }, { taskNo: 'theirs', status: 'FAILED', since: /Z$/ })
  )
  t.match(paused.get('warehouse'), { by: 'ops-1', since: /Z$/ })
  t.match(await readBlocks(reads, 'waits', ['warehouse'], ['order.paid']), {
    blockers: only({ taskNo: 'mine' })
  })
})
