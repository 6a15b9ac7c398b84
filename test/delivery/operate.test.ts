import t from 'tap'
import { stoppedClaims } from '../../src/delivery/stopped-claims.ts'
import { push, settle, type WriteAudit } from '../../src/delivery/operate.ts'
import { losingPool } from '../support/away.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'
import { failed } from '../support/scripted.ts'
import { setup, type Story } from '../support/setup.ts'

const who = 'operator'

/** `push` and `settle`, called as the API calls them. `acts` holds the audit entries. */
function hands(story: Story) {
  const acts: [before: object, after: object][] = []
  const audit: WriteAudit = async (before, after) => {
    acts.push([before, after])
  }
  const deps = {
    sql: story.sql,
    complete: story.record,
    stoppedClaims: stoppedClaims(),
    wake: () => {}
  }
  return {
    acts,
    push: (taskNo: string, downstream?: string) =>
      push(deps, { taskNo, who: { name: who }, ...(downstream === undefined ? {} : { downstream }) }, audit),
    settle: (taskNo: string, status: 'HANDLED' | 'DELETED', downstream?: string) =>
      settle(
        deps,
        { taskNo, status, who: { name: who }, ...(downstream === undefined ? {} : { downstream }) },
        audit
      )
  }
}

t.test('what waits for its next try is pushed: it is due now, and no try is given or taken', async t => {
  const story = await setup(t)
  const { post, quiet, downstream, dispatch, delivery } = story
  const { push, acts } = hands(story)
  downstream.next(failed)
  const taskNo = await post({ retryTimes: 3 })
  await quiet()
  await dispatch()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1, triesLeft: 2 }, 'its backoff holds it')
  t.match(await push(taskNo), {
    status: 'SENDING',
    deliveries: [{ phase: 'WAITING', attempt: 1, triesLeft: 2 }]
  })
  t.same(acts, [[{ warehouse: 'SENDING' }, { warehouse: 'SENDING' }]])
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2, triesLeft: 1, updatedBy: who })
  t.equal(await push(taskNo), 'nothing', 'nothing waits any more')
  t.equal(await push('nobody'), 'not_found')
  t.equal(acts.length, 1, 'what did nothing is no act')
})

t.test('neither a start in the future nor a task that waits for another can be pushed', async t => {
  const story = await setup(t)
  const { post, quiet, dispatch, delivery, downstream } = story
  const { push, acts } = hands(story)
  const later = await post({ delayMs: 3_600_000 })
  t.equal(await push(later), 'early')
  const first = await post({ delayMs: 3_600_000 })
  const second = await post({ after: { taskNos: [first], codes: null } })
  t.equal(await push(second), 'blocked')
  await quiet()
  await dispatch()
  t.match([await delivery(later), await delivery(second)], [{ phase: 'WAITING' }, { phase: 'BLOCKED' }])
  t.same(downstream.requests, [])
  t.same(acts, [])
})

t.test('a missing receipt that was pushed is still what a PROCESSING can extend', async t => {
  const story = await setup(t, { downstream: { needCallback: true } })
  const { post, quiet, later, dispatch, delivery, receive } = story
  const taskNo = await post()
  await quiet()
  await later('61 s')
  await dispatch()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1 })
  await hands(story).push(taskNo)
  t.match(await receive({ taskNo, result: 'PROCESSING' }), { applied: true })
  t.match(await delivery(taskNo), { phase: 'AWAITING_RECEIPT' })
})

t.test(
  'what was mended by hand is settled: HANDLED by an operator, or DELETED, and its alarm is resolved',
  async t => {
    const story = await setup(t)
    const { post, quiet, downstream, delivery, sql } = story
    const { settle, acts } = hands(story)
    for (const status of ['HANDLED', 'DELETED'] as const) {
      downstream.next(failed)
      const taskNo = await post({ retryTimes: 1 })
      await quiet()
      t.match(await delivery(taskNo), { status: 'FAILED' })
      t.match(await settle(taskNo, status), { status })
      t.match(await delivery(taskNo), {
        status,
        updatedBy: who,
        ...(status === 'HANDLED' ? { handledBy: 'operator' } : {})
      })
      t.same(acts.pop(), [{ warehouse: 'FAILED' }, { warehouse: status }])
      t.equal(await settle(taskNo, status), 'nothing', 'it has ended')
    }
    t.same(await sql`select from alarm where resolved_at is null`, [])
  }
)

t.test('what was wrong with a first attempt is over once its task is settled', async t => {
  const story = await setup(t)
  const { post, quiet, downstream, sql } = story
  const open = () => sql<{ kind: string }[]>`select kind from alarm where resolved_at is null`
  for (const status of ['HANDLED', 'DELETED'] as const) {
    downstream.next({ kind: 'failed', reason: 'certificate has expired', alarm: 'TLS' })
    const taskNo = await post()
    await quiet()
    t.match(await open(), only({ kind: 'TLS' }))
    await hands(story).settle(taskNo, status)
    t.same([...(await open())], [])
  }
})

t.test('a request that is in flight while it is settled changes nothing any more', async t => {
  const story = await setup(t)
  const { post, quiet, downstream, delivery } = story
  downstream.holds = true
  const taskNo = await post()
  await downstream.received(1)
  t.match(await hands(story).settle(taskNo, 'HANDLED'), { status: 'HANDLED' })
  downstream.answer(failed)
  await quiet()
  t.match(await delivery(taskNo), { status: 'HANDLED', handledBy: 'operator', attempt: 1 })
})

t.test('what waited for a task goes once an operator says that it was handled', async t => {
  const story = await setup(t)
  const { post, quiet, downstream, dispatch, delivery } = story
  downstream.next(failed)
  const first = await post({ retryTimes: 1 })
  await quiet()
  const second = await post({ after: { taskNos: [first], codes: null } })
  await quiet()
  t.match(await delivery(second), { phase: 'BLOCKED' })
  await hands(story).settle(first, 'HANDLED')
  await quiet()
  await dispatch()
  t.match(await delivery(second), { status: 'HANDLED' })
})

t.test('one downstream of several is settled alone', async t => {
  const story = await setup(t, { downstreams: { points: {}, warehouse: {} } })
  const { post, quiet, downstream, read } = story
  downstream.usual = failed
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  t.equal(await hands(story).settle(taskNo, 'HANDLED', 'audit'), 'nothing')
  await hands(story).settle(taskNo, 'HANDLED', 'points')
  t.match(await read(taskNo), {
    status: 'FAILED',
    deliveries: only({ status: 'HANDLED' }, { status: 'FAILED' })
  })
})

t.test('only what still stands as its operator saw it is settled', async t => {
  const story = await setup(t, { downstreams: { points: {}, warehouse: {} } })
  const { post, quiet, downstream, delivery, redeliver, sql, record } = story
  downstream.usual = failed
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  const acts: object[] = []
  const settleSeen = (from: Record<string, 'FAILED' | 'SENDING'>, meanwhile = async () => {}) =>
    settle(
      { sql, complete: record, stoppedClaims: stoppedClaims() },
      { taskNo, status: 'DELETED', from, who: { name: who } },
      async before => {
        acts.push(before)
        await meanwhile()
      }
    )
  const seen = { warehouse: 'FAILED' } as const
  const meanwhile = async () => void (await redeliver(taskNo, { downstream: 'warehouse' }))
  t.equal(await settleSeen(seen, meanwhile), 'nothing', 'it is redelivered at the last moment')
  t.match(await delivery(taskNo), { status: 'SENDING', phase: 'WAITING' })
  t.equal(await settleSeen(seen), 'nothing', 'it is redelivered already')
  t.equal(await settleSeen({ points: 'SENDING' }), 'nothing')
  t.match(await settleSeen({ warehouse: 'SENDING' }), { status: 'FAILED' })
  t.match(await delivery(taskNo), { status: 'DELETED' })
  t.match(await delivery(taskNo, 'points'), { status: 'FAILED' }, 'it was not named')
  t.same(acts, [{ warehouse: 'FAILED' }, { warehouse: 'SENDING' }])
})

t.test('a connection that breaks after the commit hides no act from its operator', async t => {
  const pool = losingPool((await testDb(t, { max: 8 })).sql)
  const story = await setup(t, { sql: pool.sql })
  const { post, quiet, dispatch, delivery, downstream, redeliver, remove } = story
  const { push, settle, acts } = hands(story)
  const lost = <T>(act: () => Promise<T>): Promise<T> => {
    pool.next = run => run()
    return act()
  }
  downstream.usual = failed
  const [first, second] = [await post({ retryTimes: 1 }), await post({ retryTimes: 1 })]
  const third = await post({ retryTimes: 3 })
  await quiet()
  t.match(await lost(() => redeliver(first)), { status: 'SENDING', deliveries: [{ updatedBy: who }] })
  t.match(await lost(() => settle(second, 'HANDLED')), { status: 'HANDLED' })
  t.match(await lost(() => push(third)), { status: 'SENDING' })
  t.match(await lost(() => remove(third)), { status: 'DELETED' })
  t.equal(acts.length, 2, 'each is one act')
  t.equal(pool.next, undefined)
  await dispatch()
  t.match(await delivery(first), { status: 'FAILED', attempt: 2 }, 'the new round')
})

t.test('a push whose answer is lost may have led to the next try already', async t => {
  const { sql } = await testDb(t, { max: 8 })
  const pool = losingPool(sql)
  const story = await setup(t, { sql: pool.sql })
  const { post, quiet, downstream } = story
  downstream.usual = failed
  const taskNo = await post({ retryTimes: 3 })
  await quiet()
  pool.next = async run => {
    await run()
    await sql`update delivery set phase = 'IN_FLIGHT', attempt = attempt + 1, next_action_at = now() + interval '20 s'`
  }
  t.match(await hands(story).push(taskNo), { deliveries: [{ attempt: 2, updatedBy: who }] })
})

t.test('what another did while the connection was away is no act of this one', async t => {
  const { sql } = await testDb(t, { max: 8 })
  const pool = losingPool(sql)
  const story = await setup(t, { sql: pool.sql })
  const { post, quiet, downstream, redeliver } = story
  downstream.usual = failed
  const [first, second] = [await post({ retryTimes: 1 }), await post({ retryTimes: 1 })]
  await quiet()
  pool.next = () => sql`
    update delivery set status = 0, phase = 'WAITING', next_action_at = now(), round = 2, updated_by = 'another', reason = null
    where task_id = (select id from task where task_no = ${first})`
  t.equal(await redeliver(first), 'nothing')
  pool.next = () => sql`
    update delivery set status = -1, updated_by = 'another'
    where task_id = (select id from task where task_no = ${second})`
  t.equal(await hands(story).settle(second, 'DELETED'), 'nothing')
})
