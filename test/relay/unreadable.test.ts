// Rows of a producer's database that cannot be read: the rows beside them are relayed, and the producer sees them.
import { once as event } from 'node:events'
import { connect, createServer, type AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { openDb } from '../../src/db/pool.ts'
import { mysqlSource } from '../../src/relay/mysql.ts'
import { postgresSource } from '../../src/relay/postgres.ts'
import { relayOnce } from '../../src/relay/relay.ts'
import type { RelayRow, RowVerdict, Source } from '../../src/relay/source.ts'
import { ddl } from '../../src/producer/ddl.ts'
import { testMariadb } from '../support/mariadb.ts'
import { answer, fakeAckbox } from '../producer/fake-ackbox.ts'
import { only } from '../support/only.ts'
import { producer } from './producer.ts'

const nothing = (): void => {}

async function shop(t: Test, triedMs?: number) {
  const from = await producer(t, 'postgres')
  if (!from) throw new Error('no PostgreSQL')
  const source = postgresSource(from.url, 2, undefined, undefined, triedMs)
  t.teardown(() => source.close())
  const { fake, posted } = await taking(t)
  return { ...from, posted, relayOnce: () => once(source, fake.url) }
}

/** An Ackbox that takes every task. */
async function taking(t: Test) {
  const fake = await fakeAckbox(t)
  const posted: string[] = []
  fake.script = ({ text }, response) => {
    const { tasks } = JSON.parse(text) as { tasks: { taskNo: string }[] }
    posted.push(...tasks.map(one => one.taskNo))
    return answer(response, 200, { results: tasks.map(({ taskNo }) => ({ taskNo, status: 201 })) })
  }
  return { fake, posted }
}

async function once(source: Source, url: string) {
  const target = { url, key: undefined, timeoutMs: 30_000 }
  const log = { debug: nothing, info: nothing, error: nothing, warn: nothing }
  const deps = { source, target, log, batch: 100, concurrency: 1, onBatch: nothing, onHealth: nothing }
  return await relayOnce(deps, new AbortController().signal)
}

/** Numbers of eight stored bytes each, with 131,001 digits as text. */
const huge = (count: number) => `('[' || repeat('1e131000,', ${count - 1}) || '1]')::jsonb`
const columns = 'task_no, message_code, message_body, ordering_key'

t.test('a row whose extend has gigabytes of text is rejected, and its neighbours are posted', async t => {
  const { run, posted, relayOnce, rejected } = await shop(t)
  await run(`
    insert into ackbox_outbox (${columns}, extend, "after") values ('before', 'a', '1', null, null, null),
      ('huge', 'a', '1', null, ${huge(9_000)}, null),
      ('huge after', 'a', '1', null, null, ${huge(5_000)}),
      ('after', 'a', '1', null, '{"a": 1}', '["before"]')`)
  t.match(await relayOnce(), { removed: 4 })
  t.same(posted, ['before', 'after'])
  t.match(
    await rejected(),
    only(
      { task_no: 'huge', problem: /"more than 65536 bytes".*"\/extend"/ },
      { task_no: 'huge after', problem: /"\/after"/ }
    )
  )
})

t.test(
  'a row that PostgreSQL cannot read is rejected, and its neighbours are posted in their order',
  async t => {
    const { run, posted, relayOnce, rejected, waiting } = await shop(t)
    for (const key of ['null', "'a key'"]) {
      await run(`
      insert into ackbox_outbox (${columns}, created_at, delay_ms)
      select 'task ' || n, 'a', '1', ${key}, case when n = 5 then '294276-12-31Z' else now() end, case when n = 5 then 3000000000000 end
      from generate_series(1, 9) n`)
      t.match(await relayOnce(), { removed: 9 })
      t.same(
        posted.splice(0),
        [1, 2, 3, 4, 6, 7, 8, 9].map(n => `task ${n}`)
      )
    }
    t.match(
      await rejected(),
      only(
        { task_no: 'task 5', problem: /The row cannot be read: timestamp out of range/ },
        { task_no: 'task 5', problem: /timestamp out of range/ }
      )
    )
    t.equal(await waiting(), 0)
  }
)

t.test(
  'a row whose read takes too long is tried again, and then rejected; no later row of its key overtakes it',
  async t => {
    const { url, run, posted, relayOnce, rejected } = await shop(t, 0)
    const sql = openDb(url, { max: 1 })
    t.teardown(() => sql.end())
    for (const task of ['before', 'slow', 'behind it'])
      await run(`insert into ackbox_outbox (${columns}) values ('${task}', 'a', '1', 'a key')`)
    // Twice the first round reads, since a row left; the next one does once. The tenth read is that of the row alone, for the third time.
    await sql.unsafe(`
    create sequence reads;
    create function slow(no text) returns text stable language plpgsql as
      $$begin
        if nextval('reads') <= 10 then raise exception 'took too long' using errcode = '57014'; end if;
        return '';
      end$$;
    create view slow_rows as select id, task_no, message_code, message_body, case when task_no = 'slow' then slow(task_no) end as scene_type,
      deliver_start_time, delay_ms, deliver_before, ordering_key, need_callback, retry_times, biz_type, biz_key, unique_biz, "after",
      extend, traceparent, created_at, shard from ackbox_outbox;
    alter table ackbox_outbox rename to sound;
    alter view slow_rows rename to ackbox_outbox`)
    t.match(await relayOnce(), { removed: 1, kept: 1 })
    t.same(posted, ['before'])
    t.same(await rejected(), [])
    t.match(await relayOnce(), { removed: 2 })
    t.same(posted, ['before', 'behind it'])
    t.match(await rejected(), only({ task_no: 'slow', problem: /took too long/ }))
  }
)

t.test('no row is rejected for a moment in which the database cannot read any', async t => {
  const { url, run, posted, relayOnce, rejected } = await shop(t)
  const sql = openDb(url, { max: 1 })
  t.teardown(() => sql.end())
  for (const key of ['null', "'a key'"])
    await run(
      `insert into ackbox_outbox (${columns}) select 'task ' || n, 'a', '1', ${key} from generate_series(1, 3) n`
    )
  await sql.unsafe(`
    create table load (code text);
    insert into load values ('53200');
    create function loaded() returns text stable language plpgsql as
      $$declare found text := (select code from load);
      begin
        if found is not null then raise exception 'the server is busy' using errcode = found; end if;
        return '';
      end$$;
    create view loaded_rows as select id, task_no, message_code, message_body, loaded() as scene_type,
      deliver_start_time, delay_ms, deliver_before, ordering_key, need_callback, retry_times, biz_type, biz_key, unique_biz, "after",
      extend, traceparent, created_at, shard from ackbox_outbox;
    alter table ackbox_outbox rename to sound;
    alter view loaded_rows rename to ackbox_outbox`)
  for (const code of ['53200', '57014', '55P03', 'XX000']) {
    await sql`update load set code = ${code}`
    // With 55P03 another relay has the rows.
    for (let n = 0; n < 3; n++) await relayOnce()
    t.same(await rejected(), [], code)
  }
  await sql`delete from load`
  t.match(await relayOnce(), { removed: 6 })
  t.equal(posted.length, 6)
})

t.test('a row that MariaDB cannot read is set aside, and its neighbours are read in their order', async t => {
  const mariadb = await testMariadb(t)
  if (!mariadb) return
  const { pool, url } = mariadb
  await pool.query(ddl.mysql)
  const source = await mysqlSource(await refusingReads(t, url, 'task_no as taskNo', ['5', '14']), 2)
  t.teardown(() => source.close())
  for (const key of ['null', "'a key'"]) {
    const rows = Array.from({ length: 9 }, (_, n) => `('task ${n + 1}', 'a', '1', ${key})`)
    await pool.query(`insert into ackbox_outbox (${columns}) values ${rows.join()}`)
    const share = key === 'null' ? 'unkeyed' : ((await source.shards())[0] ?? 0)
    const read: RelayRow[] = []
    const done = await source.postShare(share, 100, async found => {
      read.push(...found)
      return found.map(({ problem }): RowVerdict =>
        problem === undefined ? { kind: 'accepted', isNew: true } : { kind: 'kept', problem }
      )
    })
    t.same(done, { seen: 9, removed: 8 })
    t.same(
      read.map(row => row.taskNo),
      [1, 2, 3, 4, 0, 6, 7, 8, 9].map(n => (n === 0 ? '' : `task ${n}`))
    )
    t.match(read[4], { problem: /The row cannot be read: BIGINT value is out of range/ })
    t.notOk(read[4]?.stays, 'it is to be rejected')
    await pool.query('delete from ackbox_outbox')
  }
})

/** A proxy before MariaDB that answers each statement with this text and one of these ids by the error of a value. */
async function refusingReads(t: Test, url: string, text: string, ids: string[]): Promise<string> {
  const body = Buffer.concat([
    Buffer.from([0xff, 1690 & 0xff, 1690 >> 8]),
    Buffer.from('#22003BIGINT value is out of range')
  ])
  const refusal = Buffer.concat([Buffer.from([body.length, 0, 0, 1]), body])
  const server = createServer(client => {
    const mariadb = connect(Number(new URL(url).port), '127.0.0.1')
    client.on('error', () => {}).on('close', () => mariadb.destroy())
    mariadb.on('error', () => {}).on('close', () => client.destroy())
    mariadb.pipe(client)
    client.on('data', chunk => {
      const statement = chunk.toString('latin1')
      const [, list = ''] = /where id in \(([^)]*)\)/.exec(statement) ?? []
      const isBroken =
        statement.includes(text) && list.split(',').some(id => ids.includes(id.replace(/[' ]/g, '')))
      if (isBroken) client.write(refusal)
      else mariadb.write(chunk)
    })
  })
  server.listen(0, '127.0.0.1')
  await event(server, 'listening')
  t.teardown(() => server.close())
  const at = new URL(url)
  at.port = String((server.address() as AddressInfo).port)
  return at.href
}
