// The effect of a relay on the rows of a producer's database, and on transactions that run there at the same time.
// Takes long: npm run test:long.
import { createConnection } from 'mysql2/promise'
import t from 'tap'
import { openDb } from '../../src/db/pool.ts'
import { mysqlSource } from '../../src/relay/mysql.ts'
import { postgresSource } from '../../src/relay/postgres.ts'
import { relay as relayAll, relayOnce } from '../../src/relay/relay.ts'
import type { RelayRow, Share, RowVerdict } from '../../src/relay/source.ts'
import { answer, fakeAckbox } from '../producer/fake-ackbox.ts'
import { only } from '../support/only.ts'
import { start } from '../support/service.ts'
import { numbered, stage } from '../support/stage.ts'
import { until } from '../support/until.ts'
import { insert, kinds, producer, relay } from './producer.ts'

t.setTimeout(2_400_000)

const nothing = (): void => {}
const refused: RowVerdict = { kind: 'rejected', problem: '{}' }

for (const kind of kinds) {
  t.test(`${kind}: shares that are under way at once do not wait for each other`, async t => {
    const from = await producer(t, kind)
    if (!from) return
    const rows = numbered('n', 20)
    await from.run(insert(rows.map((no, n) => [no, 'test.plain', '{}', n % 2 === 0 ? null : 'a key'])))
    const source = await (kind === 'postgres' ? postgresSource : mysqlSource)(from.url, 3)
    t.teardown(() => source.close())
    const shares: Share[] = ['unkeyed', ...(await source.shards())]
    let inHand = 0
    const post = async (batch: RelayRow[]): Promise<RowVerdict[]> => {
      inHand++
      await until('each share has its rows', () => inHand === shares.length)
      return batch.map((_, nth) => (nth === 0 ? refused : { kind: 'accepted', isNew: true }))
    }
    const done = await Promise.all(shares.map(share => source.postShare(share, 500, post)))
    t.same(
      done,
      shares.map(() => ({ seen: 10, removed: 10 }))
    )
    t.equal(await from.waiting(), 0)
    t.same(
      (await from.rejected()).map(row => row.task_no),
      rows.slice(0, 2)
    )
  })

  t.test(`${kind}: relayOnce leaves the rows that are inserted meanwhile`, async t => {
    const from = await producer(t, kind)
    if (!from) return
    await from.run(
      insert([
        ['a', 'test.plain', '{}'],
        ['b', 'test.plain', '{}', 'a key']
      ])
    )
    const source = await (kind === 'postgres' ? postgresSource : mysqlSource)(from.url, 2)
    t.teardown(() => source.close())
    const fake = await fakeAckbox(t)
    let posts = 0
    // A producer that never rests.
    fake.script = async ({ text }, response) => {
      await from.run(
        insert([
          [`new ${++posts}`, 'test.plain', '{}'],
          [`new ${posts} of the key`, 'test.plain', '{}', 'a key']
        ])
      )
      const { tasks } = JSON.parse(text) as { tasks: { taskNo: string }[] }
      return answer(response, 200, { results: tasks.map(({ taskNo }) => ({ taskNo, status: 201 })) })
    }
    const deps = {
      source,
      target: { url: fake.url, key: undefined, timeoutMs: 10_000 },
      log: { debug: nothing, info: nothing, warn: nothing, error: nothing },
      batch: 10,
      concurrency: 1,
      onBatch: nothing,
      onHealth: nothing
    }
    t.same(await relayOnce(deps, AbortSignal.timeout(60_000)), { removed: 2, kept: 0 })
    t.equal(posts, 2)
    t.equal(await from.waiting(), 4)
  })

  t.test(`${kind}: a transaction that is still open holds up no row of its shard`, async t => {
    const from = await producer(t, kind)
    if (!from) return
    await from.run(insert([['done', 'test.plain', '{}', 'a key']]))
    const source = await (kind === 'postgres' ? postgresSource : mysqlSource)(from.url, 2)
    t.teardown(() => source.close())
    const [shard = 0] = await source.shards()
    const seen: string[] = []
    const post = async (batch: RelayRow[]): Promise<RowVerdict[]> => {
      seen.push(...batch.map(row => row.taskNo))
      t.same(await source.postShare(shard, 500, post), { seen: 0, removed: 0 }, 'of a shard one at a time')
      return batch.map(() => ({ kind: 'accepted', isNew: true }))
    }
    await from.open(insert([['open', 'test.plain', '{}', 'a key']]), async () => {
      t.same(await source.postShare(shard, 500, post), { seen: 1, removed: 1 })
    })
    t.same(seen, ['done'])
    t.equal(await from.waiting(), 0)
  })

  t.test(`${kind}: a delay that reaches beyond every calendar is refused, and not sent at once`, async t => {
    const on = await stage(t)
    const from = on && (await producer(t, kind))
    if (!from) return
    const service = await start(t, on.env)
    await from.run(
      insert(['far', 'beyond', 'before'].map((no): [string, string, string] => [no, 'test.plain', '{}']))
    )
    const far = "case task_no when 'far' then 1000000000000000 else 9000000000000000 end"
    await from.run(
      `update ackbox_outbox set delay_ms = ${far} * case task_no when 'before' then -1 else 1 end`
    )
    await relay(t, from.url, service.url, '--once').said(/^3 rows left the outbox/)
    t.match(
      await from.rejected(),
      only(
        { task_no: 'far', problem: /delay/ },
        { task_no: 'beyond', problem: /delay/ },
        { task_no: 'before', problem: /delay/ }
      )
    )
  })

  t.test(`${kind}: rejected rows come back in their order, though their ids were taken`, async t => {
    const from = await producer(t, kind)
    if (!from) return
    const source = await (kind === 'postgres' ? postgresSource : mysqlSource)(from.url, 2)
    t.teardown(() => source.close())
    const names = (round: string): string[] => numbered(round, 5)
    const write = (round: string) =>
      from.run(insert(names(round).map(no => [no, 'test.plain', '{}', 'a key'])))
    const restart = `truncate table ackbox_outbox${kind === 'postgres' ? ' restart identity' : ''}`
    const empty = async (batch: number, verdict: RowVerdict): Promise<string[]> => {
      const seen: string[] = []
      const [shard = 0] = await source.shards()
      const post = async (rows: RelayRow[]): Promise<RowVerdict[]> => {
        seen.push(...rows.map(row => row.taskNo))
        return rows.map(() => verdict)
      }
      while ((await source.postShare(shard, batch, post)).seen > 0);
      return seen
    }
    // Each round has the same ids, because the outbox was truncated.
    for (const [round, batch] of [
      ['first', 5],
      ['second', 5],
      ['third', 2]
    ] as const) {
      await from.run(restart)
      await write(round)
      await empty(batch, refused)
    }
    await from.run(restart)
    await write('fourth')
    t.equal(await source.retryRejected(), 15)
    await from.run(insert([['last', 'test.plain', '{}', 'a key']]))
    const order = [...names('first'), ...names('second'), ...names('third'), ...names('fourth'), 'last']
    t.same(await empty(4, { kind: 'accepted', isNew: true }), order)
  })

  t.test(
    `${kind}: large bodies are read a few at once, and one that no request can hold not at all`,
    async t => {
      const from = await producer(t, kind)
      if (!from) return
      const body = (bytes: string) => `concat('"', repeat('x', ${bytes}), '"')`
      const mib = 1_048_576
      for (const key of ['null', "'a key'"]) {
        const insertTo = (no: string, bytes: string, rows: string) =>
          from.run(`insert into ackbox_outbox (task_no, message_code, message_body, ordering_key)
          select ${no}, 'test.plain', ${body(bytes)}, ${key} from ${rows}`)
        const twenty =
          '(with recursive r as (select 1 as n union all select n + 1 from r where n < 20) select n from r) r'
        await insertTo(`'huge'`, `${9 * mib}`, `(select 1) r`)
        await insertTo(`concat('n-', n)`, `${mib}`, twenty)
      }
      const source = await (kind === 'postgres' ? postgresSource : mysqlSource)(from.url, 1)
      t.teardown(() => source.close())
      for (const share of ['unkeyed', ...(await source.shards())] as Share[]) {
        const seen: string[] = []
        const post = async (rows: RelayRow[]): Promise<RowVerdict[]> => {
          seen.push(...rows.map(row => row.taskNo))
          t.ok(
            rows.reduce((sum, row) => sum + row.messageBody.length, 0) < 6 * mib + 1,
            `${rows.length} rows`
          )
          for (const { taskNo, messageBody, problem = '{}' } of rows)
            if (taskNo === 'huge')
              t.match(
                { messageBody, problem: JSON.parse(problem) as unknown },
                { messageBody: '', problem: { status: 413, code: 'BODY_TOO_LARGE', pointer: '/messageBody' } }
              )
          return rows.map(() => ({ kind: 'accepted', isNew: true }))
        }
        while ((await source.postShare(share, 500, post)).seen > 0);
        t.same(seen, ['huge', ...Array.from({ length: 20 }, (_, n) => `n-${n + 1}`)])
      }
      t.equal(await from.waiting(), 0)
    }
  )

  t.test(`${kind}: an answer of any length is kept as the problem of a row`, async t => {
    const from = await producer(t, kind)
    if (!from) return
    await from.run(insert([['one', 'test.plain', '{}']]))
    const source = await (kind === 'postgres' ? postgresSource : mysqlSource)(from.url, 1)
    t.teardown(() => source.close())
    const problem = `<html>${'支付'.repeat(50_000)}`
    const post = async (): Promise<RowVerdict[]> => [{ kind: 'rejected', problem }]
    t.same(await source.postShare('unkeyed', 500, post), { seen: 1, removed: 1 })
    t.match(await from.rejected(), only({ problem: /^<html>支付/ }))
  })
}

t.test('a look at a long outbox reads few rows of it', async t => {
  const keyed = insert(numbered('n', 5_000).map((no, n) => [no, 'test.plain', '{}', `key-${n}`]))
  const ofPostgres = await producer(t, 'postgres')
  if (ofPostgres) {
    await ofPostgres.run(keyed)
    const sql = openDb(ofPostgres.url, { max: 1, applicationName: 'producer' })
    t.teardown(() => sql.end({ timeout: 5 }))
    await sql`analyze ackbox_outbox`
    const plan = await sql`
      explain select id from ackbox_outbox where ordering_key is null order by id limit 500 for update skip locked`
    t.match(
      JSON.stringify(plan),
      'ackbox_outbox_unkeyed_idx',
      'rows with a key are not read for those without'
    )
  }
  const ofMysql = await producer(t, 'mysql')
  if (!ofMysql) return
  await ofMysql.run(keyed)
  const connection = await createConnection(ofMysql.url)
  t.teardown(() => connection.end())
  const reads = async (): Promise<number> => {
    const [rows] = await connection.query("show global status like 'Handler_read_%next'")
    return (rows as { Value: string }[]).reduce((sum, row) => sum + Number(row.Value), 0)
  }
  const source = await mysqlSource(ofMysql.url, 1)
  t.teardown(() => source.close())
  await source.check()
  const before = await reads()
  t.equal((await source.shards()).length, 16)
  const count = (await reads()) - before
  t.ok(count < 1_000, `${count} rows were read`)
})

t.test('mysql: a server without backslash escapes, and ids that no double holds', async t => {
  const from = await producer(t, 'mysql')
  if (!from) return
  await from.run("set global sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'")
  await from.run('alter table ackbox_outbox auto_increment = 9007199254740993')
  await from.run(insert(numbered('n', 3).map((no): [string, string, string] => [no, 'test.plain', '{}'])))
  const source = await mysqlSource(from.url, 1)
  t.teardown(() => source.close())
  const problem = JSON.stringify({ detail: `it's a "backslash" \\` })
  const post = async (): Promise<RowVerdict[]> => [
    { kind: 'rejected', problem },
    { kind: 'accepted', isNew: true },
    { kind: 'kept' }
  ]
  t.same(await source.postShare('unkeyed', 500, post), { seen: 3, removed: 2 })
  t.match(await from.rejected(), only({ problem }))
  t.equal(await from.waiting(), 1)
  t.equal(await source.retryRejected(), 1)
  t.equal(await from.waiting(), 2)
})

t.test('postgres: rejected rows come back however long it takes', async t => {
  const from = await producer(t, 'postgres')
  if (!from) return
  const source = postgresSource(from.url, 2)
  t.teardown(() => source.close())
  await from.run(insert([['one', 'test.plain', '{}']]))
  await source.postShare('unkeyed', 10, rows => Promise.resolve(rows.map(() => refused)))
  await from.run(`
    create function is_slow() returns trigger language plpgsql as $$ begin
      if current_setting('statement_timeout') <> '0' then raise 'cut off after %', current_setting('statement_timeout'); end if;
      return null;
    end $$;
    create trigger slow after insert on ackbox_outbox execute function is_slow()`)
  t.equal(await source.retryRejected(), 1)
})

t.test('postgres: two relays on a database whose transactions are serializable', async t => {
  const from = await producer(t, 'postgres')
  if (!from) return
  await from.run(insert(numbered('n', 20).map((no): [string, string, string] => [no, 'test.plain', '{}'])))
  const name = new URL(from.url).pathname.slice(1)
  await from.run(`alter database "${name}" set default_transaction_isolation = 'serializable'`)
  const source = postgresSource(from.url, 2)
  t.teardown(() => source.close())
  let inHand = 0
  const post = async (batch: RelayRow[]): Promise<RowVerdict[]> => {
    inHand++
    await until('both have their rows', () => inHand === 2)
    return batch.map(() => ({ kind: 'accepted', isNew: true }))
  }
  const both = [source.postShare('unkeyed', 10, post), source.postShare('unkeyed', 10, post)]
  t.same(await Promise.all(both), [
    { seen: 10, removed: 10 },
    { seen: 10, removed: 10 }
  ])
})

t.test('one worker that works does not hide that another one is stuck', async t => {
  let polls = 0
  let isStuck = true
  const healths: (string | null)[] = []
  const stop = new AbortController()
  const running = relayAll(
    {
      source: {
        check: () => Promise.resolve(),
        shards: () => Promise.resolve([0]),
        lastId: () => Promise.resolve(undefined),
        postShare(share) {
          if (share === 'unkeyed') polls++
          else if (isStuck) return Promise.reject(new Error('stuck'))
          return Promise.resolve({ seen: 0, removed: 0 })
        },
        waiting: () => Promise.resolve({ rows: 0, oldestS: 0, rejected: 0 }),
        retryRejected: () => Promise.resolve(0),
        close: () => Promise.resolve()
      },
      target: { url: 'http://127.0.0.1:1', key: undefined, timeoutMs: 1_000 },
      log: { debug: nothing, info: nothing, warn: nothing, error: nothing },
      batch: 10,
      concurrency: 2,
      onBatch: nothing,
      onHealth: fault => healths.push(fault)
    },
    stop.signal
  )
  await until('the keyed worker is stuck', () => healths.includes('stuck'))
  const seen = polls
  await until('the others have worked again', () => polls > seen + 4)
  t.equal(healths.at(-1), 'stuck')
  isStuck = false
  await until('it works again', () => healths.at(-1) === null)
  stop.abort()
  await running
})
