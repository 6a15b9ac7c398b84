// Outbox rows that producers enqueue by SQL in their own transactions, and the tasks that Ackbox makes of them.
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { z } from 'zod'
import { listAlarms } from '../../src/db/lists.ts'
import { claimAlarms } from '../../src/db/alarms.ts'
import { leaseShards, readOutbox } from '../../src/db/outbox.ts'
import { listRejected, removeRejected, retryRejected } from '../../src/db/rejected.ts'
import type { Sql } from '../../src/db/pool.ts'
import type { Reads } from '../../src/db/reads.ts'
import { only } from '../support/only.ts'
import { lockWaits, testDb } from '../support/postgres.ts'
import { setup, type SetupOptions, type Story } from '../support/setup.ts'
import { until } from '../support/until.ts'

/** A producer with its own connections to the same database. */
async function shop(
  t: Test,
  options: SetupOptions = {}
): Promise<Story & { producer: postgres.Sql; reads: Reads }> {
  const { url, sql, reads } = await testDb(t, { max: 8 })
  const producer = postgres(url, { max: 4, onnotice: () => {} })
  t.teardown(() => producer.end({ timeout: 1 }))
  const story = await setup(t, { ...options, sql })
  return { ...story, producer, reads }
}

const waiting = async (sql: Sql): Promise<number> => {
  const [row] = await sql<[{ n: number }]>`select count(*)::int as n from outbox`
  return row.n
}
const all = { messageCodes: null, limit: 50 }
const problems = async (reads: Reads): Promise<object[]> =>
  (await listRejected(reads, all)).rejected.map(({ taskNo, problem }) => ({ taskNo, problem })).toReversed()
const taskNos = async (sql: Sql): Promise<string[]> =>
  (await sql<{ task_no: string }[]>`select task_no from task order by id`).map(row => row.task_no)

t.test(
  'what was enqueued is delivered when its transaction commits, and never was when it rolls back',
  async t => {
    const { producer, sql, acceptRows, downstream, read } = await shop(t)
    await producer`create table account (id int, paid boolean)`
    const pay = (id: number) =>
      producer.begin(async tx => {
        await tx`insert into account values (${id}, true)`
        await tx`select ackbox_api.enqueue('order.paid', ${`{"orderId": ${id}.0}`}, ${`order-${id}`})`
        if (id === 2) throw new Error('no money')
      })
    await pay(1)
    await t.rejects(pay(2), /no money/)
    await acceptRows()
    t.match(await producer`select id from account`, only({ id: 1 }))
    t.same(await taskNos(sql), ['order-1'])
    t.match(
      downstream.requests,
      { length: 1, 0: { taskNo: 'order-1', raw: '{"orderId": 1.0}' } },
      "the body's own bytes"
    )
    t.match(await read('order-1'), {
      status: 'HANDLED',
      createdBy: /^sql:\w+$/,
      messageBody: '{"orderId": 1.0}'
    })
    t.equal(await waiting(sql), 0)
  }
)

t.test('each way of the call is understood, and what has no number gets one of its own', async t => {
  const { producer, sql, reads, acceptRows, read } = await shop(t)
  const body = { orderId: 'A' }
  const [one] = await producer<
    { no: string }[]
  >`select ackbox_api.enqueue('order.paid', ${producer.json(body)}::jsonb) as no`
  const [two] = await producer<
    { no: string }[]
  >`select ackbox_api.enqueue('order.paid', '{"orderId": "A"}') as no`
  const [three] = await producer<{ no: string }[]>`
    select ackbox_api.enqueue(message_code => 'order.paid', message_body => '1', task_no => 'order-3', scene_type => 'vip',
      deliver_start_time => '2026-01-02 03:04:05.678901+00', need_callback => true, retry_times => 5,
      extend => '{"by": "me"}', traceparent => '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01') as no`
  const many = await producer<{ no: string }[]>`
    select ackbox_api.enqueue_many('[
      {"taskNo": "order-4", "messageCode": "order.paid", "messageBody": {"b": 1, "a": [2]}, "retryTimes": 7},
      {"messageCode": "order.paid", "messageBody": "x"}
    ]') as no`
  await acceptRows()
  t.same(await problems(reads), [])
  t.same(
    await taskNos(sql),
    [one, two, three, ...many].map(row => row?.no),
    'in the order of the calls'
  )
  t.not(one?.no, two?.no, 'two equal events that were both committed are two')
  t.match(await read(one?.no ?? ''), { sceneType: '', messageBody: '{"orderId": "A"}' })
  t.match(await read('order-3'), {
    sceneType: 'vip',
    deliverStartTime: '2026-01-02T03:04:05.679Z',
    needCallback: true,
    retryTimes: 5,
    extend: { by: 'me' }
  })
  t.match(await read('order-4'), { retryTimes: 7, messageBody: '{"a": [2], "b": 1}' }, 'as jsonb prints it')
  t.match(
    await sql`select traceparent from task where task_no = 'order-3'`,
    only({ traceparent: /^00-0af7/ })
  )
  for (const tasks of ['{}', '[1]', 'null'])
    await t.rejects(producer`select ackbox_api.enqueue_many(${tasks}::text::jsonb)`, { code: '22023' }, tasks)
})

t.test(
  'a role may call the functions once it is granted, and may do nothing else with our tables',
  async t => {
    const { producer, sql, acceptRows, read } = await shop(t)
    const role = `shop_${process.pid}`
    await sql.unsafe(`create role ${role}; grant create on schema public to ${role}`)
    t.teardown(() => sql.unsafe(`drop owned by ${role}; drop role ${role}`))
    const as = <T>(work: (tx: postgres.TransactionSql) => Promise<T>) =>
      producer.begin(async tx => {
        await tx.unsafe(`set local session authorization ${role}`)
        return await work(tx)
      })
    const enqueue = () => as(tx => tx`select ackbox_api.enqueue('order.paid', '1', 'granted')`)
    await t.rejects(enqueue(), { code: '42501' })
    const { grantOutbox } = await import('../../src/db/outbox.ts')
    t.equal(await grantOutbox(sql, { role: 'no such"role', who: { name: 'test' } }), false)
    t.equal(await grantOutbox(sql, { role, who: { name: 'test' } }), true)
    for (const table of ['outbox', 'outbox_rejected', 'task']) {
      await t.rejects(
        as(tx => tx.unsafe(`select from ${table}`)),
        { code: '42501' },
        table
      )
      await t.rejects(
        as(tx => tx.unsafe(`delete from ${table}`)),
        { code: '42501' },
        table
      )
    }
    await as(async tx => {
      // The role's own objects with these names must not be used by the functions.
      await tx`create temp table outbox (task_no text) on commit drop`
      await tx`create function public.gen_random_uuid() returns uuid language sql as $$ select null::uuid $$`
      await tx`set local search_path = pg_temp, public, pg_catalog`
      await tx`select ackbox_api.enqueue('order.paid', '1', 'granted')`
    })
    await acceptRows()
    t.match(await read('granted'), { createdBy: `sql:${role}` })
    t.match(
      await sql`select who, what, target from audit`,
      only({ who: 'test', what: 'outbox.granted', target: role })
    )
  }
)

t.test(
  'what a POST would be refused is not lost: it stands there with the problem, and somebody hears of it',
  async t => {
    const { producer, sql, reads, acceptRows, lines, downstream } = await shop(t, {
      handler: { body: z.object({ orderId: z.string() }) }
    })
    const good = '{"orderId": "1"}'
    const deep = '['.repeat(70) + ']'.repeat(70)
    const refused: [what: string, call: string, problem: object][] = [
      ['no JSON', `'order.paid', '{"orderId":', 'no-json'`, { status: 400, code: 'NOT_JSON' }],
      ['nothing', `'order.paid', '', 'nothing'`, { status: 400, code: 'NOT_JSON' }],
      ['a member twice', `'order.paid', '{"a":1,"a":2}', 'twice'`, { code: 'NOT_I_JSON' }],
      ['too deep', `'order.paid', '${deep}', 'deep'`, { code: 'TOO_DEEP' }],
      ['members beside the body', `'order.paid', '1,"needCallback":true', 'beside'`, { code: 'NOT_JSON' }],
      [
        'the same, under our own name',
        `'order.paid', '1,"members":{"retryTimes":1}', 'inside'`,
        { code: 'NOT_JSON' }
      ],
      ['another end', `'order.paid', '1},{"a":1', 'end'`, { code: 'NOT_JSON' }],
      [
        'an unknown code',
        `'order.piad', '${good}', 'unknown'`,
        { status: 422, code: 'UNKNOWN_CODE', pointer: '/messageCode', detail: /Did you mean order.paid/ }
      ],
      ['no code', `null, '${good}', 'no-code'`, { status: 422, code: 'INVALID', pointer: '/messageCode' }],
      ['no body', `'order.paid', null::text, 'no-body'`, { code: 'INVALID', pointer: '/messageBody' }],
      ['null', `'order.paid', 'null', 'null'`, { code: 'INVALID', pointer: '/messageBody' }],
      [
        '300 kB',
        `'order.paid', '"' || repeat('x', 307200) || '"', 'large'`,
        { status: 413, code: 'BODY_TOO_LARGE', pointer: '/messageBody' }
      ],
      [
        '260 kB',
        `'order.paid', '"' || repeat('x', 266240) || '"', 'larger'`,
        { status: 413, code: 'BODY_TOO_LARGE' }
      ],
      [
        'what its handler does not take',
        `'order.paid', '{"orderId": 1}', 'schema'`,
        { code: 'INVALID', pointer: '/messageBody/orderId' }
      ],
      ['an odd number', `'order.paid', '${good}', 'no. 1'`, { code: 'INVALID', pointer: '/taskNo' }],
      [
        'an endless number',
        `'order.paid', '${good}', repeat('x', 5000000)`,
        { code: 'INVALID', pointer: '/taskNo' }
      ],
      [
        'two starts',
        `'order.paid', '${good}', 'starts', deliver_start_time => now(), delay => '1 s'`,
        { code: 'INVALID', pointer: '/delay' }
      ],
      [
        'a start at the end of time',
        `'order.paid', '${good}', 'never', deliver_start_time => 'infinity'`,
        { code: 'INVALID', pointer: '/deliverStartTime' }
      ],
      [
        'the last time there is',
        `'order.paid', '${good}', 'last', deliver_start_time => '294276-12-31 23:59:59.999999Z'`,
        { code: 'INVALID', pointer: '/deliverStartTime' }
      ],
      [
        'a time before Christ',
        `'order.paid', '${good}', 'bc', deliver_before => '4713-01-01 BC'`,
        { code: 'INVALID', pointer: '/deliverBefore' }
      ],
      [
        'a delay back',
        `'order.paid', '${good}', 'back', delay => '-1 s'`,
        { code: 'INVALID', pointer: '/delay' }
      ],
      [
        'too late then already',
        `'order.paid', '${good}', 'late', deliver_before => now() - interval '1 s'`,
        { code: 'INVALID', pointer: '/deliverBefore' }
      ],
      [
        'no limit at all',
        `'order.paid', '${good}', 'limit', retry_times => 2147483647`,
        { code: 'INVALID', pointer: '/retryTimes' }
      ],
      [
        'an extend that is not an object',
        `'order.paid', '${good}', 'extend', extend => '[1]'`,
        { code: 'INVALID', pointer: '/extend' }
      ],
      [
        'an extend of 2 MB',
        `'order.paid', '${good}', 'extends', extend => jsonb_build_object('x', (select string_agg(md5(n::text), '') from generate_series(1, 65536) n))`,
        { code: 'INVALID', pointer: '/extend' }
      ]
    ]
    for (const [what, call] of refused)
      await t.resolves(producer.unsafe(`select ackbox_api.enqueue(${call})`), what)
    const tasks = (more: object) =>
      producer`select ackbox_api.enqueue_many(${producer.json([more as never])})`
    await tasks({ taskNo: 'surprise', messageCode: 'order.paid', messageBody: { orderId: '1' }, surprise: 1 })
    await tasks({ taskNo: 'typed', messageCode: 5, messageBody: { orderId: '1' } })
    await tasks({ taskNo: 'bodiless', messageCode: 'order.paid' })
    await tasks({
      taskNo: 'proto',
      messageCode: 'order.paid',
      messageBody: { orderId: '1' },
      ['__proto__']: 1
    })
    await t.rejects(
      producer`select ackbox_api.enqueue('order.paid', chr(0))`,
      { code: '54000' },
      'PostgreSQL has no U+0000'
    )
    await t.rejects(
      producer`select ackbox_api.enqueue('order.paid', ${'"\\u0000"'}::text::jsonb)`,
      { code: '22P05' },
      'nor has its jsonb'
    )
    await producer`select ackbox_api.enqueue('order.paid', ${good}, 'good')`
    await acceptRows()
    const expected = [
      ...refused.map(([, , problem]) => problem),
      { code: 'INVALID', pointer: '/surprise' },
      { code: 'INVALID', pointer: '/messageCode' },
      { code: 'INVALID', pointer: '/messageBody' },
      { code: 'INVALID', pointer: '/__proto__' }
    ]
    const seen = await problems(reads)
    t.equal(seen.length, expected.length)
    for (const [n, problem] of expected.entries()) t.match(seen[n], { problem }, refused[n]?.[0] ?? '')
    t.same(await taskNos(sql), ['good'], 'and none of them holds up the others')
    t.equal(downstream.requests.length, 1)
    t.equal(await waiting(sql), 0)
    t.equal(lines.filter(line => line.message === 'outbox.rejected').length, expected.length)
    const alarms = await claimAlarms(sql, 100)
    t.equal(alarms.length, expected.length)
    t.match(
      alarms.find(one => one.taskNo === 'no-json'),
      { kind: 'REJECTED', messageCode: 'order.paid', reason: 'NOT_JSON' }
    )
    t.ok(
      alarms.every(one => one.taskNo.length <= 200),
      'nobody is told more than there is to be told'
    )
  }
)

t.test('an extend or other members that compress well are as large as their text', async t => {
  const { producer, sql } = await shop(t)
  const read = () => readOutbox(sql, { after: 0, without: { shards: [], codes: [] } })
  await producer`select ackbox_api.enqueue('order.paid', '{}', extend => jsonb_build_object('x', repeat('x', 2000000)))`
  await producer`select ackbox_api.enqueue_many(jsonb_build_array(jsonb_build_object(
    'messageCode', 'order.paid', 'messageBody', '{}'::jsonb, 'surprise', repeat('x', 2000000))))`
  t.match(
    (await read()).rows,
    only({ extend: null, extendBytes: Number }, { members: null, membersBytes: Number }),
    'neither is read'
  )
  await producer`delete from outbox`
  await producer`select ackbox_api.enqueue('order.paid', '{}', extend => jsonb_build_object('x', repeat('x', 60000)))
    from generate_series(1, 100)`
  const { rows, isFull } = await read()
  t.equal(rows.length, Math.ceil(4_194_304 / 60_011), 'they count towards what is read at once')
  t.ok(isFull)
})

t.test('a row that was before its handler is taken once that is there, and its alarm is over', async t => {
  const { producer, sql, reads, acceptRows, handlers, read } = await shop(t)
  await producer`select ackbox_api.enqueue('stock.moved', '{"n":1}', 'stock-1', delay => '1 h')`
  await producer`update outbox set created_at = created_at - interval '2 h'`
  await acceptRows()
  const window = { messageCodes: null, from: new Date(0), limit: 10 }
  t.match(await listAlarms(reads, window), {
    alarms: only({
      taskNo: 'stock-1',
      messageCode: 'stock.moved',
      downstream: '',
      kind: 'REJECTED',
      reason: 'UNKNOWN_CODE'
    })
  })
  t.match(await listAlarms(reads, { ...window, messageCodes: ['stock.moved'] }), { alarms: { length: 1 } })
  t.match(await listAlarms(reads, { ...window, messageCodes: ['order.paid'] }), { alarms: { length: 0 } })
  const [one] = (await listRejected(reads, all)).rejected
  const id = one?.id ?? ''
  t.equal(
    await retryRejected(sql, { id, messageCodes: ['order.paid'], who: { name: 'op' } }),
    false,
    'not by a key of other codes'
  )
  t.equal(await retryRejected(sql, { id, messageCodes: null, who: { name: 'op' } }), true)
  t.equal(await retryRejected(sql, { id, messageCodes: null, who: { name: 'op' } }), false, 'once')
  await acceptRows()
  t.match(await problems(reads), only({ taskNo: 'stock-1' }), 'too early')
  const [again] = (await listRejected(reads, all)).rejected
  t.not(again?.id, id)
  handlers.set('stock.moved', { ...handlers.get('order.paid')!, messageCode: 'stock.moved' })
  await retryRejected(sql, { id: again?.id ?? '', messageCodes: ['stock.moved'], who: { name: 'op' } })
  await acceptRows()
  t.match(await read('stock-1'), { status: 'HANDLED' }, 'its delay was over an hour ago')
  t.match(await listAlarms(reads, window), { alarms: { length: 0 } })
  t.match(
    await sql`select who, what, target, detail from audit`,
    only(
      { who: 'op', what: 'outbox.retry', target: id, detail: { taskNo: 'stock-1', problem: 'UNKNOWN_CODE' } },
      { what: 'outbox.retry' }
    )
  )
})

t.test('a row that nobody wants is dropped by somebody, whose name is kept', async t => {
  const { producer, sql, reads, acceptRows } = await shop(t)
  await producer`select ackbox_api.enqueue('order.piad', '{"secret":1}', 'typo')`
  await acceptRows()
  const [one] = (await listRejected(reads, all)).rejected
  const request = { id: one?.id ?? '', messageCodes: null, who: { name: 'op' } }
  t.equal(await removeRejected(sql, { ...request, messageCodes: ['order.paid'] }), false)
  t.equal(await removeRejected(sql, request), true)
  t.equal(await removeRejected(sql, request), false)
  t.match(await sql`select count(*) from alarm`, [{ count: 0 }])
  const [kept] = await sql`select who, what, detail from audit`
  t.match(kept, { who: 'op', what: 'outbox.delete', detail: { taskNo: 'typo', messageCode: 'order.piad' } })
  t.notMatch(JSON.stringify(kept), /secret/)
})

t.test(
  'rows and POSTs of one number and content are one task; other content is a conflict in sight',
  async t => {
    const { producer, sql, reads, acceptRows, downstream, post } = await shop(t)
    for (let n = 0; n < 3; n++) await producer`select ackbox_api.enqueue('order.paid', '{"n":1}', 'one')`
    await producer`select ackbox_api.enqueue('order.paid', '{"n":2}', 'one')`
    await post({ taskNo: 'posted' })
    await producer`select ackbox_api.enqueue('order.paid', '{"n":3}', 'posted')`
    await acceptRows()
    await producer`select ackbox_api.enqueue('order.paid', '{"n":1}', 'one')`
    await producer`select ackbox_api.enqueue('order.paid', '{"n":4}', 'one')`
    await acceptRows()
    t.same((await taskNos(sql)).toSorted(), ['one', 'posted'])
    t.equal(downstream.requests.filter(one => one.taskNo === 'one').length, 1)
    t.match(
      await problems(reads),
      only(
        { taskNo: 'one', problem: { status: 409, code: 'TASK_CONFLICT', pointer: '/taskNo' } },
        { taskNo: 'posted', problem: { code: 'TASK_CONFLICT' } },
        { taskNo: 'one', problem: { code: 'TASK_CONFLICT' } }
      )
    )
    t.equal(await waiting(sql), 0)
  }
)

t.test(
  'a deadline that passed while the row waited makes a task that is EXPIRED, and a delay counts from its enqueue',
  async t => {
    const { producer, sql, reads, acceptRows, dispatch, read } = await shop(t)
    await producer`select ackbox_api.enqueue('order.paid', '1', 'late', deliver_before => now() + interval '1 h')`
    await producer`select ackbox_api.enqueue('order.paid', '1', 'soon', delay => '90 min')`
    // No process looked at the outbox for two hours.
    await producer`update outbox set created_at = created_at - interval '2 h', deliver_before = deliver_before - interval '2 h'`
    const [row] = await sql<{ at: Date }[]>`select created_at as at from outbox where task_no = 'soon'`
    await acceptRows()
    await dispatch()
    t.same(await problems(reads), [])
    t.match(await read('late'), { status: 'FAILED', deliveries: [{ reason: 'EXPIRED' }] })
    t.match(await read('soon'), {
      status: 'HANDLED',
      deliverStartTime: new Date((row?.at.getTime() ?? 0) + 5_400_000).toISOString()
    })
  }
)

for (const [title, code] of [
  ['a row that PostgreSQL will not store as a task is put aside, and those around it are stored', '22003'],
  ['what PostgreSQL refuses one row for, with whatever error, is the fault of this row alone', 'P0001']
] as const)
  t.test(title, async t => {
    const { producer, sql, reads, acceptRows } = await shop(t)
    await sql.unsafe(`
      create function picky() returns trigger language plpgsql as
        $$begin if new.task_no = 'task-17' then raise exception 'no' using errcode = '${code}'; end if; return new; end$$`)
    await sql`create trigger picky before insert on task for each row execute function picky()`
    await producer`select ackbox_api.enqueue('order.paid', '1', 'task-' || n) from generate_series(1, 50) n`
    await acceptRows()
    t.match(await problems(reads), only({ taskNo: 'task-17', problem: { status: 500, code: 'INTERNAL' } }))
    t.equal((await taskNos(sql)).length, 49)
    t.equal(await waiting(sql), 0)
  })

t.test('a right that is missing is the fault of no row: all wait for it', async t => {
  const { producer, sql, reads, acceptRows, logged } = await shop(t)
  await sql`
    create function forbid() returns trigger language plpgsql as
      $$begin raise exception 'permission denied' using errcode = '42501'; end$$`
  await sql`create trigger forbid before insert on task for each row execute function forbid()`
  await producer`select ackbox_api.enqueue('order.paid', '1', 'task-' || n) from generate_series(1, 5) n`
  await acceptRows()
  t.same(await problems(reads), [])
  t.equal(logged('outbox.failed').length, 1)
  await sql`drop trigger forbid on task`
  await acceptRows()
  t.equal((await taskNos(sql)).length, 5)
})

t.test(
  'a problem that quotes half of an emoji, or that is refused itself, holds up no other row',
  async t => {
    const { producer, sql, reads, acceptRows, logged } = await shop(t)
    const enqueue = (taskNo: string, more: object) =>
      producer`select ackbox_api.enqueue_many(${producer.json([
        { taskNo, messageCode: 'order.paid', messageBody: 1, ...more }
      ] as never)})`
    // One of the two is cut inside of a pair.
    await enqueue('even', { ['😀'.repeat(300)]: 1 })
    await enqueue('odd', { [`x${'😀'.repeat(300)}`]: 1 })
    await enqueue('good', {})
    await acceptRows()
    t.match(
      await problems(reads),
      only(
        { taskNo: 'even', problem: { code: 'INVALID', pointer: /^\/(😀)+\.\.\.$/u } },
        { taskNo: 'odd', problem: { code: 'INVALID', pointer: /^\/x(😀)+\.\.\.$/u } }
      )
    )
    t.same(await taskNos(sql), ['good'])

    await sql`
    create function picky() returns trigger language plpgsql as
      $$begin if new.problem->>'code' = 'UNKNOWN_CODE' then raise exception 'no'; end if; return new; end$$`
    await sql`create trigger picky before insert on outbox_rejected for each row execute function picky()`
    await enqueue('before', { surprise: 1 })
    await enqueue('unknown', { messageCode: 'order.piad' })
    await enqueue('after', {})
    await acceptRows()
    t.match(
      (await problems(reads)).slice(2),
      only(
        { taskNo: 'before', problem: { code: 'INVALID' } },
        { taskNo: 'unknown', problem: { code: 'INTERNAL' } }
      )
    )
    t.match(logged('outbox.unwritable'), { length: 1, 0: { taskNo: 'unknown' } })
    t.same(await taskNos(sql), ['good', 'after'])
    t.equal(await waiting(sql), 0)
  }
)

t.test('two that accept rows at once lose nothing and store nothing twice', async t => {
  const { producer, sql, reads, outboxOfAnother, quiet, metrics } = await shop(t)
  const stop = new AbortController()
  const running = [1, 2, 3].map(() => outboxOfAnother().run(stop.signal))
  for (let n = 0; n < 10; n++) {
    await producer`select ackbox_api.enqueue('order.paid', i::text, 'task-' || i) from generate_series(${n * 150 + 1}::int, ${n * 150 + 150}::int) i`
    await producer`select ackbox_api.enqueue('order.paid', 'no JSON', 'bad-' || ${n}::int)`
  }
  await until('all is accepted', async () => (await waiting(sql)) === 0)
  stop.abort()
  await Promise.all(running)
  await quiet()
  t.match(await sql`select count(*)::int as n, count(distinct task_no)::int as different from task`, [
    { n: 1500, different: 1500 }
  ])
  t.equal((await problems(reads)).length, 10)
  const told = await metrics()
  t.match(told, /ackbox_outbox_rows_total\{result="stored"\} 1500\n/)
  t.match(told, /ackbox_outbox_rows_total\{result="rejected"\} 10\n/)
})

t.test('a transaction that stays open holds up nothing but itself', async t => {
  const { producer, sql, outboxOfAnother, quiet } = await shop(t)
  const stop = new AbortController()
  t.teardown(() => stop.abort())
  const running = outboxOfAnother().run(stop.signal)
  let commit = (): void => {}
  const held = new Promise<void>(resolve => (commit = resolve))
  const long = producer.begin(async tx => {
    await tx`select ackbox_api.enqueue('order.paid', '1', 'first', ordering_key => 'k')`
    await held
  })
  await until('it is open', async () => {
    const [row] = await sql<
      [{ n: number }]
    >`select count(*)::int as n from pg_stat_activity where state = 'idle in transaction' and datname = current_database()`
    return row.n > 0
  })
  await producer`select ackbox_api.enqueue('order.paid', '1', 'task-' || n, ordering_key => 'k') from generate_series(1, 300) n`
  await until('the others are stored', async () => (await taskNos(sql)).length === 300)
  t.equal(await lockWaits(sql), 0)
  commit()
  await long
  await until('and it is, once it commits', async () => (await taskNos(sql)).includes('first'))
  stop.abort()
  await running
  await quiet()
})

t.test('an outbox is looked at often while it is in use, and not before', async t => {
  const { producer, sql, outboxOfAnother, quiet } = await shop(t)
  const looks = { whole: 0, peeks: 0 }
  const counting = new Proxy(sql, {
    apply(target, self, given: [readonly string[]]) {
      const text = given[0].join('')
      if (text.startsWith('select from outbox where')) looks.peeks++
      if (text.includes('"endedBelow"')) looks.whole++
      return Reflect.apply(target as never, self, given)
    }
  })
  const stop = new AbortController()
  t.teardown(() => stop.abort())
  const running = outboxOfAnother({ sql: counting }).run(stop.signal)
  await until('it is idle', () => looks.whole > 4)
  t.equal(looks.peeks, 0, 'nothing is asked of one that nobody uses but the look of a second')
  await producer`select ackbox_api.enqueue('order.paid', '1', 'one')`
  await until('the row is found', async () => (await taskNos(sql)).length === 1)
  const { whole } = looks
  await until('it is peeked at', () => looks.peeks > 30)
  t.ok(looks.whole - whole < 15, `${looks.whole - whole} whole looks meanwhile`)
  stop.abort()
  await running
  await quiet()
})

t.test('rows of one key become tasks in the order of their transactions, whoever accepts them', async t => {
  const { producer, sql, reads, outboxOfAnother, quiet } = await shop(t)
  const stop = new AbortController()
  const running = [1, 2].map(() => outboxOfAnother({ leaseMs: 300 }).run(stop.signal))
  const keys = Array.from({ length: 20 }, (_, n) => `key ${n}`)
  await Promise.all(
    keys.map(async key => {
      for (let n = 0; n < 15; n++)
        await producer`select ackbox_api.enqueue('order.paid', ${JSON.stringify(key)}, ${`${key}-${String(n).padStart(3, '0')}`.replaceAll(' ', '_')}, ordering_key => ${key})`
    })
  )
  await until('all is accepted', async () => (await waiting(sql)) === 0)
  stop.abort()
  await Promise.all(running)
  await quiet()
  t.same(await problems(reads), [])
  for (const key of keys) {
    const of = await sql<{ task_no: string }[]>`
      select task_no from task where message_body = ${JSON.stringify(key)} order by created_at, id`
    const seen = of.map(row => row.task_no)
    t.equal(seen.length, 15)
    t.same(seen, seen.toSorted(), key)
  }
  t.match(
    await sql`select count(*)::int as n from outbox_lease`,
    [{ n: 0 }],
    'who leaves gives back what it held'
  )
})

t.test(
  "a shard that is somebody else's is left alone until that lease ends; rows without a key are not",
  async t => {
    const { producer, sql, acceptRows, outboxOfAnother } = await shop(t)
    await leaseShards(
      sql,
      'another process',
      Array.from({ length: 16 }, (_, n) => n),
      3_600_000
    )
    await producer`select ackbox_api.enqueue('order.paid', '1', 'keyed', ordering_key => 'k')`
    await producer`select ackbox_api.enqueue('order.paid', '1', 'free')`
    const one = outboxOfAnother()
    await acceptRows(one)
    t.same(await taskNos(sql), ['free'])
    await sql`update outbox_lease set until = now()`
    await acceptRows()
    t.same(await taskNos(sql), ['free', 'keyed'])
  }
)

t.test(
  'while PostgreSQL takes nothing nothing has an answer, and afterwards the order is what it was',
  async t => {
    const { producer, sql, acceptRows, lines, around } = await shop(t)
    for (const key of ['a', 'b'])
      for (const n of [1, 2])
        await producer`select ackbox_api.enqueue('order.paid', '1', ${`${key}${n}`}, ordering_key => ${key})`
    await sql`
    create function stuck() returns trigger language plpgsql as
      $$begin raise exception 'full' using errcode = 'disk_full'; end$$`
    await sql`create trigger stuck before insert on task for each row when (new.task_no = 'a1') execute function stuck()`
    await acceptRows()
    t.same(await taskNos(sql), [], 'PostgreSQL cannot be written: nothing has an answer')
    t.ok(lines.some(line => line.message === 'outbox.failed'))
    await sql`drop trigger stuck on task`
    await around.refresh()
    await acceptRows()
    t.same(await taskNos(sql), ['a1', 'a2', 'b1', 'b2'])
  }
)
