import t from 'tap'
import { countDownstreams, listAlarms, listDeliveries, listTasks, readTask } from '../../src/db/lists.ts'
import type { ListFilter } from '../../src/db/page.ts'
import { isInfrastructure } from '../../src/db/pool.ts'
import { openReads } from '../../src/db/reads.ts'
import { type State, states } from '../../src/domain/transitions.ts'
import { uuidv7 } from '../../src/domain/ids.ts'
import { only } from '../support/only.ts'
import { lockWaits, testDb } from '../support/postgres.ts'
import { standing } from '../support/rows.ts'
import { until } from '../support/until.ts'
import type { DeliveryState } from '../support/model.ts'

const at = (state: State): DeliveryState => ({ state, attempt: 1, triesLeft: 3, lost: 0, roundFrom: 1 })
const page = (more: Partial<ListFilter> = {}): ListFilter => ({
  messageCodes: null,
  from: new Date(Date.now() - 24 * 3_600_000),
  limit: 7,
  ...more
})
// The shape of a cursor that the API accepts.
const cursorShape = /^[\w.~:-]{1,300}$/

t.test('new tasks do not shift a list that somebody pages through', async t => {
  const { sql, reads } = await testDb(t)
  const ids: string[] = []
  const add = async () => ids.push(await standing(sql, at('HANDLED')))
  for (let n = 0; n < 40; n++) await add()
  const before = [...ids]
  const seen: string[] = []
  let cursor: string | undefined
  do {
    const found = await listTasks(reads, page(cursor === undefined ? {} : { cursor }))
    if (found === 'bad_cursor') throw new Error(cursor)
    seen.push(...found.tasks.map(task => task.taskNo.slice(3)))
    cursor = found.nextCursor
    if (cursor !== undefined) t.match(cursor, cursorShape)
    for (let n = 0; n < 3; n++) await add()
  } while (cursor !== undefined)
  t.same(seen, before.toReversed())
})

t.test('deliveries are paged through without a gap, also between two of one task', async t => {
  const { sql, reads } = await testDb(t)
  const expected: string[] = []
  for (let n = 0; n < 9; n++) {
    const taskId = uuidv7()
    for (const downstream of ['audit', 'points', 'ware-house']) {
      await standing(sql, at('FAILED'), { taskId, downstream })
      expected.push(`${taskId} ${downstream}`)
    }
  }
  const seen: string[] = []
  let cursor: string | undefined
  do {
    const found = await listDeliveries(reads, page({ limit: 4, ...(cursor === undefined ? {} : { cursor }) }))
    if (found === 'bad_cursor') throw new Error(cursor)
    seen.push(...found.deliveries.map(one => `${one.taskNo.slice(3)} ${one.downstream}`))
    cursor = found.nextCursor
    if (cursor !== undefined) t.match(cursor, cursorShape, 'the API must take it back')
  } while (cursor !== undefined)
  t.same(seen, expected.toReversed())
})

t.test('no alarm falls between two pages, also not one of two kinds of the same attempt', async t => {
  const { sql, reads } = await testDb(t)
  const expected: string[] = []
  for (let n = 0; n < 6; n++) {
    const id = await standing(sql, at('FAILED'))
    for (const kind of ['BLOCKED_TARGET', 'FAILED', 'TLS']) {
      await sql`insert into alarm (task_id, downstream, attempt, kind) values (${id}, 'warehouse', 1, ${kind})`
      expected.push(`${id} ${kind}`)
    }
  }
  for (const limit of [1, 2, 5]) {
    const seen: string[] = []
    let cursor: string | undefined
    do {
      const found = await listAlarms(reads, page({ limit, ...(cursor === undefined ? {} : { cursor }) }))
      if (found === 'bad_cursor') throw new Error(cursor)
      seen.push(...found.alarms.map(one => `${one.taskNo.slice(3)} ${one.kind}`))
      cursor = found.nextCursor
      if (cursor !== undefined) t.match(cursor, cursorShape, 'the API must take it back')
    } while (cursor !== undefined)
    t.same(seen, expected.toReversed(), `${limit} a page`)
  }
})

t.test('a cursor that is none of ours is said, and not given to PostgreSQL', async t => {
  const { reads } = await testDb(t)
  for (const cursor of ['', 'x', '1', 'FFFFFFFF-ffff-ffff-ffff-ffffffffffff', `${uuidv7()}x`, "';--"]) {
    t.equal(await listTasks(reads, page({ cursor })), 'bad_cursor')
    t.equal(await listDeliveries(reads, page({ cursor })), 'bad_cursor')
    t.equal(await listAlarms(reads, page({ cursor })), 'bad_cursor')
  }
  t.equal(await listAlarms(reads, page({ cursor: `${uuidv7()}:warehouse:99999999999:FAILED` })), 'bad_cursor')
})

t.test(
  'a task is SENDING while any part is, else FAILED, else HANDLED, else DELETED; lists agree',
  async t => {
    const { sql, reads } = await testDb(t)
    const cases: [State[], string][] = [
      [['WAITING', 'FAILED', 'HANDLED'], 'SENDING'],
      [['HANDLED', 'AWAITING_RECEIPT'], 'SENDING'],
      [['FAILED', 'HANDLED', 'DELETED'], 'FAILED'],
      [['HANDLED', 'DELETED'], 'HANDLED'],
      [['DELETED', 'DELETED'], 'DELETED']
    ]
    const expected = new Map<string, string>()
    for (const [parts, status] of cases) {
      const taskId = uuidv7()
      for (const [n, part] of parts.entries()) await standing(sql, at(part), { taskId, downstream: `d${n}` })
      expected.set(`no:${taskId}`, status)
      t.equal((await readTask(reads, `no:${taskId}`))?.status, status, parts.join())
    }
    for (const status of ['SENDING', 'FAILED', 'HANDLED', 'DELETED'] as const) {
      const found = await listTasks(reads, { ...page({ limit: 100 }), status })
      if (found === 'bad_cursor') throw new Error('no')
      t.same(
        found.tasks.map(task => task.taskNo).toSorted(),
        [...expected]
          .filter(one => one[1] === status)
          .map(one => one[0])
          .toSorted(),
        status
      )
    }
    t.equal(await readTask(reads, 'nobody'), null)
  }
)

for (const table of ['delivery', 'attempt', 'receipt']) {
  t.test(`a task is read at one moment, also when ${table} is locked while it moves`, async t => {
    const { sql, reads } = await testDb(t)
    const id = await standing(sql, at('AWAITING_RECEIPT'))
    let reading: ReturnType<typeof readTask> | undefined
    await sql.begin(async tx => {
      await tx`lock table ${tx(table)} in access exclusive mode`
      reading = readTask(reads, `no:${id}`)
      await until('the reader waits', async () => (await lockWaits(sql)) === 1)
      await tx`update delivery set status = 2, phase = null, next_action_at = null, reason = 'REFUSED' where task_id = ${id}`
      await tx`
        insert into attempt (task_id, downstream, attempt, outcome, ms, node, started_at)
        values (${id}, 'warehouse', 1, 'failed', 1, 'n', now())`
      await tx`
        insert into receipt (task_id, downstream, attempt, result, applied)
        values (${id}, 'warehouse', 1, 'FAILED', true)`
    })
    const [delivery] = (await reading)?.deliveries ?? []
    t.same([delivery?.status, delivery?.attempts?.length, delivery?.receipts?.length], ['FAILED', 1, 1])
  })
}

t.test('a list whose connection is cut, or never comes about, says that the database is away', async t => {
  const { sql, reads } = await testDb(t)
  const error = (reading: Promise<unknown>) => reading.catch((err: unknown) => err)
  let listing: Promise<unknown> | undefined
  await sql.begin(async tx => {
    await tx`lock table task in access exclusive mode`
    listing = error(listTasks(reads, page()))
    await until('the list waits', async () => (await lockWaits(sql)) === 1)
    await sql`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name = 'ackbox reads'`
    t.ok(isInfrastructure(await listing), 'cut')
  })
  const nobody = openReads('postgres://x:x@127.0.0.1:1/x')
  t.teardown(nobody.end)
  t.ok(isInfrastructure(await error(listDeliveries(nobody, page()))), 'refused')
  t.ok(isInfrastructure(await error(readTask(nobody, 'x'))), 'refused, prepared')
  const wrong = await error(listDeliveries(reads, page({ to: new Date(NaN) })))
  t.notOk(isInfrastructure(wrong), 'what is wrong is not')
})

t.test('lists are narrowed by all that can be asked, and by what a key may see', async t => {
  const { sql, reads } = await testDb(t)
  const one = await standing(sql, at('FAILED'), { messageCode: 'a', needsReceipt: true })
  const other = await standing(sql, at('HANDLED'), { messageCode: 'b', downstream: 'points' })
  await sql`update task set scene_type = 'vip' where id = ${other}`
  const tasks = async (more: Parameters<typeof listTasks>[1] | object) => {
    const found = await listTasks(reads, { ...page(), ...more })
    return found === 'bad_cursor' ? [] : found.tasks.map(task => task.taskNo.slice(3))
  }
  t.same(await tasks({}), [other, one])
  t.same(await tasks({ messageCodes: ['a'] }), [one])
  t.same(await tasks({ messageCodes: [] }), [])
  t.same(await tasks({ messageCode: 'b' }), [other])
  t.same(await tasks({ messageCode: 'b', messageCodes: ['a'] }), [])
  t.same(await tasks({ sceneType: 'vip' }), [other])
  t.same(await tasks({ downstream: 'points' }), [other])
  t.same(await tasks({ needCallback: true }), [one])
  t.same(await tasks({ status: 'FAILED' }), [one])
  t.same(await tasks({ to: new Date(Date.now() - 60_000) }), [])
  t.same(await tasks({ from: new Date(Date.now() + 60_000) }), [])
  const deliveries = async (more: object) => {
    const found = await listDeliveries(reads, { ...page(), ...more })
    return found === 'bad_cursor' ? [] : found.deliveries.map(delivery => delivery.taskNo.slice(3))
  }
  t.same(await deliveries({ reason: 'SEND_EXHAUSTED' }), [one])
  t.same(await deliveries({ phase: 'WAITING' }), [])
  t.same(await deliveries({ messageCodes: ['b'] }), [other])
})

t.test('the counts that ops sees equal the rows', async t => {
  const { sql, reads } = await testDb(t)
  for (const [n, state] of states.entries()) {
    for (let i = 0; i <= n; i++) await standing(sql, at(state))
    await standing(sql, at(state), { downstream: 'points' })
  }
  await sql`insert into downstream (name, paused_at, paused_by) values ('gone', now(), 'me')`
  const counts = await countDownstreams(reads, ['warehouse', 'points', 'audit'])
  t.match(
    counts,
    only(
      { name: 'audit', waiting: 0, inFlight: 0, awaitingReceipt: 0, failed: 0, pausedAt: null },
      { name: 'gone', waiting: 0, pausedAt: Date, pausedBy: 'me' },
      { name: 'points', waiting: 1, inFlight: 1, awaitingReceipt: 1, blocked: 1, failed: 1 },
      { name: 'warehouse', waiting: 1, inFlight: 2, awaitingReceipt: 3, blocked: 4, failed: 5 }
    )
  )
})
