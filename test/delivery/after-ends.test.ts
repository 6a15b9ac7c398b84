// Each way in which a prerequisite ends, and its effect on the dependents. PostgreSQL is real. The test controls the
// downstream and the clock.
import t, { type Test } from 'tap'
import { only } from '../support/only.ts'
import { failed } from '../support/scripted.ts'
import { taskRequest } from '../support/task-request.ts'
import { until } from '../support/until.ts'
import { setup, type Story, type SetupOptions } from '../support/setup.ts'

const after = (...taskNos: string[]) => ({ after: { taskNos, codes: null } })

/** A story whose dispatcher keeps running, so that every task that no longer waits is sent. */
async function running(t: Test, options: SetupOptions = {}): Promise<Story> {
  const story = await setup(t, options)
  story.dispatching()
  return story
}

t.test(
  'one that FAILED holds what waits for it, people hear of it, and a redelivery that works lets it go',
  async t => {
    const story = await running(t)
    const { post, quiet, delivery, downstream, sql, redeliver } = story
    downstream.next({ kind: 'refused', reason: 'http_410' })
    const first = await post()
    await quiet()
    const second = await post(after(first))
    await quiet()
    t.match(await delivery(second), { phase: 'BLOCKED' })
    const open = () =>
      sql`select t.task_no, a.kind, a.attempt from alarm a join task t on t.id = a.task_id where resolved_at is null order by 1`
    t.match(
      [...(await open())].filter(row => row['kind'] === 'DEPENDENCY_FAILED'),
      only({ task_no: second, attempt: 0 })
    )
    await story.succession.sweep()
    t.equal((await open()).length, 2, 'said once')
    await redeliver(first)
    await until('it is HANDLED', async () => (await delivery(second)).status === 'HANDLED')
    t.equal((await open()).length, 0, 'and over now')
  }
)

t.test('an alarm that somebody resolved is raised again by a new failure, and by nothing else', async t => {
  const { post, quiet, downstream, sql, redeliver, dispatch, around, succession, logged } = await setup(t)
  const refused = { kind: 'refused', reason: 'http_410' } as const
  const open = async () =>
    (await sql`select from alarm where kind = 'DEPENDENCY_FAILED' and resolved_at is null`).length
  const resolve = () => sql`update alarm set resolved_at = now(), sent_at = now()`
  const sweep = async () => {
    await around.refresh()
    for (let turn = 0; turn < 3; turn++) await succession.sweep()
    await quiet()
  }
  downstream.next(refused, refused)
  const first = await post()
  const other = await post()
  await quiet()
  await post(after(first, other))
  await sweep()
  t.equal(await open(), 1)
  t.equal(logged('dependent.held').length, 1)
  await resolve()
  await sweep()
  t.equal(await open(), 0, 'somebody has dealt with it')
  t.equal(logged('dependent.held').length, 1, 'and no sweep speaks of it')
  downstream.next(refused)
  await redeliver(first)
  await dispatch()
  await sweep()
  t.equal(await open(), 1, 'it FAILED again')
  t.match(
    await sql`select sent_at from alarm where kind = 'DEPENDENCY_FAILED'`,
    only({ sent_at: null }),
    'to be sent'
  )
  t.equal(logged('dependent.held').length, 2)
  await resolve()
  await redeliver(first)
  await dispatch()
  await sweep()
  t.equal(await open(), 0, 'the other one FAILED before somebody resolved it')
  t.equal(logged('dependent.held').length, 2)
})

t.test('of one that FAILED a late receipt lets go what waits for it', async t => {
  const { post, quiet, delivery, downstream, receive, later, dispatch } = await setup(t, {
    downstream: { needCallback: true }
  })
  const first = await post({ retryTimes: 1 })
  await quiet()
  await later('61 s')
  await dispatch()
  t.match(await delivery(first), { status: 'FAILED', reason: 'RECEIPT_TIMEOUT' })
  const second = await post(after(first))
  await quiet()
  t.match(await delivery(second), { phase: 'BLOCKED' })
  await receive({ taskNo: first })
  await quiet()
  await dispatch()
  t.equal(downstream.requests.length, 2)
})

t.test(
  'what waits for one that was deleted ends FAILED, with an alarm; only force sends it all the same',
  async t => {
    const { post, queue, quiet, delivery, remove, redeliver, sql, dispatch } = await setup(t)
    queue.mode = 'hold'
    const first = await post()
    const second = await post(after(first))
    const third = await post(after(second))
    await remove(first)
    await quiet()
    t.match(await delivery(second), { status: 'FAILED', reason: 'DEPENDENCY_DELETED', attempt: 0 })
    t.match(await delivery(third), { phase: 'BLOCKED' }, 'it waits for one that FAILED, which may be mended')
    const kinds = await sql<{ kind: string }[]>`select kind from alarm where resolved_at is null order by 1`
    t.same(
      kinds.map(row => row.kind),
      ['DEPENDENCY_FAILED', 'FAILED']
    )
    t.equal(await redeliver(second), 'prerequisite_deleted')
    queue.mode = 'deliver'
    await redeliver(second, { force: true })
    await dispatch()
    await dispatch()
    t.match(await delivery(second), { status: 'HANDLED' })
    t.match(await delivery(third), { status: 'HANDLED' })
    t.equal((await sql`select from alarm where resolved_at is null`).length, 0)
  }
)

t.test('one deleted before it was named ends what waits for it in the same way', async t => {
  const { post, queue, quiet, delivery, remove } = await setup(t)
  queue.mode = 'hold'
  const first = await post()
  await remove(first)
  const second = await post(after(first))
  await quiet()
  t.match(await delivery(second), { status: 'FAILED', reason: 'DEPENDENCY_DELETED' })
})

t.test('one that every downstream skipped counts as done', async t => {
  const { post, quiet, delivery, dispatch } = await setup(t, {
    downstreams: { warehouse: { when: ({ task }) => task.sceneType !== 'skip' } }
  })
  const first = await post({ sceneType: 'skip' })
  t.match(await delivery(first), { reason: 'SKIPPED' })
  const second = await post(after(first))
  await quiet()
  await dispatch()
  t.match(await delivery(second), { status: 'HANDLED' })
})

t.test('of several deliveries all must have ended, and those that were skipped do not matter', async t => {
  const { accept, read, quiet, downstream, dispatch } = await setup(t, {
    downstreams: {
      points: {},
      warehouse: {},
      audit: { when: () => false }
    }
  })
  downstream.holds = true
  await accept.many([taskRequest({ taskNo: 'first' }), taskRequest({ taskNo: 'second', ...after('first') })])
  await downstream.received(2)
  downstream.answer()
  t.match(await read('second'), {
    deliveries: only({ status: 'DELETED' }, { phase: 'BLOCKED' }, { phase: 'BLOCKED' })
  })
  downstream.answer()
  downstream.holds = false
  await quiet()
  await dispatch()
  t.match(await read('second'), { status: 'HANDLED' })
})

t.test('what waits past its deliverBefore ends FAILED, EXPIRED, and waits no longer', async t => {
  const { post, queue, delivery, later, dispatch, sql, succession } = await setup(t)
  queue.mode = 'hold'
  const first = await post()
  const second = await post({ ...after(first), deliverBefore: new Date(Date.now() + 60_000) })
  await dispatch()
  t.match(await delivery(second), { phase: 'BLOCKED' })
  await later('61 s')
  await dispatch()
  t.match(await delivery(second), { status: 'FAILED', reason: 'EXPIRED', attempt: 0 })
  await succession.sweep()
  t.equal((await sql`select from dependency where done_at is null`).length, 0)
})

t.test('let go before its start time it waits for that, and not one moment less', async t => {
  const { post, quiet, delivery, later, dispatch, downstream, sql } = await setup(t)
  const first = await post()
  const [{ now }] = await sql<[{ now: Date }]>`select now() as now`
  const start = new Date(now.getTime() + 60_000)
  const second = await post({ ...after(first), startAt: start })
  await quiet()
  const { phase, nextActionAt = '' } = await delivery(second)
  t.equal(phase, 'WAITING')
  t.ok(Date.parse(nextActionAt) >= start.getTime() && Date.parse(nextActionAt) < start.getTime() + 10_000)
  await later('50 s')
  await dispatch()
  t.equal(downstream.requests.length, 1)
  await later('20 s')
  await dispatch()
  t.equal(downstream.requests.length, 2)
})

t.test('what waits can be deleted, and what waits for that hears of it', async t => {
  const { post, queue, quiet, delivery, remove, sql } = await setup(t)
  queue.mode = 'hold'
  const first = await post()
  const second = await post(after(first))
  const third = await post(after(second))
  await remove(second)
  await quiet()
  t.match(await delivery(second), { status: 'DELETED' })
  t.match(await delivery(third), { status: 'FAILED', reason: 'DEPENDENCY_DELETED' })
  t.equal((await sql`select from dependency where done_at is null`).length, 0)
})

t.test('a paused downstream gets what is let go when it is resumed', async t => {
  const { post, queue, quiet, delivery, sql, around, dispatch, record } = await setup(t)
  queue.mode = 'hold'
  const first = await post()
  const second = await post(after(first))
  await sql`insert into downstream (name, paused_at, paused_by) values ('warehouse', now(), 'me')`
  await around.refresh()
  const [{ id }] = await sql<[{ id: string }]>`select id from task where task_no = ${first}`
  await record({
    move: { taskId: id, downstream: 'warehouse', attempt: 1, name: 'handled', handledBy: 'send' }
  })
  await quiet()
  await dispatch()
  t.match(await delivery(second), { phase: 'WAITING', attempt: 0 })
})

t.test('a failed attempt of what is waited for changes nothing: it is on its way still', async t => {
  const { post, quiet, delivery, downstream, sql } = await setup(t)
  downstream.next(failed)
  const first = await post()
  const second = await post(after(first))
  await quiet()
  t.match(await delivery(first), { phase: 'WAITING', attempt: 1 })
  t.match(await delivery(second), { phase: 'BLOCKED' })
  t.equal((await sql`select from alarm`).length, 0)
})
