// Tasks with an orderingKey run one after the other. PostgreSQL is real. The test controls the downstream and the clock.
import t from 'tap'
import { only } from '../support/only.ts'
import { taskRequest } from '../support/task-request.ts'
import { until } from '../support/until.ts'
import { listDeliveries } from '../../src/db/lists.ts'
import { withWaitingFor } from '../../src/delivery/waiting-for.ts'
import { setup, type Story } from '../support/setup.ts'

const k = { orderingKey: 'order-42' }
const sent = ({ downstream }: Story): string[] => downstream.requests.map(one => one.taskNo)

t.test(
  'the next one goes when the one before it is HANDLED, and the receipt is what makes it so',
  async t => {
    const story = await setup(t, { downstream: { needCallback: true } })
    const { accept, read, quiet, receive, downstream, sql } = story
    const accepted = await accept.many(['a', 'b', 'c'].map(taskNo => taskRequest({ taskNo, ...k })))
    const positions = accepted.map(one => ('task' in one ? one.task.deliveries[0]?.position : undefined))
    t.ok(Number(positions[0]) > 1.7e15, 'a key begins at the time in microseconds')
    t.same(
      positions.map(one => Number(one) - Number(positions[0])),
      [0, 1, 2]
    )
    t.match(
      accepted,
      only(
        { task: { orderingKey: 'order-42', deliveries: [{ phase: 'IN_FLIGHT' }] } },
        { task: { deliveries: [{ phase: 'BLOCKED', attempt: 0, nextActionAt: undefined }] } },
        { task: { deliveries: [{ phase: 'BLOCKED' }] } }
      )
    )
    await quiet()
    await story.around.refresh()
    await story.succession.sweep()
    await quiet()
    t.same(sent(story), ['a'], 'the 2xx of the first is not enough')
    t.match(await read('b'), { deliveries: [{ phase: 'BLOCKED', position: positions[1] }] })
    await receive({ taskNo: 'a' })
    await quiet()
    t.same(sent(story), ['a', 'b'])
    await receive({ taskNo: 'b' })
    await quiet()
    await receive({ taskNo: 'c' })
    await quiet()
    t.same(sent(story), ['a', 'b', 'c'])
    t.same(
      downstream.requests.map(one => [one.headers['ackbox-sequence'], one.headers['ackbox-out-of-order']]),
      positions.map(position => [String(position), undefined])
    )
    t.match(await sql`select next, head, held_at from ordering`, only({ head: null, held_at: null }))
    t.equal((await sql`select from promotion`).length, 0)
    await accept(taskRequest({ taskNo: 'd', ...k }))
    await quiet()
    t.equal(sent(story).at(-1), 'd', 'the key is free')
    t.ok(Number((await read('d')).deliveries[0]?.position) > Number(positions[0]) + 2)
  }
)

t.test(
  'a restored database gives no position again, and a clock that goes back gives none twice',
  async t => {
    const { accept, sql, read } = await setup(t)
    const placed = async (taskNo: string) => {
      await accept(taskRequest({ taskNo, ...k }))
      return Number((await read(taskNo)).deliveries[0]?.position)
    }
    await placed('before the backup')
    const [backup] = await sql<[{ next: number }]>`select next from ordering`
    const after = await placed('after the backup')
    await sql`delete from delivery where position = ${after}`
    await sql`update ordering set next = ${backup.next}`
    t.ok((await placed('after the restore')) > after)
    const ahead = Date.now() * 1_000 + 3_600_000_000
    await sql`update ordering set next = ${ahead}`
    t.equal(await placed('an hour back'), ahead)
  }
)

t.test('keys, downstreams, and tasks without a key do not wait for each other', async t => {
  const story = await setup(t, { downstreams: { points: {}, warehouse: {} } })
  const { accept, downstream } = story
  downstream.holds = true
  await accept.many([
    taskRequest({ taskNo: 'a1', orderingKey: 'a' }),
    taskRequest({ taskNo: 'a2', orderingKey: 'a' }),
    taskRequest({ taskNo: 'b1', orderingKey: 'b' }),
    taskRequest({ taskNo: 'free' })
  ])
  await downstream.received(6)
  await story.enqueuing.idle()
  t.same(sent(story).toSorted(), ['a1', 'a1', 'b1', 'b1', 'free', 'free'].toSorted())
  downstream.holds = false
  downstream.answer()
})

t.test(
  'one that FAILED holds its key, with an alarm that says how many wait; a redelivery lets it go on',
  async t => {
    const story = await setup(t)
    const { accept, quiet, downstream, read, redeliver, sql } = story
    downstream.next({ kind: 'refused', reason: 'http_410' })
    await accept.many(['a', 'b', 'c'].map(taskNo => taskRequest({ taskNo, ...k })))
    await quiet()
    t.same(sent(story), ['a'])
    const open = () => sql<{ kind: string }[]>`select kind from alarm where resolved_at is null order by kind`
    t.match(await open(), only({ kind: 'FAILED' }, { kind: 'KEY_HELD' }))
    t.match(await sql`select held_at from ordering`, only({ held_at: Date }))
    await accept(taskRequest({ taskNo: 'd', ...k }))
    await quiet()
    t.match(await read('d'), { deliveries: [{ phase: 'BLOCKED' }] })
    const asking = {
      reads: story.reads,
      handlers: story.handlers,
      cluster: { now: () => new Date(), workers: () => 1, dispatchers: () => 1 }
    }
    const why = async (codes: string[] | null) =>
      (await withWaitingFor(asking, await read('d'), codes))?.deliveries[0]?.waitingFor
    t.match(await why(null), {
      code: 'TASK',
      blocker: { taskNo: 'a', orderingKey: 'order-42', status: 'FAILED', since: /Z$/ },
      more: 0,
      text: { en: /^Behind a of the key order-42, which is FAILED since / }
    })
    const window = { messageCodes: null, from: new Date(0), limit: 10, phase: 'BLOCKED' as const }
    t.match(
      await listDeliveries(story.reads, window),
      {
        deliveries: only(
          ...['d', 'c', 'b'].map(taskNo => ({
            taskNo,
            blocker: { taskNo: 'a', orderingKey: 'order-42', status: 'FAILED' }
          }))
        )
      },
      'the list of what is BLOCKED says by what'
    )
    const ahead = async (codes: string[] | null) =>
      (await withWaitingFor(asking, await read('d'), codes))?.deliveries[0]?.ahead
    t.equal(await ahead(null), 'c', 'the one directly before it')
    t.equal(await ahead(['another.code']), undefined)
    t.match(await why(['another.code']), { code: 'DISPATCHER' }, 'tasks of other messageCodes are not named')
    await redeliver('a')
    await quiet()
    t.same(sent(story), ['a', 'a', 'b', 'c', 'd'])
    t.same(
      downstream.requests.filter(one => 'ackbox-out-of-order' in one.headers),
      [],
      'it had its place still'
    )
    t.equal((await open()).length, 0)
    t.match(await sql`select held_at, head from ordering`, only({ held_at: null, head: null }))
  }
)

t.test('a redelivery that fails again holds the key again; a late receipt lets it go on', async t => {
  const story = await setup(t, { downstream: { needCallback: true } })
  const { accept, quiet, downstream, redeliver, receive, sql, later, dispatch } = story
  await accept.many(['a', 'b'].map(taskNo => taskRequest({ taskNo, retryTimes: 1, ...k })))
  await quiet()
  await later('61 s')
  await dispatch()
  t.match(await story.read('a'), { deliveries: [{ status: 'FAILED', reason: 'RECEIPT_TIMEOUT' }] })
  await redeliver('a')
  await quiet()
  await later('61 s')
  await dispatch()
  t.same(sent(story), ['a', 'a'])
  t.equal((await sql`select from alarm where kind = 'KEY_HELD' and resolved_at is null`).length, 1)
  await receive({ taskNo: 'a' })
  await quiet()
  t.same(sent(story), ['a', 'a', 'b'])
  t.equal((await sql`select from alarm where kind = 'KEY_HELD' and resolved_at is null`).length, 0)
  t.equal(downstream.requests.at(-1)?.headers['ackbox-out-of-order'], undefined)
})

t.test('released, the key goes on, and what FAILED goes out of order from then on', async t => {
  const story = await setup(t)
  const { accept, quiet, downstream, redeliver, read, release, sql } = story
  downstream.next({ kind: 'refused', reason: 'http_410' })
  await accept.many(['a', 'b'].map(taskNo => taskRequest({ taskNo, ...k })))
  await quiet()
  t.equal(await release('nothing'), 'not_found')
  t.match(await release('order-42'), { taskNo: 'a' })
  await quiet()
  t.same(sent(story), ['a', 'b'])
  t.equal(await release('order-42'), 'not_held', 'once')
  const position = (await read('a')).deliveries[0]?.position
  t.match(await read('a'), { deliveries: [{ status: 'FAILED', outOfOrder: true }] })
  downstream.holds = true
  await accept(taskRequest({ taskNo: 'c', ...k }))
  await redeliver('a')
  await downstream.received(3)
  story.dispatching().wake()
  await downstream.received(4)
  t.same(sent(story).slice(2).toSorted(), ['a', 'c'], 'beside the others')
  const again = downstream.requests.find(one => one.taskNo === 'a' && one.attempt === 2)
  t.match(again?.headers, { 'ackbox-out-of-order': '1', 'ackbox-sequence': String(position) })
  downstream.holds = false
  downstream.answer()
  downstream.answer()
  await quiet()
  t.equal((await sql`select from delivery where status <> 1`).length, 0)
})

t.test("onFailed: 'skip' goes on at once, past any number of them", async t => {
  const story = await setup(t, { downstream: { onFailed: 'skip' } })
  const { accept, quiet, downstream, read, remove, sql, later, dispatch } = story
  const refused = { kind: 'refused', reason: 'http_410' } as const
  downstream.next(refused, refused)
  await accept.many(['a', 'b', 'c'].map(taskNo => taskRequest({ taskNo, ...k })))
  await quiet()
  t.same(sent(story), ['a', 'b', 'c'])
  t.match(await read('b'), { deliveries: [{ status: 'FAILED', outOfOrder: true }] })
  t.equal((await sql`select from alarm where kind = 'KEY_HELD'`).length, 0)
  downstream.holds = true
  const before = new Date(Date.now() + 60_000)
  await accept(taskRequest({ taskNo: 'd', ...k }))
  await accept.many(['e', 'f'].map(taskNo => taskRequest({ taskNo, deliverBefore: before, ...k })))
  await accept(taskRequest({ taskNo: 'g', ...k }))
  await later('61 s')
  await dispatch()
  t.match(await read('e'), { deliveries: [{ status: 'FAILED', reason: 'EXPIRED' }] })
  t.match(await read('g'), { deliveries: [{ phase: 'BLOCKED' }] })
  downstream.holds = false
  downstream.answer()
  await remove('d')
  await quiet()
  t.equal(sent(story).at(-1), 'g')
  t.match(await read('f'), { deliveries: [{ outOfOrder: true }] })
})

t.test('one that FAILED while it waited holds the key when its turn comes, and not before', async t => {
  const story = await setup(t)
  const { accept, quiet, downstream, read, redeliver, sql, later, dispatch } = story
  downstream.holds = true
  await accept(taskRequest({ taskNo: 'a', ...k }))
  await accept(taskRequest({ taskNo: 'b', deliverBefore: new Date(Date.now() + 60_000), ...k }))
  await accept(taskRequest({ taskNo: 'c', ...k }))
  await later('61 s')
  await dispatch()
  t.match(await read('b'), { deliveries: [{ status: 'FAILED', reason: 'EXPIRED', attempt: 0 }] })
  t.equal((await sql`select from alarm where kind = 'KEY_HELD'`).length, 0)
  downstream.holds = false
  downstream.answer()
  await quiet()
  await dispatch()
  t.notOk(sent(story).includes('c'))
  t.equal((await sql`select from alarm where kind = 'KEY_HELD'`).length, 1)
  await redeliver('b', { force: true })
  await quiet()
  t.same([...new Set(sent(story))], ['a', 'b', 'c'])
})

t.test('redelivered before its turn has come it takes its place again', async t => {
  const story = await setup(t)
  const { accept, quiet, downstream, read, redeliver, later, dispatch } = story
  downstream.holds = true
  await accept(taskRequest({ taskNo: 'a', ...k }))
  await accept(taskRequest({ taskNo: 'b', deliverBefore: new Date(Date.now() + 60_000), ...k }))
  await accept(taskRequest({ taskNo: 'c', ...k }))
  await later('61 s')
  await dispatch()
  await redeliver('b', { force: true })
  t.match(await read('b'), { deliveries: [{ status: 'SENDING', phase: 'BLOCKED' }] })
  downstream.holds = false
  downstream.answer()
  await quiet()
  await dispatch()
  t.same([...new Set(sent(story))], ['a', 'b', 'c'])
  t.match(await read('c'), { status: 'HANDLED' })
})

t.test('deleted ones, skipped ones, and those that a hook skips end as if they were HANDLED', async t => {
  const story = await setup(t, {
    downstream: {
      when: ({ task }) => task.sceneType !== 'never',
      beforeSend: ({ task }) => (task.sceneType === 'now' ? { skip: true } : undefined)
    }
  })
  const { accept, quiet, downstream, read, remove, sql } = story
  downstream.holds = true
  await accept.many([
    taskRequest({ taskNo: 'a', ...k }),
    taskRequest({ taskNo: 'b', ...k }),
    taskRequest({ taskNo: 'c', sceneType: 'never', ...k }),
    taskRequest({ taskNo: 'd', sceneType: 'now', ...k }),
    taskRequest({ taskNo: 'e', ...k })
  ])
  await downstream.received(1)
  t.match(await read('c'), { deliveries: [{ reason: 'SKIPPED', position: undefined }] })
  // The tasks after `a` may be sent as soon as `a` is removed.
  downstream.holds = false
  await remove('b')
  await remove('a')
  downstream.answer()
  await quiet()
  t.same(sent(story), ['a', 'e'])
  t.match(await read('d'), { deliveries: [{ reason: 'SKIPPED' }] })
  t.match(await sql`select head from ordering`, only({ head: null }))
})

t.test('a HANDLED one that is sent again by force goes out of order', async t => {
  const story = await setup(t)
  const { accept, quiet, downstream, redeliver, dispatch } = story
  await accept(taskRequest({ taskNo: 'a', ...k }))
  await quiet()
  downstream.holds = true
  await accept(taskRequest({ taskNo: 'b', ...k }))
  await downstream.received(2)
  await redeliver('a', { force: true })
  await dispatch()
  await downstream.received(3)
  t.match(downstream.requests[2], { taskNo: 'a', headers: { 'ackbox-out-of-order': '1' } })
  downstream.holds = false
  downstream.answer()
  downstream.answer()
  await quiet()
  await redeliver('a', { force: true })
  await dispatch()
  t.match(downstream.requests[3], { taskNo: 'a', headers: { 'ackbox-out-of-order': '1' } }, 'and stays so')
})

t.test('a start time, a pause, and a backoff of the head hold those behind it', async t => {
  const story = await setup(t)
  const { accept, quiet, downstream, later, dispatch, read, sql, around } = story
  await accept(taskRequest({ taskNo: 'a', delayMs: 60_000, ...k }))
  await accept(taskRequest({ taskNo: 'b', ...k }))
  await dispatch()
  t.same(sent(story), [])
  t.match(await read('a'), { deliveries: [{ phase: 'WAITING' }] })
  downstream.next({ kind: 'failed', reason: 'http_503' })
  await later('61 s')
  await dispatch()
  t.same(sent(story), ['a'])
  t.match(await read('b'), { deliveries: [{ phase: 'BLOCKED' }] })
  await sql`insert into downstream (name, paused_at) values ('warehouse', now())`
  await around.refresh()
  const start = new Date(Date.now() + 120_000)
  await accept(taskRequest({ taskNo: 'c', startAt: start, ...k }))
  await later('11 s')
  await dispatch()
  t.same(sent(story), ['a'], 'paused')
  await sql`delete from downstream`
  await around.refresh()
  await dispatch()
  t.same(sent(story), ['a', 'a', 'b'])
  t.match(await read('c'), { deliveries: [{ phase: 'WAITING', nextActionAt: start.toISOString() }] })
  await quiet()
})

t.test('with `after` both must be free, and the key waits for what the head waits for', async t => {
  const story = await setup(t)
  const { accept, quiet, downstream, read, dispatch } = story
  downstream.holds = true
  const after = (...taskNos: string[]) => ({ after: { taskNos, codes: null } })
  const accepted = await accept.many([
    taskRequest({ taskNo: 'first' }),
    taskRequest({ taskNo: 'a', ...k, ...after('first') }),
    taskRequest({ taskNo: 'b', ...k }),
    taskRequest({ taskNo: 'c', ...k, ...after('b') }),
    taskRequest({ taskNo: 'd', ...k })
  ])
  t.same(
    accepted.map(one => one.kind),
    ['created', 'created', 'created', 'created', 'created']
  )
  await downstream.received(1)
  await quietButFor(story)
  t.same(sent(story), ['first'])
  for (const taskNo of ['a', 'b', 'c', 'd'])
    t.match(await read(taskNo), { deliveries: [{ phase: 'BLOCKED' }] }, taskNo)
  downstream.holds = false
  downstream.answer()
  await quiet()
  await dispatch()
  t.same(sent(story), ['first', 'a', 'b', 'c', 'd'])
})

t.test('what was free of others first waits for its turn, and the other way round', async t => {
  const story = await setup(t)
  const { accept, quiet, downstream, read, dispatch, sql } = story
  downstream.holds = true
  await accept(taskRequest({ taskNo: 'head', ...k }))
  await accept(taskRequest({ taskNo: 'first' }))
  await accept(taskRequest({ taskNo: 'a', ...k, after: { taskNos: ['first'], codes: null } }))
  await downstream.received(2)
  downstream.answer(undefined, 1)
  await until(
    'it waits for no other task',
    async () => (await sql`select from dependency where done_at is null`).length === 0
  )
  t.match(await read('a'), { deliveries: [{ phase: 'BLOCKED' }] })
  downstream.holds = false
  downstream.answer()
  await quiet()
  await dispatch()
  t.same(sent(story).toSorted(), ['a', 'first', 'head'])
})

t.test('its turn has come, and it waits for another task still', async t => {
  const story = await setup(t)
  const { accept, quiet, downstream, read, dispatch } = story
  downstream.holds = true
  await accept(taskRequest({ taskNo: 'head', ...k }))
  await accept(taskRequest({ taskNo: 'first' }))
  await accept(taskRequest({ taskNo: 'a', ...k, after: { taskNos: ['first'], codes: null } }))
  await accept(taskRequest({ taskNo: 'b', ...k }))
  await downstream.received(2)
  downstream.answer(undefined, sent(story).indexOf('head'))
  await until('the head has ended', async () => (await read('head')).status === 'HANDLED')
  await quietButFor(story)
  t.match(await read('a'), { deliveries: [{ phase: 'BLOCKED' }] })
  t.match(await read('b'), { deliveries: [{ phase: 'BLOCKED' }] })
  downstream.holds = false
  downstream.answer()
  await quiet()
  await dispatch()
  t.same(sent(story).slice(2), ['a', 'b'])
})

t.test('rows of the outbox and half messages take their places when they become tasks', async t => {
  const story = await setup(t, { handler: { checkBack: () => ({ url: 'http://shop.test/' }) } })
  const { accept, downstream, acceptRows, sql, quiet, read } = story
  downstream.holds = true
  await accept(taskRequest({ taskNo: 'a', ...k }))
  await accept(taskRequest({ taskNo: 'half', prepared: { checkAfterMs: 60_000 }, ...k }))
  t.match(await read('half'), { orderingKey: 'order-42', status: 'PREPARED' })
  for (const taskNo of ['b', 'c', 'free'])
    await sql`select ackbox_api.enqueue('order.paid', '1', ${taskNo}, ordering_key => ${taskNo === 'free' ? null : 'order-42'})`
  const accepting = acceptRows()
  await downstream.received(2)
  t.same(sent(story), ['a', 'free'])
  downstream.holds = false
  downstream.answer()
  downstream.answer()
  await accepting
  await quiet()
  t.same(sent(story), ['a', 'free', 'b', 'c'])
  t.match(await read('c'), { orderingKey: 'order-42' })
})

t.test('whoever ends one and dies before it looks: the sweep lets the next one go', async t => {
  const story = await setup(t)
  const { accept, downstream, sql, succession, around, quiet, read } = story
  downstream.holds = true
  await accept.many(['a', 'b'].map(taskNo => taskRequest({ taskNo, ...k })))
  await downstream.received(1)
  // Another process writes this and dies. This process is not notified.
  await sql`
    update delivery d set status = 1, phase = null, next_action_at = null, handled_at = now(), handled_by = 'receipt'
    from task t where t.id = d.task_id and t.task_no = 'a'`
  t.equal((await sql`select from promotion`).length, 1)
  await around.refresh()
  downstream.holds = false
  downstream.answer()
  await succession.sweep()
  await quiet()
  t.match(await read('b'), { status: 'HANDLED' })
  t.equal((await sql`select from promotion`).length, 0)
})

/** Waits for all work that can end while the downstream holds its requests. */
async function quietButFor({ accept, succession, enqueuing, record }: Story): Promise<void> {
  await accept.idle()
  await record.idle()
  await succession.idle()
  await enqueuing.idle()
}
