// Takes long: npm run test:long.
import t from 'tap'
import { pause } from '../../src/db/cluster.ts'
import { listTasks } from '../../src/db/lists.ts'
import { countFailed } from '../../src/db/operations.ts'
import { openDb, type Sql } from '../../src/db/pool.ts'
import { only } from '../support/only.ts'
import { failed } from '../support/scripted.ts'
import { taskRequest } from '../support/task-request.ts'
import { intercepted, throughBlackHole } from '../support/away.ts'
import { setup } from '../support/setup.ts'
import { testDb } from '../support/postgres.ts'
import { stopwatch } from '../support/stopwatch.ts'

t.test('what fails is tried again after its backoff and not before, until it works', async t => {
  const { post, downstream, quiet, dispatch, later, delivery } = await setup(t, {
    downstream: {
      policy: { times: 3, backoff: { kind: 'list', ms: [10_000, 60_000] }, receiptTimeoutMs: 60_000 }
    }
  })
  downstream.next(failed, failed)
  const taskNo = await post()
  await quiet()
  await later('9 s')
  await dispatch()
  t.equal(downstream.requests.length, 1, 'a flood of retries: every sweep sends again')
  await later('1 s')
  await dispatch()
  t.equal(downstream.requests.length, 2)
  await later('59 s')
  await dispatch()
  t.equal(downstream.requests.length, 2)
  await later('1 s')
  await dispatch()
  t.match(await delivery(taskNo), {
    status: 'HANDLED',
    attempt: 3,
    triesLeft: 0,
    attempts: only(
      { attempt: 1, outcome: 'failed' },
      { attempt: 2, outcome: 'failed' },
      { attempt: 3, outcome: 'delivered' }
    )
  })
})

t.test(
  'a poison task that always throws ends at its limit: FAILED, with its alarm, and not SENDING for ever',
  async t => {
    const { post, dispatch, later, delivery, quiet, sql, downstream } = await setup(t, {
      downstream: {
        request: () => {
          throw new Error('poison')
        }
      }
    })
    const taskNo = await post({ retryTimes: 3 })
    await quiet()
    for (let look = 0; look < 5; look++) {
      await later('1 minute')
      await dispatch()
    }
    t.match(await delivery(taskNo), { status: 'FAILED', reason: 'SEND_EXHAUSTED', attempt: 3, triesLeft: 0 })
    const alarms = await sql`select kind, attempt, resolved_at from alarm`
    t.same([...alarms], [{ kind: 'FAILED', attempt: 3, resolved_at: null }])
    t.equal(downstream.requests.length, 0)
  }
)

t.test('one try means one try', async t => {
  const { post, quiet, downstream, delivery } = await setup(t)
  downstream.usual = failed
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  t.match(await delivery(taskNo), { status: 'FAILED', reason: 'SEND_EXHAUSTED', attempt: 1 })
})

t.test('an hour without workers makes nothing FAILED, not even a task with one try', async t => {
  const { post, queue, workers, later, dispatch, delivery, quiet } = await setup(t)
  queue.mode = 'lose'
  await workers(0)
  const taskNo = await post({ retryTimes: 1 })
  for (let lease = 0; lease < 50; lease++) {
    await later('21 s')
    await dispatch()
    await dispatch()
  }
  t.match(await delivery(taskNo), { status: 'SENDING', attempt: 51, triesLeft: 0, phase: 'IN_FLIGHT' })
  await workers(1)
  queue.mode = 'deliver'
  await later('21 s')
  await dispatch()
  await dispatch()
  await quiet()
  t.match(await delivery(taskNo), { status: 'HANDLED' })
})

t.test('a queue that is flushed twice burns no try', async t => {
  const { post, queue, later, dispatch, delivery } = await setup(t)
  queue.mode = 'hold'
  const taskNo = await post({ retryTimes: 1 })
  for (let flushed = 0; flushed < 2; flushed++) {
    queue.flush()
    await later('21 s')
    await dispatch()
    await dispatch()
  }
  t.match(await delivery(taskNo), { phase: 'IN_FLIGHT', attempt: 3, triesLeft: 0 })
  await queue.run()
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 3 })
})

t.test('a task that kills its worker every time ends FAILED within its limit and two', async t => {
  const { post, queue, later, dispatch, delivery, sql } = await setup(t)
  queue.mode = 'lose'
  const taskNo = await post({ retryTimes: 2 })
  for (let lease = 0; lease < 12; lease++) {
    await later('21 s')
    await dispatch()
  }
  t.match(await delivery(taskNo), { status: 'FAILED', reason: 'SEND_EXHAUSTED', attempt: 4, triesLeft: 0 })
  t.equal((await sql`select from alarm`).length, 1)
})

t.test(
  'a process that dies between sending and sent leaves the row to the others, within lease and sweep',
  async t => {
    const { post, queue, later, dispatch, delivery, downstream } = await setup(t)
    queue.mode = 'lose'
    const taskNo = await post()
    await later('19 s')
    await dispatch()
    t.match(await delivery(taskNo), { phase: 'IN_FLIGHT', attempt: 1 }, 'a live lease is not touched')
    queue.mode = 'deliver'
    await later('2 s')
    await dispatch()
    await dispatch()
    t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
    t.equal(downstream.requests.length, 1)
  }
)

t.test('paused while a lease runs out: given back, uncounted', async t => {
  const { post, queue, later, dispatch, delivery, sql, around } = await setup(t)
  queue.mode = 'lose'
  const taskNo = await post({ retryTimes: 1 })
  await sql`insert into downstream (name, paused_at, paused_by) values ('warehouse', now(), 'me')`
  await around.refresh()
  for (let lease = 0; lease < 5; lease++) {
    await later('21 s')
    await dispatch()
  }
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1, triesLeft: 1 })
})

t.test('what may not be sent any more is EXPIRED, not sent, and heard of', async t => {
  const { post, later, dispatch, delivery, downstream, sql, quiet } = await setup(t)
  downstream.usual = failed
  const taskNo = await post({ deliverBefore: new Date(Date.now() + 15_000) })
  await quiet()
  await later('12 s')
  await dispatch()
  const { nextActionAt = '' } = await delivery(taskNo)
  t.ok(Date.parse(nextActionAt) < Date.now() + 4_000, 'the end of its backoff is not after its end')
  await later('3 s')
  await dispatch()
  t.match(await delivery(taskNo), { status: 'FAILED', reason: 'EXPIRED', attempt: 2 })
  t.equal((await sql`select from alarm where kind = 'FAILED'`).length, 1)
  t.equal(downstream.requests.length, 2)
})

t.test(
  'what is due and waits is EXPIRED soon after its deliverBefore, however long its clock is past',
  async t => {
    const { post, delivery, dispatching, around, sql } = await setup(t, { sweepMs: 50 })
    await pause(sql, 'warehouse', { name: 'test' })
    await around.refresh()
    const deliverBefore = new Date(Date.now() + 600_000)
    const [first, second] = [await post({ deliverBefore }), await post({ deliverBefore })]
    await until(async () => (await sql`select from delivery where phase = 'WAITING'`).length === 2)
    // Like deliveries that wait for room: they have been due since before the next looks.
    await sql`update delivery set next_action_at = now() - interval '10 s'`
    const end = (taskNo: string) => sql`
    update delivery set deliver_before = now() where task_id = (select id from task where task_no = ${taskNo})`
    await end(first)
    dispatching().wake()
    await until(async () => (await delivery(first)).status === 'FAILED')
    await end(second)
    const waited = stopwatch(t)
    await until(async () => (await delivery(second)).status === 'FAILED')
    t.match(await delivery(second), { reason: 'EXPIRED', attempt: 0 })
    t.ok(waited() < 30_000, `after ${waited()} ms, and not with the look of each minute`)
  }
)

t.test('an answer that comes after deliverBefore does not hide the delivery from the next look', async t => {
  const { post, later, downstream, delivery, dispatching, quiet } = await setup(t, { sweepMs: 50 })
  downstream.holds = true
  const taskNo = await post({ deliverBefore: new Date(Date.now() + 8_000) })
  await downstream.received(1)
  const { wake } = dispatching()
  wake()
  await later('10 s')
  // This dispatcher now looks only at clocks later than the one that the failed send sets.
  await until(async () => (await delivery(taskNo)).phase === 'IN_FLIGHT')
  downstream.answer(failed)
  await quiet()
  await until(async () => (await delivery(taskNo)).status === 'FAILED')
  t.match(await delivery(taskNo), { reason: 'EXPIRED', attempts: only({ outcome: 'failed' }) })
})

t.test('no receipt in time: the next try by backoff, at the limit RECEIPT_TIMEOUT and an alarm', async t => {
  const { post, later, dispatch, delivery, downstream, sql, quiet } = await setup(t, {
    downstream: { needCallback: true }
  })
  const taskNo = await post({ retryTimes: 2 })
  await quiet()
  t.match(await delivery(taskNo), { phase: 'AWAITING_RECEIPT', attempt: 1, deliveredAt: String })
  await later('59 s')
  await dispatch()
  t.match(await delivery(taskNo), { phase: 'AWAITING_RECEIPT', attempt: 1 })
  await later('2 s')
  await dispatch()
  const missed = { outcome: 'delivered', reason: 'no_receipt: none within 60 s' }
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1, attempts: only(missed) })
  await later('10 s')
  await dispatch()
  const again = await delivery(taskNo)
  t.match(again, { phase: 'AWAITING_RECEIPT', attempt: 2, attempts: only(missed, { outcome: 'delivered' }) })
  t.notOk(again.attempts?.[1]?.reason, 'its receipt may come still')
  await later('61 s')
  await dispatch()
  t.match(await delivery(taskNo), {
    status: 'FAILED',
    reason: 'RECEIPT_TIMEOUT',
    attempt: 2,
    attempts: only(missed, missed)
  })
  t.equal((await sql`select from alarm where kind = 'FAILED' and attempt = 2`).length, 1)
  t.equal(downstream.requests.length, 2)
})

t.test('a receipt that comes after its time says more than that it was missing', async t => {
  const { post, later, dispatch, delivery, receive, quiet, reads, sql } = await setup(t, {
    downstream: { needCallback: true }
  })
  const taskNo = await post({ retryTimes: 2 })
  await quiet()
  await later('61 s')
  await dispatch()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempts: only({ reason: /^no_receipt/ }) })
  await receive({ taskNo, result: 'FAILED', reason: 'no such order' })
  const filter = { messageCodes: null, from: new Date(0), limit: 10 }
  for (const lastReason of [undefined, 'SUCH'])
    t.match(await listTasks(reads, { ...filter, ...(lastReason === undefined ? {} : { lastReason }) }), {
      tasks: only({ taskNo, deliveries: [{ status: 'FAILED', lastReason: 'no such order' }] })
    })
  const counted = async (lastReason: string) =>
    (await countFailed(sql, { filter: { lastReason }, messageCodes: null })).matched
  t.same([await counted('such order'), await counted('no_receipt')], [1, 0])
})

t.test('the immediate send and three sweepers never send the same attempt twice', async t => {
  const { url, sql } = await testDb(t, { max: 4 })
  const pools = [1, 2].map(() => openDb(url, { max: 4 }))
  t.teardown(() => Promise.all(pools.map(pool => pool.end())))
  const stories = await Promise.all([sql, ...pools].map(pool => setup(t, { sql: pool, sweepMs: 20 })))
  const [first] = stories
  const dispatchers = stories.map(story => story.dispatching())
  const batches = Array.from({ length: 20 }, (_, at) =>
    Array.from({ length: 50 }, (_, n) => taskRequest(n % 2 ? { delayMs: at * 10 } : {}))
  )
  await Promise.all(batches.map((batch, at) => stories[at % 3]!.accept.many(batch)))
  for (const { wake } of dispatchers) wake()
  await until(async () => (await sql`select from delivery where status = 0 limit 1`).length === 0)
  const seen = stories.flatMap(story => story.downstream.requests).map(one => `${one.taskNo} ${one.attempt}`)
  t.equal(seen.length, 1_000)
  t.equal(new Set(seen).size, 1_000)
  const early = await sql`
    select from attempt a join task k on k.id = a.task_id
    where a.started_at < k.deliver_start_time - interval '1 ms'`
  t.equal(early.length, 0, 'not early')
  t.ok(first?.lines.every(line => line.level !== 'error'))
})

t.test('after an outage of its own a dispatcher waits 2 s before it calls leases lost', async t => {
  const { hole, sql, direct } = await throughBlackHole(t)
  const { post, queue, dispatching, quiet, logged } = await setup(t, { sql, sweepMs: 20 })
  queue.mode = 'lose'
  await post()
  await quiet()
  dispatching()
  hole.swallow()
  // The lease ends while no statement can be written.
  await direct`update delivery set next_action_at = now() - interval '1 s'`
  await until(async () => hole.swallowed() > 0)
  hole.heal()
  const back = performance.now()
  await until(async () => (await direct`select from delivery where attempt = 2`).length === 1)
  const took = performance.now() - back
  t.ok(took > 1_500, `${took} ms`)
  t.match(logged('delivery.rescued'), only({ was: 'IN_FLIGHT', move: 'lose' }))
})

t.test('a due delivery is found by the timer of the next due time, long before the next sweep', async t => {
  const { post, dispatching, downstream } = await setup(t, { sweepMs: 60_000 })
  const { wake } = dispatching()
  await post({ delayMs: 300 })
  wake()
  const began = stopwatch(t)
  await downstream.received(1)
  t.ok(began() < 2_000)
})

t.test('a full claim looks again at once: a backlog drains without waiting for sweeps', async t => {
  // Six sweeps would take longer than the test may.
  const { accept, dispatching, queue, downstream, quiet } = await setup(t, { sweepMs: 600_000 })
  queue.roomLeft = 0
  await accept.many(Array.from({ length: 300 }, () => taskRequest()))
  await quiet()
  queue.roomLeft = 50
  dispatching()
  await downstream.received(300)
  t.equal(new Set(downstream.requests.map(one => one.taskNo)).size, 300)
})

t.test('what was lost is decided within a sweep, also while a backlog is worked off', async t => {
  const { accept, post, dispatching, queue, downstream, later, logged, quiet } = await setup(t, {
    sweepMs: 50
  })
  queue.mode = 'lose'
  await post()
  await quiet()
  await later('21 s')
  queue.mode = 'deliver'
  queue.roomLeft = 0
  await accept.many(Array.from({ length: 2_000 }, () => taskRequest()))
  await quiet()
  queue.roomLeft = 1
  dispatching()
  await until(async () => {
    await new Promise(resolve => setTimeout(resolve, 5))
    return logged('delivery.rescued').length > 0
  })
  t.match(logged('delivery.rescued'), only({ was: 'IN_FLIGHT' }))
  t.ok(downstream.requests.length < 1_900, `${downstream.requests.length} of the backlog had left`)
})

t.test('a backlog that is paused is no reason to look without end', async t => {
  const { accept, dispatching, queue, sql, around, quiet } = await setup(t, { sweepMs: 60_000 })
  queue.roomLeft = 0
  await accept.many(Array.from({ length: 10 }, () => taskRequest()))
  await quiet()
  await sql`insert into downstream (name, paused_at, paused_by) values ('warehouse', now(), 'me')`
  await around.refresh()
  around.setBacklog('warehouse', true)
  const hasBacklog = around.hasBacklog.bind(around)
  let asked = 0
  around.hasBacklog = name => {
    asked++
    return hasBacklog(name)
  }
  dispatching()
  // A dispatcher that polls looks in each of these turns too, however slow they are.
  for (let turn = 0; turn < 50; turn++) await new Promise(resolve => setTimeout(resolve, 10))
  t.ok(asked > 0 && asked < 20, `it asked ${asked} times`)
})

t.test('behind more due deliveries than one look reads, an expired one is found', async t => {
  const { post, dispatching, delivery, around, sql } = await setup(t, { sweepMs: 20 })
  await pause(sql, 'warehouse', { name: 'test' })
  await around.refresh()
  await sql`
    insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_by)
    select gen_random_uuid(), 'no:' || n, 'order.paid', '', '{}', 'hash', 'test' from generate_series(1, 45000) n`
  await sql`
    insert into delivery (task_id, downstream, status, phase, next_action_at, attempt, tries_left, needs_receipt)
    select id, 'warehouse', 0, 'WAITING', now() - interval '1 hour', 0, 9, false from task`
  const taskNo = await post({ deliverBefore: new Date(Date.now() + 600_000) })
  await sql`update delivery set next_action_at = now() - interval '1 minute', deliver_before = now() where deliver_before is not null`
  dispatching()
  await until(async () => (await delivery(taskNo)).status === 'FAILED')
  t.match(await delivery(taskNo), { reason: 'EXPIRED' })
})

t.test('a burst of one downstream keeps no other waiting for a decision', async t => {
  const { sql: whole } = await testDb(t, { max: 8 })
  const looks: string[] = []
  const pool = intercepted(whole, (text, values) => {
    if (text.includes('o (downstream, after, place)'))
      looks.push(String(values.find(one => typeof one === 'string')))
    return undefined
  })
  const { post, queue, dispatching, delivery, around, sql, later } = await setup(t, {
    sql: pool,
    downstreams: { warehouse: {}, points: {} },
    sweepMs: 20
  })
  await pause(sql, 'warehouse', { name: 'test' })
  await around.refresh()
  queue.mode = 'lose'
  const taskNo = await post()
  await until(async () => (await delivery(taskNo, 'points')).phase === 'IN_FLIGHT')
  dispatching()
  await until(async () => looks.length > 2)
  await later('21 s')
  await sql`
    insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_by)
    select gen_random_uuid(), 'no:' || n, 'order.paid', '', '{}', 'burst', 'test' from generate_series(1, 60000) n`
  looks.length = 0
  await sql`
    insert into delivery (task_id, downstream, status, phase, next_action_at, attempt, tries_left, needs_receipt, deliver_before)
    select id, 'warehouse', 0, 'WAITING', now() + substr(task_no, 4)::int * interval '1 us', 0, 9, false,
      case when task_no = 'no:60000' then now() end
    from task where content_hash = 'burst'`
  await until(async () => (await delivery('no:60000')).status === 'FAILED')
  t.ok(looks.length > 6, `${looks.length} looks`)
  const isOfOne = looks.map(names => !names.includes('points'))
  t.notOk(
    isOfOne.some((one, at) => one && isOfOne[at + 1]),
    'of two looks at least one reads the clocks of both'
  )
})

t.test('thousands that ended at the same moment are all decided', async t => {
  const { dispatching, sql } = await setup(t, { sweepMs: 20 })
  await sql`
    insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_by)
    select gen_random_uuid(), 'no:' || n, 'order.paid', '', '{}', 'hash', 'test' from generate_series(1, 2500) n`
  await sql`
    insert into delivery (task_id, downstream, status, phase, next_action_at, attempt, tries_left, needs_receipt, deliver_before)
    select id, 'warehouse', 0, 'WAITING', now() - interval '1 hour', 0, 9, false, now() from task`
  dispatching()
  await until(async () => (await sql`select from delivery where status = 0 limit 1`).length === 0)
  t.equal((await sql`select from delivery where reason = 'EXPIRED'`).length, 2_500)
})

/** A pool on which looks for overdue deliveries are cut off if they would read a clock that ran out more than a minute ago. */
function cutOffPool(sql: Sql): Sql {
  const isOld = (value: unknown): boolean =>
    typeof value === 'string' &&
    value
      .replaceAll(/[{"}]/g, '')
      .split(',')
      .some(at => at === '-infinity' || Date.parse(at) < Date.now() - 60_000)
  return intercepted(sql, (text, values) =>
    text.includes('w.deliver_before <= now()') && values.some(isOld) ? tooSlow() : undefined
  )
}

const tooSlow = () =>
  Promise.reject(Object.assign(new Error('canceling statement due to statement timeout'), { code: '57014' }))

t.test('a dead process whose claims cannot be read in time keeps no due delivery waiting', async t => {
  const { sql: whole } = await testDb(t, { max: 8 })
  const { post, later, dispatch, downstream, quiet, logged } = await setup(t, {
    sql: intercepted(whole, text =>
      text.includes("w.phase = 'IN_FLIGHT' and w.owner =") ? tooSlow() : undefined
    )
  })
  downstream.next(failed)
  await post()
  await quiet()
  await later('1 hour')
  await dispatch([{ number: 9, node: 'dead', isWorker: false }])
  t.equal(downstream.requests.length, 2)
  t.match(logged('dispatcher.failed'), only({ level: 'warn', node: 'dead', err: { code: '57014' } }))
})

t.test('a backlog that cannot be read in time is logged, and what is lost is decided', async t => {
  const { sql: whole } = await testDb(t, { max: 8 })
  const { post, queue, later, dispatching, delivery, around, quiet, sql, logged } = await setup(t, {
    sql: cutOffPool(whole),
    downstreams: { warehouse: {}, points: {} },
    sweepMs: 50
  })
  await pause(sql, 'points', { name: 'test' })
  await around.refresh()
  queue.mode = 'lose'
  const taskNo = await post()
  await until(async () => (await delivery(taskNo)).phase === 'IN_FLIGHT')
  await later('1 hour')
  await sql`update delivery set next_action_at = now() + interval '1 s' where phase = 'IN_FLIGHT'`
  dispatching()
  await until(async () => (await delivery(taskNo)).attempt === 2)
  await quiet()
  t.match(logged('delivery.rescued'), only({ downstream: 'warehouse', move: 'lose' }))
  const warnings = logged('dispatcher.failed')
  t.match(warnings, only({ level: 'warn', err: { code: '57014' } }))
})

async function until(is: () => Promise<boolean>): Promise<void> {
  while (!(await is())) await new Promise(resolve => setTimeout(resolve, 5))
}
