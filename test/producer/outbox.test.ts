// The rows of the outbox tables, written by a library or by plain SQL. The relay and people read them.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import mysql from 'mysql2/promise'
import pg from 'pg'
import t, { type Test } from 'tap'
import { only } from '../support/only.ts'
import {
  answerCheck,
  fromMysql2,
  fromPg,
  fromPrisma,
  outbox,
  ProducerError,
  enqueue,
  prepared,
  type Tx
} from '../../src/producer/producer.ts'
import { enqueueStub, mariadbShop, postgresShop, type Shop } from './databases.ts'

t.setTimeout(600_000)

const full = {
  taskNo: 'order:1.full_x-1',
  messageCode: 'order.paid',
  sceneType: 'vip',
  messageBody: { emoji: '💸', quote: `'"\\` },
  deliverStartTime: new Date('2026-11-20T10:00:00.123Z'),
  deliverBefore: '2026-11-20T12:00:00.0000001+01:00',
  delay: 1_500,
  orderingKey: 'kunde-ä',
  needCallback: false,
  retryTimes: 7,
  bizType: 'order',
  bizKey: '1',
  uniqueBiz: true,
  after: ['order-0'],
  extend: { by: 'test' },
  traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
}
/** A time column as UTC text. It does not depend on the time zone of the session or of the test. */
const utc = {
  postgres: (column: string) => `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS')`,
  mysql: (column: string) => `date_format(${column}, '%Y-%m-%d %H:%i:%s.%f')`
}

t.test('PostgreSQL', async t => {
  const shop = await postgresShop(t)
  const client = new pg.Client({ connectionString: shop.url, options: '-c TimeZone=Asia/Tokyo' })
  await client.connect()
  t.teardown(() => client.end())
  await stories(t, shop, work => fromPg(client).begin(native => work(fromPg(native))))
})

t.test('MariaDB', async t => {
  const shop = await mariadbShop(t)
  if (!shop) return
  const connection = await mysql.createConnection({ uri: shop.url })
  t.teardown(() => connection.end())
  await connection.query("set time_zone = '+09:00'")
  await stories(t, shop, work => fromMysql2(connection).begin(native => work(fromMysql2(native))))
  await t.rejects(
    shop.db.begin(native => enqueue(shop.db.within(native), full)),
    { name: 'ProducerError', message: /ackbox relay/ },
    'enqueue needs the database of Ackbox'
  )
})

t.test('a table of 1.0.0 in MariaDB has the new shard by the statement of the page', async t => {
  const shop = await mariadbShop(t)
  if (!shop) return
  const page = readFileSync('docs/producers/relay.md', 'utf8')
  const statement = /alter table ackbox_outbox[^;]*/.exec(page)?.[0] ?? ''
  const [{ version = '' } = {}] = await shop.select('select version() as version')
  const old = /MariaDB/.test(String(version)) ? 'conv(left(md5(ordering_key), 1), 16, 10)' : '7'
  await shop.select(statement.replace('crc32(ordering_key) % 16', old))
  await shop.select(
    `insert into ackbox_outbox (message_code, message_body, ordering_key) values ('a', '1', 'kunde-ä')`
  )
  await shop.select(statement)
  t.same(await shop.select('select shard from ackbox_outbox'), [{ shard: crc32('kunde-ä') % 16 }])
})

async function stories(t: Test, shop: Shop, begin: (work: (tx: Tx) => Promise<unknown>) => Promise<unknown>) {
  const isPostgres = shop.db.dialect === 'postgres'
  const time = utc[shop.db.dialect]

  await t.test('every member of a task has its column', async t => {
    await begin(tx => outbox(tx, full))
    const [row] = await shop.select(`
      select o.*, ${time('deliver_start_time')} as start, ${time('deliver_before')} as last
      from ackbox_outbox o where task_no = '${full.taskNo}'`)
    const { start, last, message_body: body, after, extend, shard, created_at: at, ...rest } = row ?? {}
    t.match(rest, {
      task_no: full.taskNo,
      message_code: 'order.paid',
      scene_type: 'vip',
      delay_ms: isPostgres ? '1500' : 1500,
      ordering_key: 'kunde-ä',
      need_callback: isPostgres ? false : 0,
      retry_times: 7,
      biz_type: 'order',
      biz_key: '1',
      unique_biz: isPostgres ? true : 1,
      traceparent: full.traceparent
    })
    t.equal(body, JSON.stringify(full.messageBody))
    t.same(isPostgres ? [after, extend] : [JSON.parse(String(after)), JSON.parse(String(extend))], [
      full.after,
      full.extend
    ])
    t.match(start, '2026-11-20 10:00:00.123')
    // The next millisecond, as a POST of the same time: no start and no deadline is too early.
    t.match(last, '2026-11-20 11:00:00.001')
    const md5 = createHash('md5').update('kunde-ä').digest('hex')
    t.equal(shard, isPostgres ? Number.parseInt(md5.charAt(0), 16) : crc32('kunde-ä') % 16)
    t.ok(Math.abs(Date.now() - (at as Date).getTime()) < 600_000)
  })

  await t.test('one INSERT of a code and a body is a task', async t => {
    await shop.select(`insert into ackbox_outbox (message_code, message_body) values ('plain', '{"a": 1.0}')`)
    const [row] = await shop.select(
      `select task_no, message_body, shard from ackbox_outbox where message_code = 'plain'`
    )
    t.match(row, { task_no: /^[0-9a-f-]{36}$/, message_body: '{"a": 1.0}', shard: null })
  })

  await t.test('a body that is no JSON ends the transaction, and not the message later', async t => {
    const insert = `insert into ackbox_outbox (message_code, message_body) values ('broken', '{"a": }')`
    await t.rejects(shop.select(insert))
    await t.rejects(
      begin(tx => outbox(tx, { messageCode: 'broken', messageBodyText: '{"a": }' })),
      ProducerError
    )
    t.same(await shop.select(`select task_no from ackbox_outbox where message_code = 'broken'`), [])
  })

  await t.test('a database without the tables is told where they are', async t => {
    const hidden = {
      ackbox_outbox: () => begin(tx => outbox(tx, full)),
      ackbox_barrier: () => begin(tx => prepared(tx, 'x'))
    }
    for (const [table, work] of Object.entries(hidden)) {
      await shop.select(`alter table ${table} rename to hidden`)
      await t.rejects(
        work(),
        { name: 'AdapterError', message: /ackbox relay --print-ddl (postgres|mysql)/ },
        table
      )
      await shop.select(`alter table hidden rename to ${table}`)
    }
  })

  await t.test('the order of rows is the order of their insertion', async t => {
    await begin(async tx => {
      for (let i = 0; i < 20; i++) await outbox(tx, { messageCode: 'many', messageBody: i, orderingKey: 'k' })
    })
    const rows = await shop.select(
      `select message_body from ackbox_outbox where message_code = 'many' order by id`
    )
    t.same(
      rows.map(row => row['message_body']),
      Array.from({ length: 20 }, (_, i) => String(i))
    )
  })
}

t.test('a role needs no more than INSERT on the outbox, and SELECT too on the barrier', async t => {
  const shop = await postgresShop(t)
  const role = `shop_${process.pid}`
  await shop.select(`${enqueueStub}; alter function ackbox_api.enqueue security definer; create role ${role}`)
  t.teardown(() => shop.select(`drop owned by ${role}; drop role ${role}`))
  await shop.select(`
    grant usage on schema ackbox_api to ${role};
    grant insert on ackbox_outbox to ${role};
    grant insert, select on ackbox_barrier to ${role}`)
  await shop.db.begin(async native => {
    await shop.run(native, `set local role ${role}`)
    const tx = shop.db.within(native)
    await prepared(tx, 'granted')
    await outbox(tx, full)
    await enqueue(tx, { messageCode: 'x', messageBody: 1 })
  })
  t.equal((await shop.select('select from ackbox_outbox')).length, 1)
  t.equal((await shop.select('select from enqueued')).length, 1)
})

t.test('Prisma on MySQL, which prepares no savepoint: what Prisma shows counts', async t => {
  const before = new Date(0).toISOString()
  const refusals = [
    {
      message:
        'Raw query failed. Code: `1295`. Message: `This command is not supported in the prepared statement protocol yet`'
    },
    { message: 'Raw query failed.', meta: { driverAdapterError: { cause: { originalCode: '1295' } } } },
    { message: 'not supported', code: 'ER_UNSUPPORTED_PS' }
  ]
  for (const refusal of refusals) {
    const written: string[] = []
    const tx = {
      $queryRawUnsafe: () => Promise.resolve([]),
      async $executeRawUnsafe(text: string) {
        if (/savepoint/.test(text)) throw Object.assign(new Error(), refusal)
        written.push(text)
      }
    }
    const prisma = { ...tx, $connect: () => Promise.resolve(), $transaction: () => Promise.resolve() }
    t.equal(await outbox(fromPrisma(tx, 'mysql'), full), full.taskNo)
    t.match(written, only(/^insert into ackbox_outbox/))
    await t.rejects(outbox(fromPrisma(prisma, 'mysql'), full), { message: /committed even if/ })
    t.same(await answerCheck(fromPrisma(prisma, 'mysql'), { taskNo: 'x', preparedAt: before }), {
      state: 'UNKNOWN'
    })
    await t.rejects(answerCheck(fromPrisma(tx, 'mysql'), { taskNo: 'x', preparedAt: before }), {
      message: /needs a pool/
    })
    t.equal(written.length, 1)
  }
})

t.test('what is nothing that is known here is refused in words', async t => {
  const strange = [undefined, null, {}, () => {}, { query: () => {} }]
  for (const one of strange)
    await t.rejects(outbox(one as never, full), { name: 'AdapterError', message: /from… function/ })
  t.throws(() => fromPg({}), {
    message: /fromPg takes a client or a pool of pg, and was given something else/
  })
})
