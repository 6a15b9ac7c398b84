// The producers of examples/producers against real databases: committed rows are in the outbox, rolled back rows are not.
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { answer, fakeAckbox } from '../producer/fake-ackbox.ts'
import { migrate } from '../../src/db/migrate.ts'
import { mariadbShop, postgresShop, type Shop } from '../producer/databases.ts'
import { buildSdk, goUrl, jdbcUrl, mainOf } from './sdk.ts'
import { only } from '../support/only.ts'
import { without } from '../support/program.ts'

const go = 'examples/producers/go'
const members = 'test/interop/sdk/Members.java'
const springs = 'test/interop/sdk/Springs.java'
const client = 'test/interop/sdk/Client.java'
const body = `{"emoji": "💸", "quote": "'\\"\\\\", "total": 7.00}`
const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

t.setTimeout(2_400_000)

async function run(cwd: string, command: string, ...args: string[]): Promise<string> {
  return (await promisify(execFile)(command, args, { cwd })).stdout
}

async function shops(t: Test): Promise<Shop[]> {
  const mariadb = await mariadbShop(t)
  return [await postgresShop(t), ...(mariadb ? [mariadb] : [])]
}

/** A shop in the database of Ackbox, with Ackbox's functions, but no process that removes the rows. */
async function sharedShop(t: Test): Promise<Shop> {
  const shop = await postgresShop(t)
  await migrate(shop.url)
  return shop
}

/** The taskNos in the outbox. It asserts that the account has paid for one order and not for the other. */
async function written(t: Test, shop: Shop, table = 'ackbox_outbox'): Promise<unknown[]> {
  t.equal(await shop.balance(), 493)
  const rows = await shop.select(`select task_no, message_code, message_body from ${table}`)
  t.match(rows, only({ message_code: 'order.paid', message_body: /né à Zürich, 支付/ }))
  return rows.map(row => row['task_no'])
}

function misbehave({ url: path = '', headers }: IncomingMessage, response: ServerResponse): void {
  if (path.startsWith('/page'))
    response.writeHead(200, { 'content-type': 'text/html' }).end('<html>login</html>')
  else if (headers.authorization === 'Bearer ak_secret')
    response.writeHead(201).end('{"taskNo":"t-1","status":"PENDING"}')
  else if (path.startsWith('/stall')) response.writeHead(201, { 'content-length': '100' }).write('{"taskNo"')
  else response.writeHead(201, { 'content-type': 'application/json' }).end('{"taskNo":"t-1"}')
}

t.test('Go', { skip: without('go') }, async t => {
  const example = (...args: string[]) => run(go, 'go', 'run', '.', ...args)
  for (const shop of await shops(t)) {
    const { dialect } = shop.db
    await t.test(dialect, async t => {
      await example(dialect, goUrl(shop.url, dialect))
      t.same(await written(t, shop), [`go-${dialect}-1`])
    })
  }
  await t.test('enqueue', async t => {
    const shop = await sharedShop(t)
    await example('enqueue', goUrl(shop.url, 'postgres'))
    t.same(await written(t, shop, 'outbox'), ['go-enqueue-1'])
  })
})

t.test('Java', { skip: without('java', 'mvn') }, async t => {
  await buildSdk()
  const example = (main: string, ...args: string[]) => run('.', 'java', ...mainOf('producers', main), ...args)
  const jdbc = ({ db, url }: Shop) => jdbcUrl(url, db.dialect)
  for (const shop of await shops(t)) {
    await t.test(`JDBC on ${shop.db.dialect}`, async t => {
      t.match(
        await example('Shop', 'outbox', jdbc(shop)),
        /refused: no transaction[^]*refused: the card was refused/
      )
      t.same(await written(t, shop), ['java-1'])
    })
  }
  await t.test('JDBC, enqueue', async t => {
    const shop = await sharedShop(t)
    t.match(await example('Shop', 'enqueue', jdbc(shop)), /refused: no transaction/)
    t.same(await written(t, shop, 'outbox'), ['java-1'])
  })
  for (const shop of await shops(t)) {
    await t.test(`Spring on ${shop.db.dialect}`, async t => {
      const said = await example('SpringShop', 'outbox', jdbc(shop))
      t.match(said, /refused: the card was refused/)
      t.match(said, /refused: no transaction/)
      t.same(await written(t, shop), ['spring-1'])
    })
  }
  for (const shop of await shops(t)) {
    await t.test(`Spring writes no row that no transaction commits, on ${shop.db.dialect}`, async t => {
      const [, classes = ''] = mainOf('producers', '')
      const said = await run('.', 'java', '-cp', classes, springs, jdbc(shop))
      t.same(said.trim().split('\n'), [
        'refused by the database',
        'before the end: taken',
        'beforeCompletion: taken',
        'afterCommit: refused',
        'afterCommit, in one of its own: taken',
        'afterCommit, again: refused',
        'afterCompletion: refused',
        'afterCompletion, @Transactional: refused',
        'afterCompletion, in one of its own: taken',
        // The same, rolled back.
        'before the end: taken',
        'beforeCompletion: taken',
        'afterCompletion: refused',
        'afterCompletion, @Transactional: refused',
        'afterCompletion, in one of its own: taken',
        'in the next one: taken',
        'refused outside its transaction',
        'without autocommit: taken',
        'balance 500',
        'rows 7'
      ])
    })
  }
  await t.test('Spring, enqueue: Ackbox is told after the commit, and never after a rollback', async t => {
    const shop = await sharedShop(t)
    // The commit takes a second: a nudge that is sent too early finds no row.
    await shop.select(`
      create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(1); return null; end';
      create constraint trigger slow after insert on outbox deferrable initially deferred for each row execute function slow()`)
    const ackbox = await fakeAckbox(t)
    const committed: unknown[] = []
    ackbox.script = async ({ path }, response) => {
      // Another connection sees only committed rows.
      committed.push(path, ...(await shop.select('select task_no from outbox')))
      return answer(response, 202, { nudged: true })
    }
    await example('SpringShop', 'enqueue', jdbc(shop), ackbox.url)
    t.same(committed, ['/outbox/nudge', { task_no: 'spring-1' }])
    t.same(await written(t, shop, 'outbox'), ['spring-1'])
  })
  await t.test('the client and a server that misbehaves', async t => {
    const server = createServer((request, response) => {
      request.resume().on('end', () => misbehave(request, response))
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => {
      server.closeAllConnections()
      server.close()
    })
    const [, classes = ''] = mainOf('producers', '')
    const { port } = server.address() as AddressInfo
    const said = await run('.', 'java', '-cp', classes, client, `http://127.0.0.1:${port}/`)
    t.same(said.trim().split('\n'), [
      'page 200 null',
      'other 201 null',
      'stall 0 UNREACHABLE',
      'key taken',
      'key refused'
    ])
  })
  for (const shop of await shops(t)) {
    const { dialect } = shop.db
    await t.test(`a task with every member, on ${dialect}`, async t => {
      const ackbox = await fakeAckbox(t)
      const [, classes = ''] = mainOf('producers', '')
      const said = await run('.', 'java', '-cp', classes, members, jdbc(shop), ackbox.url)
      t.equal(said, '', 'what is no JSON is refused, and nothing else')
      const time = (column: string) =>
        dialect === 'postgres'
          ? `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')`
          : `date_format(${column}, '%Y-%m-%d %H:%i:%s.%f')`
      const [row] = await shop.select(
        `select o.*, ${time('deliver_start_time')} as start, ${time('deliver_before')} as before_time from ackbox_outbox o`
      )
      t.match(row, {
        task_no: 'order:1.full_x-1',
        message_code: 'order.paid',
        message_body: body,
        scene_type: 'vip "quoted"\n',
        start: '2026-11-20 10:00:00.123000',
        before_time: '2026-11-20 11:00:00.000001',
        ordering_key: 'kunde-ä',
        retry_times: 7,
        biz_type: 'order',
        biz_key: '1',
        traceparent
      })
      t.same([Number(row?.['delay_ms']), Number(row?.['need_callback'])], [1_500, 0])
      t.equal(Number(row?.['unique_biz']), 1)
      t.match(JSON.stringify([row?.['after'], row?.['extend']]), /order-0.*by.*test/)

      t.match(ackbox.seen, only({ path: '/tasks', headers: { authorization: 'Bearer a-key' } }))
      t.ok(ackbox.seen[0]?.text.includes(`"messageBody":${body}`), 'the very text')
      t.match(JSON.parse(ackbox.seen[0]?.text ?? ''), {
        taskNo: 'order:1.full_x-1',
        sceneType: 'vip "quoted"\n',
        deliverStartTime: '2026-11-20T10:00:00.123Z',
        delay: 1_500,
        needCallback: false,
        retryTimes: 7,
        uniqueBiz: true,
        after: only('order-0'),
        extend: { by: 'test' },
        traceparent
      })
    })
  }
})
