// A role, a database or a server may have settings of its own. None of them changes what a statement of Ackbox means.
import type pg from 'pg'
import postgres from 'postgres'
import t from 'tap'
import { openBeats } from '../../src/db/owners.ts'
import { checkServer, connect, openDb, type PostgresClient } from '../../src/db/pool.ts'
import { openReads } from '../../src/db/reads.ts'
import { sql as text } from '../../src/db/drizzle.ts'
import { openPostgres } from '../../src/queue/postgres.ts'
import { postgresSource, setLocal } from '../../src/relay/postgres.ts'
import { sessionSettings } from '../../src/runtime/session-settings.ts'
import { ddl } from '../../src/producer/ddl.ts'
import { recordingLog } from '../queue/setup.ts'
import { emptyDb, testDb } from '../support/postgres.ts'
import { strangeSettings, withStrangeSettings } from '../support/strange-settings.ts'

/** As PostgreSQL shows them in a session that has them from its database. */
const strange = `select string_agg(name, ', ') as names from pg_settings
  where source = 'database' and name = any('{${Object.keys(strangeSettings).join()}}'::text[])`

t.test('no setting of a database reaches a session of ours', async t => {
  const { url } = await testDb(t)
  await withStrangeSettings(url)
  const plain = postgres(url, { max: 1 })
  t.teardown(() => plain.end())
  const [told] = await plain.unsafe(strange)
  t.equal(told?.['names'].split(', ').length, Object.keys(strangeSettings).length, 'the database has them')

  const clients: Record<string, PostgresClient> = {
    pool: openDb(url, { max: 1 }) as never,
    beats: openBeats(url),
    any: connect(url, { max: 1 })
  }
  for (const [name, client] of Object.entries(clients)) {
    t.same([...(await client.unsafe(strange))], [{ names: null }], name)
    await client.end()
  }
  const reads = openReads(url)
  t.same([...(await reads.db.execute(text.raw(strange)))], [{ names: null }], 'reads')
  await reads.end()
  const queue = await openPostgres({ url: () => url, onMove: () => () => {} }, 1, recordingLog().log)
  const { rows } = await (queue.forBullmq as unknown as pg.Pool).query(strange)
  t.same(rows, [{ names: null }], 'the queue')
  await queue.close()
})

t.test(
  'an import sets them in its transaction, since a pooler refuses them at the start of a session',
  async t => {
    const url = await emptyDb(t)
    await withStrangeSettings(url)
    const plain = postgres(url, { max: 1 })
    t.teardown(() => plain.end())
    await plain.begin(async tx => {
      await setLocal(tx, sessionSettings)
      const names = Object.keys(sessionSettings)
      const left = await tx`
      select name from pg_settings where name = any(${names}::text[]) and source = 'database'`
      t.same([...left], [])
    })
  }
)

t.test('a relay reads times and texts as they are, whatever the settings of the producer', async t => {
  const url = await emptyDb(t)
  await withStrangeSettings(url)
  const plain = postgres(url, { max: 1, onnotice: () => {} })
  t.teardown(() => plain.end())
  await plain.unsafe(ddl.postgres)
  await plain`
    insert into ackbox_outbox (task_no, message_code, message_body, deliver_start_time)
    values ('a', 'order.paid', '1', '2026-03-04 05:06:07.089+00')`
  const source = postgresSource(url, 1)
  t.teardown(() => source.close())
  await source.check()
  const read: unknown[] = []
  await source.postShare('unkeyed', 10, rows => {
    read.push(...rows)
    return Promise.resolve(rows.map(() => ({ kind: 'accepted', isNew: true })))
  })
  t.match(read, [{ taskNo: 'a', deliverStartTime: '2026-03-04T05:06:07.089000Z', bizType: null }])
})

t.test('a session that does not get its settings is refused, with their names', async t => {
  const { url } = await testDb(t)
  const sql = openDb(url, { max: 1 })
  t.teardown(() => sql.end())
  await checkServer(sql)
  await sql`set array_nulls = off`
  await sql`set DateStyle = 'German'`
  await t.rejects(
    checkServer(sql),
    /^Settings of our sessions do not reach PostgreSQL: DateStyle, array_nulls\. Point/
  )
})

t.test('a user for whom triggers do not run is refused', async t => {
  const { url } = await testDb(t)
  const sql = openDb(url, { max: 1 })
  t.teardown(() => sql.end())
  await sql`set session_replication_role = replica`
  await t.rejects(checkServer(sql), /session_replication_role is replica .* reset session_replication_role/)
})

t.test('a producer with strange settings enqueues the same', async t => {
  const { url, sql } = await testDb(t)
  await withStrangeSettings(url)
  const producer = postgres(url, { max: 1, onnotice: () => {} })
  t.teardown(() => producer.end())
  await producer`select ackbox_api.enqueue('order.paid', '{"a": "b"}'::jsonb, 'a', delay => '90 minutes')`
  const many = JSON.stringify([
    { taskNo: 'b', messageCode: 'order.paid', messageBody: { n: 1e-7 }, delay: '1m' }
  ])
  await producer`select ackbox_api.enqueue_many(${many}::text::jsonb)`
  const rows = await sql`
    select task_no, message_body, extract(epoch from delay)::int as delay, biz_type, members from outbox order by id`
  t.same(
    [...rows],
    [
      { task_no: 'a', message_body: '{"a": "b"}', delay: 5400, biz_type: null, members: null },
      {
        task_no: 'b',
        message_body: '{"n": 0.0000001}',
        delay: null,
        biz_type: null,
        members: { delay: '1m' }
      }
    ]
  )
})

t.test('a start takes settings of DATABASE_URL in any unit', async t => {
  const { url } = await testDb(t)
  const withSettings = new URL(url)
  withSettings.searchParams.set('work_mem', '64MB')
  withSettings.searchParams.set('statement_timeout', '30s')
  const sql = openDb(withSettings.href, { max: 1 })
  t.teardown(() => sql.end())
  await t.resolves(checkServer(sql))
  t.same([...(await sql`show work_mem`)], [{ work_mem: '64MB' }])
})
