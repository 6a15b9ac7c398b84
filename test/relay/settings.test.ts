// A producer's MariaDB whose settings are all other than usual: the relay and the import mean what they say all the same.
import { createConnection } from 'mysql2/promise'
import t, { type Test } from 'tap'
import { mysqlSource } from '../../src/relay/mysql.ts'
import { relayOnce } from '../../src/relay/relay.ts'
import type { RelayRow } from '../../src/relay/source.ts'
import { withTable } from '../../src/relay/table.ts'
import { answer, fakeAckbox } from '../producer/fake-ackbox.ts'
import { only } from '../support/only.ts'
import { insert, producer } from './producer.ts'

const nothing = (): void => {}

const wrong = [
  'autocommit = 0',
  'completion_type = 2',
  "tx_isolation = 'SERIALIZABLE'",
  'tx_read_only = 1',
  "time_zone = '+05:00'",
  "sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES,PIPES_AS_CONCAT,HIGH_NOT_PRECEDENCE'",
  'sql_safe_updates = 1',
  'sql_select_limit = 1',
  'sql_auto_is_null = 1',
  'max_join_size = 1',
  'sql_big_selects = 0',
  'group_concat_max_len = 4',
  'div_precision_increment = 0',
  'max_statement_time = 0.001',
  'idle_transaction_timeout = 1',
  "default_regex_flags = 'EXTENDED'",
  "collation_connection = 'latin1_general_cs'",
  "character_set_client = 'latin1'",
  "character_set_results = 'latin1'",
  'innodb_lock_wait_timeout = 100',
  'net_write_timeout = 1',
  "binlog_format = 'STATEMENT'"
]

/** New sessions have the settings; those of the test do not. */
async function turnWrong(t: Test, url: string): Promise<void> {
  const admin = await createConnection(url)
  t.teardown(() => admin.end())
  await admin.query('set session max_statement_time = 0')
  for (const setting of wrong) await admin.query(`set global ${setting}`)
}

t.test('the relay moves every row, with its own values, whatever the settings of the server are', async t => {
  const from = await producer(t, 'mysql')
  if (!from) return
  await from.run(
    insert([
      ['a', 'test.plain', '{"name":"é 水"}'],
      ['b', 'test.plain', '{}', 'a key'],
      ['c', 'test.plain', '{}', 'another key']
    ])
  )
  await from.run(
    `insert into ackbox_outbox (task_no, message_code, message_body, created_at, delay_ms)
     values ('later', 'test.plain', '{}', from_unixtime(1700000000), 1500), ('wrong', 'test.plain', '{}', default, null)`
  )
  await turnWrong(t, from.url)
  const source = await mysqlSource(from.url, 3)
  t.teardown(() => source.close())
  const fake = await fakeAckbox(t)
  const posted = new Map<string, Record<string, unknown>>()
  fake.script = ({ text }, response) => {
    const { tasks } = JSON.parse(text) as { tasks: { taskNo: string }[] }
    for (const task of tasks) posted.set(task.taskNo, task)
    const results = tasks.map(({ taskNo }) =>
      taskNo === 'wrong' ? { taskNo, status: 422, code: 'INVALID' } : { taskNo, status: 201 }
    )
    return answer(response, 200, { results })
  }
  const deps = {
    source,
    target: { url: fake.url, key: undefined, timeoutMs: 30_000 },
    log: { debug: nothing, info: nothing, error: nothing, warn: nothing },
    batch: 100,
    concurrency: 1,
    onBatch: nothing,
    onHealth: nothing
  }
  await source.check()
  t.match(await source.waiting(), { rows: 5, rejected: 0 })
  t.match(await relayOnce(deps, new AbortController().signal), { removed: 5 })
  t.same(posted.get('a')?.['messageBody'], { name: 'é 水' })
  t.equal(posted.get('later')?.['deliverStartTime'], '2023-11-14T22:13:21.500000Z')
  t.equal(await from.waiting(), 0, 'and all of it is committed')
  t.match(await from.rejected(), only({ task_no: 'wrong' }))
  t.equal(await source.retryRejected(), 1)
  t.equal(await from.waiting(), 1)
})

t.test('the import reads every row of a table, whatever the settings of the server are', async t => {
  const from = await producer(t, 'mysql')
  if (!from) return
  await from.run(
    'create table message (id int primary key, body text, at timestamp(6)) character set utf8mb4'
  )
  await from.run(
    `insert into message values (1, '{"name":"é 水"}', from_unixtime(1700000000)), (2, '{}', from_unixtime(1700000000)), (3, '{}', null)`
  )
  await turnWrong(t, from.url)
  const query = {
    table: 'message',
    columns: { taskNo: 'id', messageCode: "'a'", messageBody: 'body', deliverStartTime: 'at' },
    where: undefined,
    order: 'id',
    batch: 2
  }
  const rows = await withTable(
    from.url,
    query,
    async ({ count, batches }) => {
      const all: RelayRow[] = []
      for await (const batch of batches) all.push(...batch)
      t.equal(count, 3)
      return all
    },
    new AbortController().signal
  )
  t.match(
    rows,
    only(
      { taskNo: '1', messageBody: '{"name":"é 水"}', deliverStartTime: '2023-11-14T22:13:20.000000Z' },
      { taskNo: '2' },
      { taskNo: '3' }
    )
  )
})

t.test('a relay that may not choose the format of the binary log says what to set', async t => {
  const from = await producer(t, 'mysql', ['--log-bin', '--binlog-format=STATEMENT'])
  if (!from) return
  await from.run("create user shop identified by 'secret'")
  await from.run('grant all on test.* to shop')
  const url = new URL(from.url)
  url.username = 'shop'
  url.password = 'secret'
  const shop = await mysqlSource(url.href, 1)
  t.teardown(() => shop.close())
  await t.rejects(shop.check(), {
    name: 'RelayError',
    message: /binlog_format is STATEMENT.*MIXED or ROW.*BINLOG ADMIN/
  })
  await from.run('grant binlog admin on *.* to shop')
  const allowed = await mysqlSource(url.href, 1)
  t.teardown(() => allowed.close())
  await allowed.check()
  await from.run(insert([['one', 'test.plain', '{}']]))
  const post = () => Promise.resolve([{ kind: 'accepted', isNew: true } as const])
  t.same(await allowed.postShare('unkeyed', 10, post), { seen: 1, removed: 1 })
})
