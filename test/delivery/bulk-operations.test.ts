import t, { type Test } from 'tap'
import { countFailed, createOperation, stopOperation, type Selection } from '../../src/db/operations.ts'
import { listOperationDeliveries, readOperation } from '../../src/db/operation-lists.ts'
import { bulkOperations, type BulkOperationDeps } from '../../src/delivery/bulk-operations.ts'
import { uuidv7 } from '../../src/domain/ids.ts'
import { only } from '../support/only.ts'
import { readsOf } from '../support/postgres.ts'
import { lock, refuse } from '../support/row-faults.ts'
import { failed } from '../support/scripted.ts'
import { setup, type SetupOptions } from '../support/setup.ts'

const all: Selection = { filter: {}, messageCodes: null }
/** What a process that is killed sees of the database. */
const dead = Object.assign(new Error('write CONNECTION_CLOSED'), { code: 'CONNECTION_CLOSED' })

async function stage(t: Test, count: number, options: SetupOptions = {}) {
  const story = await setup(t, options)
  const reads = readsOf(t, story.sql)
  story.downstream.usual = failed
  const taskNos: string[] = []
  for (let i = 0; i < count; i++) taskNos.push(await story.post({ retryTimes: 1, taskNo: `bad-${i}` }))
  await story.quiet()
  story.downstream.usual = { kind: 'delivered' }
  const runner = (node: string, more: Partial<BulkOperationDeps> = {}) =>
    bulkOperations({
      sql: story.sql,
      node,
      handlers: story.handlers,
      complete: story.record,
      isPaused: () => false,
      limits: () => ({ concurrency: 50 }),
      wake: () => {},
      log: story.log,
      ...more
    })
  return {
    ...story,
    reads,
    taskNos,
    runner,
    async begin(selection = all) {
      const { matched } = await countFailed(story.sql, selection)
      const id = uuidv7()
      await createOperation(story.sql, id, selection, matched, { name: 'ops-1' })
      return id
    },
    state: (id: string) => readOperation(reads, id, null)
  }
}

const waiting = (sql: Awaited<ReturnType<typeof stage>>['sql']) =>
  sql<{ n: number }[]>`select count(*)::int as n from delivery where phase = 'WAITING'`.then(
    ([row]) => row?.n
  )

t.test(
  'all that FAILED is delivered again, a fifth of the concurrency at a time, and the list says what became of it',
  async t => {
    const { sql, begin, runner, dispatch, state, reads } = await stage(t, 25)
    const id = await begin()
    t.match(await state(id), { state: 'RUNNING', matched: 25, redelivered: 0, createdBy: 'ops-1' })
    const one = runner('here')
    for (let rounds = 0; (await state(id))?.state === 'RUNNING'; rounds++) {
      await one.look()
      await one.look()
      t.ok(((await waiting(sql)) ?? 0) <= 10, 'a fifth of 50 is due at most')
      await dispatch()
      if (rounds > 20) throw new Error('it does not end')
    }
    t.match(await state(id), { state: 'DONE', redelivered: 25, skipped: 0, endedAt: String })
    const taken = await listOperationDeliveries(reads, { id, messageCodes: null, limit: 200 })
    t.ok(taken && taken !== 'bad_cursor')
    if (!taken || taken === 'bad_cursor') return
    t.equal(taken.deliveries.length, 25)
    t.ok(
      taken.deliveries.every(
        one => one.status === 'HANDLED' && one.result === 'redelivered' && !one.failedAgain
      )
    )
    t.match(
      await sql`select who, what, target from audit`,
      only({ who: 'ops-1', what: 'tasks.redeliver', target: id })
    )
  }
)

t.test(
  'what fails again, or for the first time since it began, is not taken; what failed again says so',
  async t => {
    const { begin, runner, dispatch, state, reads, downstream, sql, post, quiet } = await stage(t, 3)
    const id = await begin()
    downstream.usual = failed
    await post({ retryTimes: 1, taskNo: 'later' })
    await quiet()
    await sql`update task set retry_times = 1`
    const one = runner('here')
    while ((await state(id))?.state === 'RUNNING') {
      await one.look()
      await dispatch()
    }
    t.equal(downstream.requests.length, 7, 'each once more, and the later one once')
    const taken = await listOperationDeliveries(reads, { id, messageCodes: null, limit: 2 })
    t.match(taken, {
      deliveries: only({ failedAgain: true, lastReason: 'http_503' }, {}),
      nextCursor: String
    })
  }
)

t.test('one with a locked row keeps no other waiting, and is taken when the lock ends', async t => {
  const { sql, begin, runner, dispatch, state, delivery } = await stage(t, 4)
  const id = await begin()
  const free = await lock(t, sql, 'bad-1')
  const one = runner('here')
  for (let looks = 0; looks < 5; looks++) await one.look()
  await dispatch()
  for (const taskNo of ['bad-0', 'bad-2', 'bad-3'])
    t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 }, taskNo)
  t.match(await state(id), { state: 'RUNNING', redelivered: 3, skipped: 0 })
  await free()
  while ((await state(id))?.state === 'RUNNING') await one.look()
  await dispatch()
  t.match(await delivery('bad-1'), { status: 'HANDLED', attempt: 2 })
  t.match(await state(id), { state: 'DONE', redelivered: 4, skipped: 0 })
})

t.test('one with a locked row that retention removes is skipped', async t => {
  const { sql, begin, runner, state } = await stage(t, 2)
  const id = await begin()
  const free = await lock(t, sql, 'bad-1')
  const one = runner('here')
  for (let looks = 0; looks < 3; looks++) await one.look()
  t.match(await state(id), { state: 'RUNNING', redelivered: 1, skipped: 0 })
  await free()
  await sql`delete from delivery where task_id = (select id from task where task_no = 'bad-1')`
  await sql`delete from task where task_no = 'bad-1'`
  await one.look()
  t.match(await state(id), { state: 'DONE', redelivered: 1, skipped: 1 })
})

t.test('one whose change PostgreSQL refuses is skipped, and the log names it', async t => {
  const { sql, begin, runner, dispatch, state, delivery, logged } = await stage(t, 3)
  await refuse(sql, 'bad-1')
  const id = await begin()
  const one = runner('here')
  while ((await state(id))?.state === 'RUNNING') await one.look()
  await dispatch()
  t.match(await delivery('bad-1'), { status: 'FAILED', attempt: 1 })
  t.match(await delivery('bad-2'), { status: 'HANDLED', attempt: 2 })
  t.match(await state(id), { state: 'DONE', redelivered: 2, skipped: 1 })
  t.match(
    logged('redelivery.failed'),
    only({ level: 'error', taskNo: 'bad-1', downstream: 'warehouse', operation: id })
  )
})

t.test('one that was never tried still waits for its start time', async t => {
  const { sql, begin, runner, dispatch, state, delivery } = await stage(t, 2)
  await sql`update task set deliver_start_time = now() + interval '1 hour'`
  await sql`update delivery set attempt = 0 where task_id = (select id from task where task_no = 'bad-0')`
  const id = await begin()
  const one = runner('here')
  while ((await state(id))?.state === 'RUNNING') {
    await one.look()
    await dispatch()
  }
  t.match(await delivery('bad-0'), { phase: 'WAITING', attempt: 0 })
  t.match(await delivery('bad-1'), { status: 'HANDLED', attempt: 2 })
  t.match(await state(id), { state: 'DONE', redelivered: 2 })
})

t.test('a filter takes what it says: by code, taskNo, reason, text of the last reason and age', async t => {
  const { sql, taskNos } = await stage(t, 12)
  const count = async (filter: Selection['filter'], messageCodes: string[] | null = null) =>
    (await countFailed(sql, { filter, messageCodes })).matched
  t.equal(await count({}), taskNos.length)
  t.equal(await count({ taskNoPrefix: 'bad-1' }), 3, 'bad-1, bad-10 and bad-11')
  t.equal(await count({ messageCode: 'order.paid', downstream: 'warehouse' }), 12)
  t.equal(await count({ downstream: 'points' }), 0)
  t.equal(await count({ reason: 'SEND_EXHAUSTED', lastReason: 'HTTP_5' }), 12, 'in any case')
  t.equal(await count({ lastReason: 'http%503' }), 0, 'no pattern')
  t.equal(await count({ reason: 'EXPIRED' }), 0)
  t.equal(await count({ from: new Date(Date.now() + 60_000).toISOString() }), 0)
  t.equal(await count({ createdBy: 'nobody' }), 0)
  t.equal(await count({}, ['stock.moved']), 0, 'a key takes its own codes only')
  t.equal(await count({}, ['order.paid']), 12)
})

t.test('a group, or what is new, is counted behind 10,000 older FAILED deliveries', async t => {
  const { sql } = await stage(t, 3)
  await sql`
    insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_by, created_at)
    select ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'old-' || n, 'order.paid', '', '{}', 'hash', 'test',
      now() - interval '2 days'
    from generate_series(1, 10001) n`
  await sql`
    insert into delivery (task_id, downstream, status, attempt, tries_left, needs_receipt, reason)
    select id, 'warehouse', 2, 1, 0, false, 'REFUSED' from task where task_no like 'old-%'`
  const count = (filter: Selection['filter']) => countFailed(sql, { filter, messageCodes: null })
  const [row] = await sql<[{ fingerprint: string }]>`select distinct fingerprint from failure`
  const { fingerprint } = row
  const three = { matched: 3, partial: false }
  t.same(await count({ fingerprint }), three)
  t.same(await count({ fingerprint, downstream: 'warehouse' }), three)
  t.same(await count({ fingerprint, downstream: 'points' }), { matched: 0, partial: false })
  t.same(await count({ from: new Date(Date.now() - 86_400_000).toISOString() }), three)
  t.same(await count({ to: new Date(Date.now() - 86_400_000).toISOString() }), {
    matched: 10_000,
    partial: true
  })
  t.same(await count({ reason: 'SEND_EXHAUSTED' }), { matched: 0, partial: true }, 'too many to look at all')
  await sql`
    insert into failure (task_id, downstream, attempt, message_code, fingerprint, reason, created_at)
    select id, 'warehouse', 1, 'order.paid', ${fingerprint}, 'REFUSED', now() from task where task_no like 'old-%'`
  t.same(await count({ fingerprint }), { matched: 10_000, partial: true }, 'a group with too many failures')
})

t.test('one that is stopped takes nothing more; what it took stays', async t => {
  const { sql, begin, runner, state, dispatch } = await stage(t, 25)
  const id = await begin()
  const one = runner('here')
  await one.look()
  t.equal(
    await stopOperation(sql, { id, who: { name: 'ops-2' }, messageCodes: ['order.paid'] }),
    false,
    'it was asked for all codes'
  )
  t.equal(await stopOperation(sql, { id, who: { name: 'ops-2' }, messageCodes: null }), true)
  t.equal(await stopOperation(sql, { id, who: { name: 'ops-2' }, messageCodes: null }), false)
  await dispatch()
  await one.look()
  t.match(await state(id), { state: 'STOPPED', redelivered: 10, endedBy: 'ops-2' })
  t.equal((await sql`select from delivery where status = 2`).length, 15)
})

t.test(
  'a process that dies between its list and its moves is followed by one that does them, each once',
  async t => {
    const { sql, begin, runner, state, dispatch, downstream } = await stage(t, 8)
    const id = await begin()
    const dying = runner('dying', {
      complete: Object.assign(() => Promise.reject(dead), { idle: async () => {} })
    })
    await t.rejects(dying.look())
    t.match(await state(id), { redelivered: 0 })
    const other = runner('other')
    t.equal(await other.look(), 1_000, 'while the first may live, nobody else does anything')
    await sql`update operation set leased_until = now()`
    for (let rounds = 0; (await state(id))?.state === 'RUNNING' && rounds < 10; rounds++) {
      await other.look()
      await dispatch()
    }
    t.match(await state(id), { state: 'DONE', redelivered: 8, skipped: 0 })
    t.equal(downstream.requests.length, 16, 'each once more')
    t.same(await sql`select from operation_delivery where result is null`, [])
  }
)

t.test(
  'what a process had taken when it died, of an operation that was stopped, gets its result',
  async t => {
    const { sql, begin, runner, state, record } = await stage(t, 8)
    const id = await begin()
    let moved = 0
    const dying = runner('dying', {
      complete: Object.assign(
        async (completion: Parameters<typeof record>[0]) => {
          if (++moved <= 5) await record(completion)
          throw dead
        },
        { idle: async () => {} }
      )
    })
    await t.rejects(dying.look())
    t.ok(await stopOperation(sql, { id, who: { name: 'ops-2' }, messageCodes: null }))
    await record.idle()
    await sql`update operation set leased_until = leased_until - interval '30 s'`
    await runner('too early').look()
    t.match(await state(id), { redelivered: 0, skipped: 0 }, 'it may be slow')
    await sql`update operation set leased_until = leased_until - interval '1 minute'`
    await Promise.all(['one', 'two', 'three'].map(node => runner(node).look()))
    t.match(await state(id), { state: 'STOPPED', redelivered: 5, skipped: 3, endedBy: 'ops-2' })
    t.same(await sql`select from operation_delivery where result is null`, [])
    t.equal((await sql`select from delivery where status = 2`).length, 3, 'and nothing more is redelivered')
    await runner('later').look()
    t.match(await state(id), { redelivered: 5, skipped: 3 }, 'once')
  }
)

t.test('what has a limit a second is redelivered at a fifth of it', async t => {
  const { begin, runner, sql } = await stage(t, 20)
  await begin()
  // A fifth of 5 a second: one a second. The first starts at once.
  const one = runner('here', { limits: () => ({ concurrency: 50, perSecond: 5 }) })
  const began = performance.now()
  while (performance.now() - began < 1_500) {
    await one.look()
    await new Promise(resolve => setTimeout(resolve, 25))
  }
  const seconds = (performance.now() - began) / 1000
  const [row] = await sql<{ n: number }[]>`select count(*)::int as n from operation_delivery`
  t.ok((row?.n ?? 99) <= 1 + Math.ceil(seconds), `${row?.n} in ${seconds.toFixed(1)} s`)
  t.ok((row?.n ?? 0) >= 1)
})

t.test('a paused downstream is left alone, and what needs force is skipped', async t => {
  const { begin, runner, state, sql } = await stage(t, 4)
  const id = await begin()
  let paused = true
  const one = runner('here', { isPaused: () => paused })
  await one.look()
  t.match(await state(id), { state: 'RUNNING', redelivered: 0 })
  await sql`update delivery set deliver_before = now() - interval '1 s' where task_id = (select id from task order by id limit 1)`
  paused = false
  await one.look()
  t.match(await state(id), { state: 'DONE', redelivered: 3, skipped: 1 })
})

t.test('what needs force is skipped also by the one that follows a process that died', async t => {
  const { sql, begin, runner, state, dispatch, downstream } = await stage(t, 3)
  const id = await begin()
  await sql`
    update delivery set deliver_before = now() - interval '1 s', updated_at = updated_at - interval '1 s'
    where task_id = (select id from task order by id limit 1)`
  const dying = runner('dying', {
    complete: Object.assign(() => Promise.reject(dead), { idle: async () => {} })
  })
  await t.rejects(dying.look())
  t.equal((await sql`select from operation_delivery`).length, 3, 'it had written down all of them')
  await sql`update operation set leased_until = now()`
  const other = runner('other')
  for (let rounds = 0; (await state(id))?.state === 'RUNNING' && rounds < 10; rounds++) {
    await other.look()
    await dispatch()
  }
  t.match(await state(id), { state: 'DONE', redelivered: 2, skipped: 1 })
  t.equal(downstream.requests.length, 3 + 2)
})

t.test('what needs force is skipped also if it was never tried in its round', async t => {
  const { sql, begin, runner, state } = await stage(t, 6)
  const first = (n: number) => sql`select id from task where task_no = ${`bad-${n}`}`
  await sql`update delivery set attempt = 0, deliver_before = now() - interval '1 s' where task_id = (${first(0)})`
  await sql`
    update delivery set round_from = 2, round = 2, deliver_before = now() - interval '1 s', reason = 'EXPIRED'
    where task_id = (${first(1)})`
  await sql`update delivery set attempt = 0, reason = 'DEPENDENCY_DELETED' where task_id = (${first(2)})`
  const id = await begin()
  await runner('here').look()
  t.match(await state(id), { state: 'DONE', redelivered: 3, skipped: 3 })
  t.equal((await sql`select from delivery where status = 2`).length, 3)
})

t.test('what an operator ended first is skipped, though it was never tried', async t => {
  const { sql, begin, runner, state, record } = await stage(t, 4)
  await sql`update delivery set attempt = 0`
  const id = await begin()
  let ended = 0
  const slow = runner('slow', {
    complete: Object.assign(
      async (completion: Parameters<typeof record>[0]) => {
        const { taskId, downstream, attempt } = completion.move!
        if (++ended <= 2)
          await record({ move: { taskId, downstream, attempt, name: 'settle', handledBy: 'operator' } })
        return await record(completion)
      },
      { idle: async () => {} }
    )
  })
  await slow.look()
  t.match(await state(id), { state: 'DONE', redelivered: 2, skipped: 2 })
})

t.test('what a stopped operation had taken and not moved is skipped, though it was never tried', async t => {
  const { sql, begin, runner, state } = await stage(t, 3)
  await sql`update delivery set attempt = 0`
  const id = await begin()
  const dying = runner('dying', {
    complete: Object.assign(() => Promise.reject(dead), { idle: async () => {} })
  })
  await t.rejects(dying.look())
  t.ok(await stopOperation(sql, { id, who: { name: 'ops-2' }, messageCodes: null }))
  await sql`update operation set leased_until = leased_until - interval '2 minutes'`
  await runner('other').look()
  t.match(await state(id), { state: 'STOPPED', redelivered: 0, skipped: 3 })
})

t.test('one whose key was released since the operation began is still part of it', async t => {
  const story = await stage(t, 0)
  const { sql, begin, runner, dispatch, state, post, quiet, release, downstream } = story
  downstream.usual = failed
  for (const orderingKey of ['key-0', 'key-1', 'key-2']) await post({ retryTimes: 1, orderingKey })
  await quiet()
  downstream.usual = { kind: 'delivered' }
  const id = await begin()
  await release('key-0')
  await quiet()
  t.equal((await sql`select from delivery where position < 0`).length, 1, 'it is out of order')
  const one = runner('here')
  for (let rounds = 0; (await state(id))?.state === 'RUNNING' && rounds < 10; rounds++) {
    await one.look()
    await dispatch()
  }
  t.match(await state(id), { state: 'DONE', redelivered: 3, skipped: 0 })
  t.equal((await sql`select from delivery where status = 1`).length, 3)
})
