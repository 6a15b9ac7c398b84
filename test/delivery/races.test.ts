// Races: another process acts between a look and the move that follows from it.
import t from 'tap'
import { raiseNoHandler } from '../../src/db/alarms.ts'
import { createOperation } from '../../src/db/operations.ts'
import { readOperation } from '../../src/db/operation-lists.ts'
import { claimOperations, findFailed, recordTaken, takeDeliveries } from '../../src/db/running-operations.ts'
import { bulkOperations, type BulkOperationDeps } from '../../src/delivery/bulk-operations.ts'
import { completer } from '../../src/delivery/complete.ts'
import { stoppedClaims } from '../../src/delivery/stopped-claims.ts'
import { load } from '../../src/delivery/load.ts'
import { redeliver, settle } from '../../src/delivery/operate.ts'
import { ordering } from '../../src/delivery/ordering.ts'
import { uuidv7 } from '../../src/domain/ids.ts'
import { createMetrics } from '../../src/runtime/metrics.ts'
import { semaphore } from '../../src/runtime/semaphore.ts'
import { only } from '../support/only.ts'
import { taskRequest } from '../support/task-request.ts'
import { lockWaits, readsOf } from '../support/postgres.ts'
import { failed } from '../support/scripted.ts'
import { setup, type Story } from '../support/setup.ts'
import { until } from '../support/until.ts'

const refused = { kind: 'refused', reason: 'http_410' } as const
const openAlarms = ({ sql }: Story) =>
  sql<{ kind: string; attempt: number }[]>`
    select kind, attempt from alarm where resolved_at is null order by kind, attempt`
const kindsOpen = async (story: Story) => (await openAlarms(story)).map(({ kind }) => kind)
/** The part that promotes the next delivery of a key, in a process without handlers. */
function withoutHandlers(story: Story) {
  return ordering({
    sql: story.sql,
    downstreams: [],
    enqueuer: story.enqueuing,
    cluster: story.around,
    owner: { number: () => null },
    claiming: () => true,
    hasWorker: false,
    wake: () => {},
    metrics: createMetrics({ processMetrics: false }),
    log: story.log
  })
}
/** A second process, whose writes do not wait for those of the first. */
const another = ({ sql }: Story) =>
  completer({ sql, metrics: createMetrics({ processMetrics: false }), giveUp: new AbortController().signal })
const bulk = (story: Story, more: Partial<BulkOperationDeps> = {}) =>
  bulkOperations({
    sql: story.sql,
    node: 'here',
    handlers: story.handlers,
    complete: story.record,
    isPaused: () => false,
    limits: () => undefined,
    wake: () => {},
    log: story.log,
    ...more
  })
async function begin({ sql }: Story, matched: number): Promise<string> {
  const id = uuidv7()
  await createOperation(sql, id, { filter: {}, messageCodes: null }, matched, { name: 'ops-1' })
  return id
}

t.test(
  'of a key that is held a bulk redelivery starts the head anew, and that it fails again is heard of',
  async t => {
    const story = await setup(t)
    const { accept, quiet, downstream, dispatch, succession, around } = story
    downstream.usual = refused
    await accept.many(['a', 'b'].map(taskNo => taskRequest({ taskNo, orderingKey: 'k' })))
    await quiet()
    t.match(await openAlarms(story), only({ kind: 'FAILED' }, { kind: 'KEY_HELD' }))
    await begin(story, 1)
    await bulk(story).look()
    for (let turn = 0; turn < 3; turn++) {
      await dispatch()
      await quiet()
      await around.refresh()
      await succession.sweep()
      await quiet()
    }
    t.equal(downstream.requests.filter(({ taskNo }) => taskNo === 'a').length, 2)
    t.equal(downstream.requests.filter(({ taskNo }) => taskNo === 'b').length, 0)
    t.match(await openAlarms(story), only({ kind: 'FAILED', attempt: 2 }, { kind: 'KEY_HELD' }))
  }
)

t.test('whether a FAILED one holds its key, only a process with the handler decides', async t => {
  const story = await setup(t, { downstream: { onFailed: 'skip' } })
  const { sql, accept, quiet, downstream, around, succession, dispatch } = story
  downstream.holds = true
  await accept.many(['a', 'b'].map(taskNo => taskRequest({ taskNo, orderingKey: 'k' })))
  await downstream.received(1)
  const [flying] = await sql<[{ task_id: string }]>`select task_id from delivery where phase = 'IN_FLIGHT'`
  // The process that ends it dies before it looks at the key.
  await another(story)({
    move: {
      taskId: flying.task_id,
      downstream: 'warehouse',
      attempt: 1,
      name: 'fail',
      reason: 'REFUSED',
      orderingKey: 'k'
    },
    task: { messageCode: 'order.paid' }
  })
  await around.refresh()
  const former = withoutHandlers(story)
  await former.sweep()
  former.promote([{ downstream: 'warehouse', orderingKey: 'k' }])
  await former.idle()
  t.same(await kindsOpen(story), ['FAILED'], 'held by nobody')
  downstream.holds = false
  downstream.answer()
  await quiet()
  await around.refresh()
  await succession.sweep()
  await quiet()
  await dispatch()
  await quiet()
  t.equal((await story.read('b')).status, 'HANDLED')
})

t.test('nor when it failed while it waited behind the head', async t => {
  const story = await setup(t, { downstream: { onFailed: 'skip' } })
  const { sql, accept, downstream, around } = story
  downstream.holds = true
  await accept.many(['a', 'b', 'c'].map(taskNo => taskRequest({ taskNo, orderingKey: 'k' })))
  await downstream.received(1)
  const rows = await sql<{ task_id: string; attempt: number }[]>`
    select task_id, attempt from delivery order by position`
  const [head, second] = rows.map(({ task_id: taskId, attempt }) => ({
    taskId,
    attempt,
    downstream: 'warehouse',
    orderingKey: 'k'
  }))
  if (!head || !second) throw new Error('three wait')
  const task = { messageCode: 'order.paid' }
  await another(story)({ move: { ...second, name: 'fail', reason: 'EXPIRED' }, task })
  await another(story)({ move: { ...head, name: 'settle', handledBy: 'operator' }, task })
  await around.refresh()
  const former = withoutHandlers(story)
  await former.sweep()
  await former.idle()
  t.same(await kindsOpen(story), ['FAILED'], 'held by nobody')
  downstream.holds = false
  downstream.answer()
})

t.test('a key whose head is HANDLED goes on by a process without the handler too', async t => {
  const story = await setup(t)
  const { sql, accept, downstream, around } = story
  downstream.holds = true
  await accept.many(['a', 'b'].map(taskNo => taskRequest({ taskNo, orderingKey: 'k' })))
  await downstream.received(1)
  const [flying] = await sql<[{ task_id: string }]>`select task_id from delivery where phase = 'IN_FLIGHT'`
  const key = { taskId: flying.task_id, downstream: 'warehouse', attempt: 1 }
  await another(story)({
    move: { ...key, name: 'settle', handledBy: 'operator', orderingKey: 'k' },
    task: { messageCode: 'order.paid' }
  })
  await around.refresh()
  const former = withoutHandlers(story)
  await former.sweep()
  await former.idle()
  t.match(await sql`select phase from delivery where phase is not null`, only({ phase: 'WAITING' }))
  downstream.holds = false
  downstream.answer()
})

t.test('what waits for its turn too is no more alarmed once its prerequisite is HANDLED', async t => {
  const story = await setup(t)
  const { accept, quiet, downstream, dispatch, succession, around } = story
  downstream.next(refused)
  await accept(taskRequest({ taskNo: 'a' }))
  await quiet()
  await accept(taskRequest({ taskNo: 'c', orderingKey: 'k', after: { taskNos: ['a'], codes: null } }))
  await quiet()
  await around.refresh()
  await succession.sweep()
  await quiet()
  t.match(await openAlarms(story), only({ kind: 'DEPENDENCY_FAILED' }, { kind: 'FAILED' }))
  await story.redeliver('a')
  for (let turn = 0; turn < 2; turn++) {
    await dispatch()
    await quiet()
    await around.refresh()
    await succession.sweep()
    await quiet()
  }
  t.equal((await story.read('c')).status, 'HANDLED')
  t.strictSame([...(await openAlarms(story))], [])
})

t.test('an operator who settles what fails at that moment resolves its alarm', async t => {
  const story = await setup(t)
  const { post, downstream, quiet, sql } = story
  downstream.holds = true
  const taskNo = await post({ retryTimes: 1 })
  await downstream.received(1)
  let release = (): void => {}
  let holder: Promise<unknown> = Promise.resolve()
  await new Promise<void>(locked => {
    holder = sql.begin(async held => {
      await held`select from delivery for update`
      locked()
      await new Promise<void>(released => (release = released))
    })
  })
  downstream.holds = false
  downstream.answer(failed)
  await until('the failure waits', async () => (await lockWaits(sql)) === 1)
  const settled = settle(
    { sql, complete: another(story), stoppedClaims: stoppedClaims() },
    { taskNo, status: 'HANDLED', who: { name: 'ops-1' } },
    async () => {}
  )
  await until('both wait', async () => (await lockWaits(sql)) === 2)
  release()
  await holder
  t.match(await settled, { status: 'HANDLED' })
  await quiet()
  t.strictSame([...(await openAlarms(story))], [])
})

t.test('no alarm is raised for the missing handler of what has ended', async t => {
  const story = await setup(t)
  await story.post()
  await story.quiet()
  const [ended] = await story.sql<[{ taskId: string; downstream: string; attempt: number }]>`
    select task_id as "taskId", downstream, attempt from delivery`
  await raiseNoHandler(story.sql, [ended])
  t.strictSame([...(await openAlarms(story))], [])
})

t.test('who runs an operation no more writes nothing about what its successor has taken', async t => {
  const story = await setup(t)
  const { sql, post, quiet, downstream, record } = story
  downstream.usual = failed
  for (let i = 0; i < 3; i++) await post({ retryTimes: 1 })
  await quiet()
  const id = await begin(story, 3)
  const [operation] = await claimOperations(sql, 'successor')
  if (!operation) throw new Error('an operation runs')
  const { found, next } = await findFailed(sql, operation, 'warehouse', undefined, 3)
  await takeDeliveries(sql, { id, node: 'successor' }, found, { warehouse: next })
  await recordTaken(sql, { id, node: 'former' }, found)
  for (const { taskId, downstream: name, attempt } of found)
    await record({ move: { taskId, downstream: name, attempt, name: 'redeliver', retryTimes: 1 } })
  await recordTaken(sql, { id, node: 'successor' }, found)
  t.match(await sql`select redelivered, skipped from operation`, only({ redelivered: 3, skipped: 0 }))
})

t.test('a bulk redelivery ends though no process knows the downstream', async t => {
  const story = await setup(t)
  const { sql, post, quiet, downstream } = story
  downstream.usual = failed
  for (let i = 0; i < 12; i++) await post({ retryTimes: 1 })
  await quiet()
  await sql`update delivery set downstream = 'gone'`
  const id = await begin(story, 12)
  const reads = readsOf(t, sql)
  const one = bulk(story)
  for (let look = 0; look < 4; look++) {
    await one.look()
    // No process claims the due deliveries.
    await sql`update delivery set next_action_at = next_action_at - interval '11 s' where phase = 'WAITING'`
  }
  t.match(await readOperation(reads, id, null), { state: 'DONE', redelivered: 12 })
})

t.test('what expires before a redelivery without force is written is not sent', async t => {
  const story = await setup(t)
  const { sql, accept, quiet, downstream, dispatch, record, handlers } = story
  downstream.next(refused)
  // It is in time when it is read, and too late when it is moved.
  const deliverBefore = new Date(Date.now() + 3_600_000)
  await accept(taskRequest({ taskNo: 'a', deliverBefore }))
  await quiet()
  await redeliver(
    { sql, complete: record, handlers, wake: () => {} },
    { taskNo: 'a', force: false, who: { name: 'ops-1' } },
    async () => {
      await sql`update delivery set deliver_before = now()`
    }
  )
  await dispatch()
  await quiet()
  t.equal(downstream.requests.length, 1)
  t.equal((await story.read('a')).status, 'FAILED')
})

t.test('a process reads what it sends under the number that it has then', async t => {
  const story = await setup(t)
  story.queue.mode = 'hold'
  await story.post()
  await story.quiet()
  const [claim] = story.queue.jobs.flat()
  if (!claim) throw new Error('a job waits')
  const ahead = semaphore(1)
  ahead.enter()
  let number = 7
  const loading = load(
    story.sql,
    ahead,
    { downstream: claim.downstream, deliveries: [{ taskId: claim.taskId, attempt: claim.attempt }] },
    () => number
  )
  // The process was declared dead and joined again with a new number.
  number = 8
  ahead.leave()
  await loading
  t.match(await story.sql`select owner from delivery`, only({ owner: 8 }))
})

t.test('a dispatcher that stops takes back first what it had declared dead', async t => {
  const calls: { number: number; node: string; isWorker: boolean }[][] = [
    [],
    [{ number: 5, node: 'dead', isWorker: true }]
  ]
  const story = await setup(t, { retire: () => calls.pop() ?? [] })
  const { sql, post, queue, quiet, dispatch } = story
  queue.mode = 'lose'
  await post()
  await quiet()
  await sql`update delivery set owner = 5`
  await dispatch()
  t.match(await sql`select lost, phase from delivery`, only({ lost: 1, phase: 'WAITING' }))
})
