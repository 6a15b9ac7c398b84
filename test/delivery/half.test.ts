// Half messages, as their producers and the readers of the API see them.
import t from 'tap'
import { z } from 'zod'
import { listTasks } from '../../src/db/lists.ts'
import { removeOld } from '../../src/db/retention.ts'
import { longPolls } from '../../src/delivery/long-polls.ts'
import { checkNow } from '../../src/delivery/half.ts'
import type { TaskView } from '../../src/db/views.ts'
import { readsOf } from '../support/postgres.ts'
import { halfStory, halves, preparedTask, producer } from '../support/halves.ts'
import { only } from '../support/only.ts'
import { setup } from '../support/setup.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

const nobody = 'http://127.0.0.1:9/check'
const statusOf = (done: TaskView | string): string => (typeof done === 'string' ? done : done.status)

t.test('a prepared task is delivered only once it is committed, and then at once', async t => {
  const { story, half } = await halfStory(t, nobody)
  const accepted = await story.accept(preparedTask({ taskNo: 'half-1' }))
  t.match(accepted, {
    kind: 'created',
    task: { status: 'PREPARED', deliveries: { length: 0 }, prepared: { checks: 0, nextCheckAt: String } }
  })
  await story.later('1 hour')
  await story.dispatch()
  t.equal(story.downstream.requests.length, 0, 'an hour later nobody has got it')
  t.match(await story.read('half-1'), { status: 'PREPARED', deliveries: { length: 0 }, messageBody: String })

  const committed = await half.commit('half-1', 'shop')
  t.match(committed, {
    status: 'SENDING',
    deliveries: [{ downstream: 'warehouse', phase: 'IN_FLIGHT', attempt: 1 }]
  })
  await story.quiet()
  t.equal(story.downstream.requests.length, 1)
  t.match(await story.read('half-1'), {
    status: 'HANDLED',
    prepared: { endedBy: 'shop', endedAt: String },
    deliveries: [{ attempt: 1, status: 'HANDLED' }]
  })
  t.equal(story.logged('prepared.ended').length, 1)
})

t.test('commit and rollback may be said again; the other one comes too late', async t => {
  const { story, half } = await halfStory(t, nobody)
  const [yes, no] = [await half.prepare(), await half.prepare()]
  t.equal(statusOf(await half.commit(yes)), 'SENDING')
  await story.quiet()
  t.equal(statusOf(await half.commit(yes)), 'HANDLED', 'again, with its present status')
  t.equal(await half.rollBack(yes), 'committed')
  t.equal(await half.check(yes), 'committed')
  t.equal(statusOf(await half.rollBack(no)), 'CANCELLED')
  t.equal(statusOf(await half.rollBack(no)), 'CANCELLED')
  t.equal(await half.commit(no), 'rolled_back')
  t.equal(await half.check(no), 'rolled_back')
  await story.dispatch()
  t.equal(story.downstream.requests.length, 1, 'what was rolled back reaches nobody')
})

t.test(
  'a half message holds its business key until it is rolled back, and shows it when it is committed',
  async t => {
    const { story, half } = await halfStory(t, nobody)
    const biz = { type: 'order', key: '42', unique: true }
    const prepare = (taskNo: string) => story.accept(preparedTask({ taskNo, biz, contentHash: taskNo }))
    t.match(await prepare('first'), { kind: 'created' })
    t.match(await prepare('second'), { kind: 'biz_conflict', by: 'first' })
    t.equal(statusOf(await half.rollBack('first')), 'CANCELLED')
    t.match(await prepare('third'), { kind: 'created' }, 'the work that failed is tried again')
    t.match(await half.commit('third'), { bizType: 'order', bizKey: '42', uniqueBiz: true })
    await story.quiet()
  }
)

t.test('what was never prepared, or never posted, cannot be ended', async t => {
  const { story, half } = await halfStory(t, nobody)
  const plain = await story.post()
  for (const [taskNo, says] of [
    [plain, 'not_prepared'],
    ['nobody-knows', 'not_found']
  ] as const) {
    t.equal(await half.commit(taskNo), says)
    t.equal(await half.rollBack(taskNo), says)
    t.equal(await half.check(taskNo), says)
  }
})

t.test('a delay counts from the commit, and a start time that has passed meanwhile is now', async t => {
  const { story, half } = await halfStory(t, nobody)
  const delayed = await half.prepare({ delayMs: 60_000 })
  t.notOk((await story.read(delayed)).deliverStartTime, 'nobody knows its start before the commit')
  const passed = await half.prepare({ startAt: new Date(Date.now() - 1) })
  await story.later('5 minutes')
  const late = await half.commit(delayed)
  await half.commit(passed)
  await story.quiet()
  t.match(late, { deliveries: [{ phase: 'WAITING' }] })
  t.same(
    story.downstream.requests.map(one => one.taskNo),
    [passed]
  )
  const [{ in_ms }] = await story.sql<[{ in_ms: number }]>`
    select extract(epoch from d.next_action_at - p.ended_at)::float8 * 1000 as in_ms
    from delivery d join prepared p using (task_id) where p.delay_ms is not null`
  t.equal(in_ms, 60_000, 'a minute after the commit')
  await story.later('1 minute')
  await story.dispatch()
  t.equal(story.downstream.requests.length, 2)
})

t.test('committed after its deliverBefore it ends FAILED, EXPIRED, in sight of everybody', async t => {
  const { story, half } = await halfStory(t, nobody)
  const taskNo = await half.prepare({ deliverBefore: new Date(Date.now() + 3_600_000) })
  t.match(await half.brief(taskNo), { status: 'PREPARED', deliverBefore: String })
  await story.sql`update prepared set deliver_before = now() - interval '1 s'`
  await half.commit(taskNo)
  await story.dispatch()
  await story.dispatch()
  t.match(await story.read(taskNo), { status: 'FAILED', deliveries: [{ reason: 'EXPIRED' }] })
  t.equal(story.downstream.requests.length, 0)
})

t.test('when is asked at the commit, and not before', async t => {
  let asked = 0
  const { story, half } = await halfStory(t, nobody, {
    downstream: {
      when: ({ task }) => {
        asked++
        return task.createdBy === 'test' && false
      }
    }
  })
  const taskNo = await half.prepare()
  t.equal(asked, 0)
  await half.commit(taskNo)
  t.equal(asked, 1)
  t.match(await story.read(taskNo), { status: 'DELETED', deliveries: [{ reason: 'SKIPPED' }] })
})

t.test('a schema that has changed since does not hold up what its producer has done', async t => {
  const { story, half } = await halfStory(t, nobody, {
    downstream: { when: ({ body }) => z.object({ never: z.string() }).safeParse(body).success }
  })
  const taskNo = await half.prepare()
  const handler = story.handlers.get('order.paid')
  if (handler) handler.body = z.object({ other: z.string() })
  t.equal(statusOf(await half.commit(taskNo)), 'SENDING', 'rather one delivery too many than none')
})

t.test(
  'a process without its handler commits nothing, but another one does, and both can roll it back',
  async t => {
    const { story, half } = await halfStory(t, nobody)
    const elsewhere = halves(t, story, new Map())
    const [one, two] = [await half.prepare(), await half.prepare()]
    t.equal(await elsewhere.commit(one), 'no_handler')
    t.equal(statusOf(await half.brief(one)), 'PREPARED')
    t.equal(statusOf(await half.commit(one)), 'SENDING')
    t.equal(statusOf(await elsewhere.rollBack(two)), 'CANCELLED')
  }
)

t.test('a half message that its producer committed, and no process can commit, is told as stuck', async t => {
  const there = await producer(t, () => 'COMMITTED')
  const { story, half } = await halfStory(t, there.url)
  // It knows whom to ask, but not how to commit: as a process without the handler of a step.
  const check = (no: string) => checkNow({ ...half.deps, handlers: new Map() }, no, { name: 'test' })
  const taskNo = await half.prepare()
  t.match(await check(taskNo), {
    status: 'PREPARED',
    prepared: { checks: 1, lastAnswer: 'NONE', lastReason: /no handler/ }
  })
  const [row] =
    await story.sql`select leased_until, next_action_at > now() as later, unanswered from prepared`
  t.match(row, { leased_until: null, later: true, unanswered: 1 }, 'the next check comes after a backoff')
  await story.later('2 days')
  await check(taskNo)
  t.match(await story.sql`select kind from alarm`, only({ kind: 'PREPARED_STUCK' }))
  t.equal(story.logged('prepared.stuck').length, 1)
  t.match(await half.check(taskNo), { status: 'SENDING' }, 'a process with the handler commits it')
  await story.quiet()
})

t.test('the same POST again is answered with its present status, another content is a conflict', async t => {
  const { story, half } = await halfStory(t, nobody)
  const one = preparedTask()
  const again = async () => {
    const done = await story.accept(one)
    return done.kind === 'same' ? done.task.status : done.kind
  }
  await story.accept(one)
  t.equal(await again(), 'PREPARED')
  await half.commit(one.taskNo)
  await story.quiet()
  t.equal(await again(), 'HANDLED')
  t.equal((await story.accept({ ...one, contentHash: 'another' })).kind, 'conflict')
  const two = preparedTask()
  await story.accept(two)
  await half.rollBack(two.taskNo)
  t.match(await story.accept(two), { kind: 'same', task: { status: 'CANCELLED' } })
  t.equal(await half.commit(two.taskNo), 'rolled_back', 'posting it again does not bring it back')
})

t.test('in a batch prepared ones stand beside others, and one taskNo is one task', async t => {
  const { story } = await halfStory(t, nobody)
  const half = preparedTask({ taskNo: 'both' })
  const { prepared: _, ...plain } = { ...half, contentHash: 'another' }
  const done = await story.accept.many([half, plain, preparedTask(), half])
  t.same(
    done.map(one => one.kind),
    ['created', 'conflict', 'created', 'same']
  )
})

t.test('a handler without a checkBack takes no half messages', async t => {
  const story = await setup(t)
  t.match(await story.accept(preparedTask()), { kind: 'no_check_back' })
})

t.test('what is prepared can be rolled back, and neither deleted nor redelivered', async t => {
  const { story, half } = await halfStory(t, nobody)
  const taskNo = await half.prepare()
  t.equal(await story.remove(taskNo), 'prepared')
  t.equal(await story.redeliver(taskNo, { force: true }), 'prepared')
  await half.rollBack(taskNo)
  t.equal(await story.remove(taskNo), 'nothing')
  t.equal(await story.redeliver(taskNo, { force: true }), 'nothing')
})

t.test('who waits for a prepared task waits until it has ended', async t => {
  const { story, half } = await halfStory(t, nobody)
  const polls = longPolls({ sql: story.sql, log: story.log })
  t.teardown(() => polls.stop())
  const [yes, no] = [await half.prepare(), await half.prepare()]
  const seen: string[] = []
  const { signal } = new AbortController()
  const all = [yes, no].map(async taskNo => {
    await polls.wait(taskNo, 'test', 60_000, signal)
    seen.push((await half.brief(taskNo)).status)
  })
  await polls.wait(yes, 'test', 300, signal)
  t.same(seen, [], 'not while it is prepared')
  await half.rollBack(no)
  await half.commit(yes)
  await Promise.all(all)
  t.same(seen.toSorted(), ['CANCELLED', 'HANDLED'])
})

t.test('lists show them, each under its status and under no other', async t => {
  const { story, half } = await halfStory(t, nobody)
  const prepared = await half.prepare({ sceneType: 'vip' })
  const cancelled = await half.prepare()
  const plain = await story.post()
  await half.rollBack(cancelled)
  await story.quiet()
  const reads = readsOf(t, story.sql)
  const list = async (more: object) => {
    const found = await listTasks(reads, { messageCodes: null, from: new Date(0), limit: 10, ...more })
    return found === 'bad_cursor' ? found : found.tasks.map(one => one.taskNo)
  }
  t.same(await list({}), [plain, cancelled, prepared])
  t.same(await list({ status: 'PREPARED' }), [prepared])
  t.same(await list({ status: 'CANCELLED' }), [cancelled])
  t.same(await list({ status: 'HANDLED' }), [plain])
  for (const status of ['DELETED', 'SENDING', 'FAILED']) t.same(await list({ status }), [], status)
  t.same(await list({ status: 'PREPARED', sceneType: 'vip', messageCode: 'order.paid' }), [prepared])
  t.same(await list({ status: 'PREPARED', sceneType: 'other' }), [])
  t.same(await list({ status: 'PREPARED', messageCodes: ['stock.moved'] }), [])
  t.same(await list({ status: 'PREPARED', downstream: 'warehouse' }), [], 'it has no deliveries yet')
  for (let n = 0; n < 5; n++) await half.prepare()
  const first = await listTasks(reads, {
    messageCodes: null,
    from: new Date(0),
    limit: 4,
    status: 'PREPARED'
  })
  if (first === 'bad_cursor' || first.nextCursor === undefined) return t.fail('there is a second page')
  t.same(await list({ status: 'PREPARED', cursor: first.nextCursor }).then(rest => rest.length), 2)
})

t.test('retention never forgets what is still prepared, and takes what was rolled back', async t => {
  const { story, half } = await halfStory(t, nobody)
  const [open, gone] = [await half.prepare(), await half.prepare()]
  await half.rollBack(gone)
  // A uuid v7 begins with its time. These ids have a time in 1970.
  for (const table of ['task', 'prepared'])
    await story.sql.unsafe(
      `update ${table} set ${table === 'task' ? 'id' : 'task_id'} =
        ('00000000-0001' || substr(${table === 'task' ? 'id' : 'task_id'}::text, 14))::uuid`
    )
  t.same(await removeOld(story.sql, 30, 100, null), { removed: 0, next: null }, 'it has just ended')
  await story.sql`update prepared set ended_at = ended_at - interval '31 days'`
  t.same(await removeOld(story.sql, 30, 100, null), { removed: 1, next: null })
  t.equal((await half.brief(open)).status, 'PREPARED')
  t.equal(await half.commit(gone), 'not_found')
  const [{ count }] = await story.sql<[{ count: number }]>`select count(*)::int as count from prepared`
  t.equal(count, 1, 'with its row')
})

t.test('a producer that asks for a check now hears what came of it', async t => {
  const shop = await producer(t, () => 'COMMITTED')
  const { half } = await halfStory(t, shop.url)
  const taskNo = await half.prepare()
  t.match(await half.check(taskNo), { status: /SENDING|HANDLED/ })
  t.equal(shop.checks.length, 1)
})

t.test('a check of a person leaves its row only if it is made, and is not made without it', async t => {
  const answers: ((state: 'UNKNOWN') => void)[] = []
  const shop = await producer(t, () => new Promise(resolve => answers.push(resolve)))
  const { story, half } = await halfStory(t, shop.url)
  const taskNo = await half.prepare()
  const running = half.check(taskNo, 'ann')
  await until('the producer is asked', () => shop.checks.length === 1)
  for (let n = 0; n < 3; n++) t.match(await half.check(taskNo, 'bob'), { status: 'PREPARED' })
  answers[0]?.('UNKNOWN')
  await running
  t.match(
    await story.sql`select who, what, target from audit`,
    only({ who: 'ann', what: 'task.check', target: taskNo })
  )

  await story.sql`
    create function no_room() returns trigger language plpgsql as
      $$begin raise exception 'could not extend file' using errcode = 'disk_full'; end$$`
  await story.sql`create trigger no_room before insert on audit execute function no_room()`
  await t.rejects(half.check(taskNo, 'bob'), { name: 'Unavailable' })
  t.equal(shop.checks.length, 1)
})
