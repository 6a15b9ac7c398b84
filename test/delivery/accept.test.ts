import t from 'tap'
import { openDb } from '../../src/db/pool.ts'
import { Unavailable } from '../../src/runtime/errors.ts'
import { only } from '../support/only.ts'
import { taskRequest } from '../support/task-request.ts'
import { setup } from '../support/setup.ts'
import { testDb } from '../support/postgres.ts'

t.test('50 equal POSTs at once are one task: one 201 and 49 times 200', async t => {
  const { accept, sql, downstream, quiet } = await setup(t)
  const one = taskRequest()
  const answers = await Promise.all(Array.from({ length: 50 }, () => accept(one)))
  t.equal(answers.filter(answer => answer.kind === 'created').length, 1)
  t.equal(answers.filter(answer => answer.kind === 'same').length, 49)
  const [{ count }] = await sql<[{ count: number }]>`select count(*)::int as count from task`
  t.equal(count, 1)
  await quiet()
  t.equal(downstream.requests.length, 1)
})

t.test(
  '50 different bodies under one taskNo: one 201, 49 times 409, and the stored one is the one that was sent',
  async t => {
    const { accept, read, downstream, quiet } = await setup(t)
    const different = Array.from({ length: 50 }, (_, n) =>
      taskRequest({ taskNo: 'order:1', messageBody: `{"n":${n}}` })
    )
    const answers = await Promise.all(different.map(one => accept(one)))
    t.equal(answers.filter(answer => answer.kind === 'created').length, 1)
    t.equal(answers.filter(answer => answer.kind === 'conflict').length, 49)
    const winner = different[answers.findIndex(answer => answer.kind === 'created')]
    await quiet()
    t.equal((await read('order:1')).messageBody, winner?.messageBody)
    t.same(
      downstream.requests.map(one => one.raw),
      [winner?.messageBody]
    )
  }
)

t.test(
  '50 equal POSTs at 3 processes at once: query, then insert, gave an error instead of one task',
  async t => {
    const { url, sql } = await testDb(t, { max: 4 })
    const pools = [1, 2].map(() => openDb(url, { max: 4 }))
    t.teardown(() => Promise.all(pools.map(pool => pool.end())))
    const stories = await Promise.all([sql, ...pools].map(pool => setup(t, { sql: pool })))
    const equal = Array.from({ length: 20 }, (_, n) => taskRequest({ taskNo: `order:${n}` }))
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, at) => stories[at % 3]!.accept.many(at % 2 ? equal : equal.toReversed()))
    )
    const kinds = answers.flat().map(answer => answer.kind)
    t.equal(kinds.filter(kind => kind === 'created').length, 20)
    t.equal(kinds.filter(kind => kind === 'same').length, 20 * 49)
    await Promise.all(stories.map(story => story.quiet()))
    t.equal(stories.flatMap(story => story.downstream.requests).length, 20)
  }
)

t.test('the same taskNo with another body keeps the old row and sends the old body', async t => {
  const { accept, post, downstream, read, quiet } = await setup(t)
  const taskNo = await post({ taskNo: 'order:1', messageBody: '{"cents":1}' })
  t.match(await accept(taskRequest({ taskNo, messageBody: '{"cents":2}' })), { kind: 'conflict' })
  await quiet()
  t.equal((await read(taskNo)).messageBody, '{"cents":1}')
  t.same(
    downstream.requests.map(one => one.raw),
    ['{"cents":1}']
  )
})

t.test('in one batch the same taskNo twice is 201, then 200 or 409, in the order posted', async t => {
  const { accept } = await setup(t)
  const one = taskRequest()
  const answers = await accept.many([
    one,
    taskRequest({ messageCode: 'unknown' }),
    one,
    taskRequest({ taskNo: one.taskNo }),
    taskRequest()
  ])
  t.same(
    answers.map(answer => answer.kind),
    ['created', 'unknown_code', 'same', 'conflict', 'created']
  )
})

t.test(
  'a task that PostgreSQL refuses fails alone in its batch; one that finds it away fails all',
  async t => {
    const { accept, sql, logged } = await setup(t)
    await sql`
    create function picky() returns trigger language plpgsql as $$begin
      if new.task_no = 'poison' then raise exception 'no'; end if;
      if new.task_no = 'full' then raise exception 'no room' using errcode = 'disk_full'; end if;
      return new;
    end$$`
    await sql`create trigger picky before insert on task for each row execute function picky()`
    const [one, two] = [taskRequest(), taskRequest({ orderingKey: 'k' })]
    const batch = [one, taskRequest({ taskNo: 'poison' }), taskRequest({ taskNo: 'poison' }), two]
    const kinds = async (all: typeof batch) => (await accept.many(all)).map(answer => answer.kind)
    t.same(await kinds(batch), ['created', 'failed', 'conflict', 'created'])
    t.match(logged('accept.failed'), only({ taskNo: 'poison', err: { message: 'no' } }))
    t.same(await kinds(batch), ['same', 'failed', 'conflict', 'same'])
    await t.rejects(accept.many([taskRequest(), taskRequest({ taskNo: 'full' })]), Unavailable)
  }
)

t.test('a batch posted again answers the present state of all its tasks', async t => {
  const { accept, quiet } = await setup(t)
  const batch = Array.from({ length: 500 }, () => taskRequest())
  await accept.many(batch)
  await quiet()
  const again = await accept.many(batch)
  t.ok(again.every(answer => answer.kind === 'same' && answer.task.status === 'HANDLED'))
  t.same(
    again.map(answer => (answer.kind === 'same' ? answer.task.taskNo : '')),
    batch.map(one => one.taskNo)
  )
})

t.test('what the POST answers is what a GET reads right after it', async t => {
  const { accept, read, queue } = await setup(t, {
    downstreams: { audit: { when: () => false }, points: {}, warehouse: {} }
  })
  queue.mode = 'hold'
  for (const more of [{}, { delayMs: 60_000 }, { retryTimes: 3, extend: '{"a": 1}', needCallback: true }]) {
    const one = taskRequest(more)
    const answer = await accept(one)
    const { messageBody, ...stored } = await read(one.taskNo)
    t.equal(messageBody, one.messageBody)
    const deliveries = stored.deliveries.map(({ attempts, receipts, ...delivery }) => {
      t.same([attempts, receipts], [[], []])
      return delivery
    })
    t.same(answer.kind === 'created' && answer.task, { ...stored, deliveries })
  }
})

t.test('the limit a producer asks for is no counter: a task asking for 10 is delivered', async t => {
  const { post, quiet, delivery } = await setup(t)
  const taskNo = await post({ retryTimes: 10 })
  await quiet()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 1, triesLeft: 9 })
})

t.test('a delivery that waits for its start is not sent, and not early by the database’s clock', async t => {
  const { post, delivery, dispatch, downstream, later, sql } = await setup(t)
  const [{ now }] = await sql<[{ now: Date }]>`select now() as now`
  const taskNo = await post({ startAt: new Date(now.getTime() + 60_000) })
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 0 })
  await dispatch()
  await later('58 s')
  await dispatch()
  t.equal(downstream.requests.length, 0)
  await later('2 s')
  await dispatch()
  t.equal(downstream.requests.length, 1)
  t.match(await delivery(taskNo), { status: 'HANDLED' })
})

t.test(
  'a host whose clock is an hour ahead delivers nothing early: delay counts from the database’s now',
  async t => {
    const { post, delivery, dispatch, downstream } = await setup(t)
    const real = Date.now
    t.teardown(() => (Date.now = real))
    Date.now = () => real() + 3_600_000
    const taskNo = await post({ delayMs: 1_800_000 })
    await dispatch()
    Date.now = real
    t.equal(downstream.requests.length, 0)
    const { nextActionAt = '' } = await delivery(taskNo)
    t.ok(Math.abs(Date.parse(nextActionAt) - real() - 1_800_000) < 60_000, nextActionAt)
  }
)

t.test('a step of this host’s clock changes nothing of what the time is', async t => {
  const { around } = await setup(t)
  await around.refresh()
  const real = Date.now
  t.teardown(() => (Date.now = real))
  Date.now = () => real() - 7_200_000
  t.ok(Math.abs(around.now().getTime() - real()) < 600_000, around.now().toISOString())
})

t.test('a start time that has passed is due at once', async t => {
  const { post, quiet, delivery } = await setup(t)
  const taskNo = await post({ startAt: new Date(Date.now() - 60_000) })
  await quiet()
  t.match(await delivery(taskNo), { status: 'HANDLED' })
})

t.test('a job that was not added is given back uncounted, and the next look sends it', async t => {
  const { post, queue, quiet, delivery, dispatch, downstream } = await setup(t)
  queue.mode = 'refuse'
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1, triesLeft: 1 })
  for (let look = 0; look < 5; look++) await dispatch()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 6, triesLeft: 1 })
  t.equal(downstream.requests.length, 0)
  queue.mode = 'deliver'
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 7, triesLeft: 0 })
})

t.test('a full queue rejects nothing: what has no room waits in PostgreSQL', async t => {
  const { accept, queue, quiet, sql, dispatch, downstream } = await setup(t)
  queue.roomLeft = 0
  const answers = await accept.many(Array.from({ length: 100 }, () => taskRequest()))
  t.ok(answers.every(answer => answer.kind === 'created'))
  await quiet()
  const [{ waiting }] = await sql<[{ waiting: number }]>`
    select count(*)::int as waiting from delivery where phase = 'WAITING' and attempt = 0`
  t.equal(waiting, 100)
  queue.roomLeft = 1_000
  await dispatch()
  t.equal(downstream.requests.length, 100)
})

t.test('while older ones are left behind new ones queue up behind them', async t => {
  const { post, around, delivery, queue } = await setup(t)
  queue.mode = 'hold'
  around.setBacklog('warehouse', true)
  t.match(await delivery(await post()), { phase: 'WAITING', attempt: 0 })
  around.setBacklog('warehouse', false)
  t.match(await delivery(await post()), { phase: 'IN_FLIGHT', attempt: 1 })
})

t.test(
  'an api without a dispatcher of its own hands on directly again once nothing is left behind',
  async t => {
    const { post, around, delivery, queue, quiet, sql } = await setup(t)
    queue.mode = 'hold'
    queue.roomLeft = 0
    await post()
    await quiet()
    queue.roomLeft = 1_000
    t.match(await delivery(await post()), { phase: 'WAITING' }, 'the first one comes first')
    // The dispatcher of another process claims them. This process notices it by its refresh each second.
    await sql`update delivery set phase = 'IN_FLIGHT', attempt = 1, next_action_at = now() + interval '20 s'`
    await around.refresh()
    t.match(await delivery(await post()), { phase: 'IN_FLIGHT', attempt: 1 })
  }
)

t.test('a paused downstream gets nothing: accept stores it WAITING', async t => {
  const { post, sql, around, delivery, downstream, dispatch } = await setup(t)
  await sql`insert into downstream (name, paused_at, paused_by) values ('warehouse', now(), 'me')`
  await around.refresh()
  const taskNo = await post()
  await dispatch()
  t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 0 })
  await sql`update downstream set paused_at = null`
  await around.refresh()
  await dispatch()
  t.match(await delivery(taskNo), { status: 'HANDLED' })
  t.equal(downstream.requests.length, 1)
})

t.test('after the stop began what is accepted waits for another process', async t => {
  const { post, stopping, delivery } = await setup(t)
  stopping.abort()
  t.match(await delivery(await post()), { phase: 'WAITING', attempt: 0 })
})

t.test('when says no: this downstream does not get the task, and nobody waits for it', async t => {
  const { post, quiet, read } = await setup(t, {
    downstreams: {
      points: { when: ({ task }) => task.sceneType === 'vip' },
      warehouse: {
        when: () => {
          throw new Error('oh')
        }
      }
    }
  })
  const taskNo = await post()
  await quiet()
  t.match(await read(taskNo), {
    status: 'HANDLED',
    deliveries: only(
      { downstream: 'points', status: 'DELETED', reason: 'SKIPPED', attempt: 0 },
      { downstream: 'warehouse', status: 'HANDLED' }
    )
  })
})

t.test('a `when` that returns no boolean is logged, and its downstream gets the task', async t => {
  const { post, quiet, read, logged } = await setup(t, {
    downstreams: {
      async: { when: () => Promise.resolve(false) as never },
      nothing: { when: () => undefined as never },
      rejects: { when: () => Promise.reject(new Error('no answer')) as never },
      zero: { when: () => 0 as never }
    }
  })
  const taskNo = await post()
  await quiet()
  const { deliveries } = await read(taskNo)
  t.same(
    deliveries.map(({ downstream, status }) => [downstream, status]),
    ['async', 'nothing', 'rejects', 'zero'].map(downstream => [downstream, 'HANDLED'])
  )
  const returned = { async: 'a Promise', nothing: 'undefined', rejects: 'a Promise', zero: 'number' }
  t.match(
    logged('hook.when_failed'),
    Object.entries(returned).map(([downstream, what]) => ({
      downstream,
      taskNo,
      err: { message: `when must return true or false, and returned ${what}` }
    }))
  )
})

t.test(
  'an attempt starts by the clock of the database, as its task was accepted, whatever this host says',
  async t => {
    const { post, quiet, delivery, read } = await setup(t)
    const real = globalThis.Date
    t.teardown(() => (globalThis.Date = real))
    globalThis.Date = class extends real {
      constructor(time: string | number | Date = real.now() + 7_200_000) {
        super(time)
      }
    } as DateConstructor
    const taskNo = await post()
    await quiet()
    globalThis.Date = real
    const [{ startedAt } = { startedAt: '' }] = (await delivery(taskNo)).attempts ?? []
    const { createdAt } = await read(taskNo)
    t.ok(
      startedAt >= createdAt && Date.parse(startedAt) - Date.parse(createdAt) < 600_000,
      `${createdAt} ${startedAt}`
    )
  }
)
