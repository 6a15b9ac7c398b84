// PostgreSQL answers but cannot write: it is a replica, it is read only, or its disk is full.
import t from 'tap'
import type { Applied } from '../../src/db/transitions.ts'
import type { Sql } from '../../src/db/pool.ts'
import { Unavailable } from '../../src/runtime/errors.ts'
import { receiptTaker } from '../../src/delivery/receive.ts'
import { tokens } from '../../src/domain/tokens.ts'
import { testDb } from '../support/postgres.ts'
import { setup, type SetupOptions } from '../support/setup.ts'
import { until } from '../support/until.ts'

const owing: SetupOptions = { downstream: { needCallback: true } }

t.test('a database that can only be read is away, until it can be written again', async t => {
  const { sql } = await testDb(t, { max: 1 })
  const { post, receive, quiet, delivery, around } = await setup(t, { ...owing, sql })
  const taskNo = await post()
  await quiet()
  await sql`set default_transaction_read_only = on`
  await around.refresh()
  t.ok(around.isDatabaseAway())
  t.notOk(around.isDatabaseUnreachable(), 'lists are still answered')
  await t.rejects(receive({ taskNo }), Unavailable)
  around.setDatabaseUnreachable()
  t.ok(around.isDatabaseUnreachable())
  await sql`set default_transaction_read_only = off`
  await around.refresh()
  t.notOk(around.isDatabaseUnreachable())
  t.match(await receive({ taskNo }), { status: 'HANDLED' })
  t.equal((await delivery(taskNo)).receipts?.length, 1, 'what was refused was not kept')
})

/** PostgreSQL can read, but has no room for a receipt. Returns a function that makes room. */
async function fullFor(sql: Sql): Promise<() => Promise<unknown>> {
  await sql`
    create function no_room() returns trigger language plpgsql as
      $$begin raise exception 'could not extend file' using errcode = 'disk_full'; end$$`
  await sql`create trigger no_room before insert on receipt execute function no_room()`
  return () => sql`drop trigger no_room on receipt`
}

t.test(
  'receipts that cannot be written wait up to a bound of characters: above it they are refused, not kept',
  async t => {
    const { sql, post, receive, quiet, delivery, around, record } = await setup(t, {
      ...owing,
      mostText: 1_000
    })
    const tasks = [await post(), await post(), await post()]
    await quiet()
    const free = await fullFor(sql)
    const data = JSON.stringify('x'.repeat(600))
    const [first = '', second = '', third = ''] = tasks
    const waiting = [receive({ taskNo: first, data }), receive({ taskNo: second, data })]
    await t.rejects(receive({ taskNo: third, data }), Unavailable)
    t.notOk(around.isDatabaseAway(), 'at once: nobody had to wait until PostgreSQL took too long')
    await free()
    await record.idle()
    t.match(await Promise.all(waiting), [{ status: 'HANDLED' }, { status: 'HANDLED' }])
    t.same((await delivery(third)).receipts, [])
    t.match(
      await receive({ taskNo: third, data }),
      { status: 'HANDLED' },
      'when they are written there is room again'
    )
  }
)

t.test('and up to a bound of number', async t => {
  const story = await setup(t, owing)
  const taskNo = await story.post()
  await story.quiet()
  const token = story.downstream.requests.at(-1)?.token
  const written: ((applied: Applied) => void)[] = []
  const record = () => new Promise<Applied>(resolve => written.push(resolve))
  const receive = receiptTaker({
    handlersElsewhere: async () => new Set(),
    ...story,
    tokens: tokens({ current: 'a test secret' }),
    complete: Object.assign(record, { idle: () => Promise.resolve() }),
    cluster: story.around,
    random: () => 0.5,
    metrics: { received() {} },
    log: { debug() {}, info() {}, warn() {}, error() {} },
    mostWaiting: 20
  })
  const once = () =>
    receive({ taskNo, messageCode: 'order.paid', result: 'HANDLED', token, remote: '127.0.0.1' })
  const waiting = Array.from({ length: 21 }, once)
  await until('all are handed over', () => written.length === 21)
  await t.rejects(once(), Unavailable)
  t.equal(written.length, 21, 'what was refused was not handed over')
  for (const done of written) done('moved')
  t.equal((await Promise.all(waiting)).length, 21)
  const next = once()
  await until('the next is handed over', () => written.length === 22)
  written.at(-1)?.('moved')
  t.match(await next, { kind: 'ok' }, 'when they are written there is room again')
})
