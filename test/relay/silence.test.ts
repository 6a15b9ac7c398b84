// Takes long: npm run test:long.
import t from 'tap'
import { isInfrastructure } from '../../src/db/pool.ts'
import { mysqlSource } from '../../src/relay/mysql.ts'
import { postgresSource } from '../../src/relay/postgres.ts'
import { withTable } from '../../src/relay/table.ts'
import { blackHole } from '../support/blackhole.ts'
import { until } from '../support/until.ts'
import { insert, kinds, producer } from './producer.ts'

t.setTimeout(2_400_000)

for (const kind of kinds) {
  t.test(`${kind}: a database that vanished is given up, and read again when it is back`, async t => {
    const from = await producer(t, kind)
    if (!from) return
    await from.run(insert([['kept', 'test.plain', '{}']]))
    const far = new URL(from.url)
    const hole = await blackHole(t, { host: far.hostname, port: Number(far.port) })
    far.port = String(hole.port)
    const source = await (kind === 'postgres' ? postgresSource : mysqlSource)(far.href, 2, 3_000)
    t.teardown(() => source.close())
    const lost = source.postShare('unkeyed', 10, async rows => {
      t.equal(rows.length, 1)
      hole.swallow()
      return [{ kind: 'accepted', isNew: true }]
    })
    t.ok(isInfrastructure(await lost.catch((err: unknown) => err)))
    await t.rejects(source.shards(), 'a new connection is given up too')
    hole.heal()
    // Ackbox may take its time: only the database's silence counts.
    const slow = new Promise(resolve => setTimeout(resolve, 4_000))
    const done = await source.postShare('unkeyed', 10, async () => {
      await slow
      return [{ kind: 'accepted', isNew: true }]
    })
    t.same(done, { seen: 1, removed: 1 })
    t.equal(await from.waiting(), 0)
  })

  t.test(`${kind}: a relay that is frozen in a turn loses its rows to others`, async t => {
    const from = await producer(t, kind)
    if (!from) return
    await from.run(insert([['one', 'test.plain', '{}']]))
    const source = await (kind === 'postgres' ? postgresSource : mysqlSource)(from.url, 2, 35_000, 1_000)
    t.teardown(() => source.close())
    let free = Promise.resolve()
    await t.rejects(
      source.postShare('unkeyed', 10, async () => {
        free = until('the row is free', async () =>
          from.run('select id from ackbox_outbox for update nowait').then(
            () => true,
            () => false
          )
        )
        await free
        return [{ kind: 'accepted', isNew: true }]
      })
    )
    await free
    t.equal(await from.waiting(), 1)
  })

  t.test(`${kind}: very many rejected rows may take longer to come back than any other answer`, async t => {
    const from = await producer(t, kind)
    if (!from) return
    await from.run(insert([['back', 'test.plain', '{}']]))
    const source = await (kind === 'postgres' ? postgresSource : mysqlSource)(from.url, 2, 2_000)
    t.teardown(() => source.close())
    await source.postShare('unkeyed', 10, async () => [{ kind: 'rejected', problem: '{}' }])
    let moving = Promise.resolve(0)
    await from.open('delete from ackbox_outbox_rejected', async () => {
      moving = source.retryRejected()
      await new Promise(resolve => setTimeout(resolve, 3_000)) // longer than the silence
    })
    t.equal(await moving, 1)
  })
}

t.test('postgres: a turn and an import may be longer than the transactions of others', async t => {
  const from = await producer(t, 'postgres')
  if (!from) return
  await from.run(insert([['one', 'test.plain', '{}']]))
  const name = new URL(from.url).pathname.slice(1)
  await from.run(`alter database "${name}" set idle_in_transaction_session_timeout = '200ms'`)
  // PostgreSQL 17 or newer has it.
  await from.run(`do $$ begin
    if exists (select from pg_settings where name = 'transaction_timeout') then
      alter database "${name}" set transaction_timeout = '200ms';
    end if;
  end $$`)
  // Longer than the database's limits. A busy machine only makes it longer.
  const long = (): Promise<void> => new Promise(resolve => setTimeout(resolve, 600))
  const columns = { taskNo: 'task_no', messageCode: 'message_code', messageBody: 'message_body' }
  const query = { table: 'ackbox_outbox', columns, where: undefined, order: undefined, batch: 1 }
  await withTable(
    from.url,
    query,
    async ({ count, batches }) => {
      t.equal(count, 1)
      await long()
      for await (const rows of batches) t.match(rows, [{ taskNo: 'one' }])
    },
    new AbortController().signal
  )
  const source = postgresSource(from.url, 2)
  t.teardown(() => source.close())
  const done = await source.postShare('unkeyed', 10, async () => {
    await long()
    return [{ kind: 'accepted', isNew: true }]
  })
  t.same(done, { seen: 1, removed: 1 })
})
