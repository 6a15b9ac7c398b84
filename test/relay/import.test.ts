// Takes long: npm run test:long.
import { createServer } from 'node:http'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import t, { type Test } from 'tap'
import { openDb } from '../../src/db/pool.ts'
import { readColumns } from '../../src/relay/columns.ts'
import { page } from '../docs/markdown.ts'
import { testMariadb } from '../support/mariadb.ts'
import { only } from '../support/only.ts'
import { emptyDb, testDb } from '../support/postgres.ts'
import { program, type Program } from '../support/program.ts'
import { folder, handlersDir, start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

const bin = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')

interface Shop {
  url: string
  run(text: string): Promise<unknown>
}
const shops = { postgres: onPostgres, mysql: onMariadb }

/** A message table as many shops design their own. Undefined if there is no such server. */
async function onPostgres(t: Test): Promise<Shop> {
  const url = await emptyDb(t)
  const sql = openDb(url, { max: 1, applicationName: 'shop' })
  t.teardown(() => sql.end({ timeout: 5 }))
  await sql`
    create table message (id bigserial primary key, msg_id text, payload text, status text, next_retry timestamp)`
  return { url, run: async text => await sql.unsafe(text) }
}

async function onMariadb(t: Test): Promise<Shop | undefined> {
  const mariadb = await testMariadb(t)
  if (!mariadb) return undefined
  await mariadb.pool.query(
    `create table message (id bigint auto_increment primary key, msg_id varchar(200), payload longtext, status varchar(20), next_retry datetime)`
  )
  return { url: mariadb.url, run: async text => await mariadb.pool.query(text) }
}

type Row = [msgId: string | null, payload: string | null, status?: string, nextRetry?: string]

const literal = (value: string | null): string => (value === null ? 'null' : `'${value}'`)
const insert = (rows: Row[]): string =>
  `insert into message (msg_id, payload, status, next_retry) values ${rows
    .map(
      ([msgId, payload, status = 'NEW', next = '2020-01-01 00:00:00']) =>
        `(${[msgId, payload, status, next].map(literal).join()})`
    )
    .join()}`
const columns = "taskNo=msg_id,messageCode='test.plain',messageBody=payload,deliverStartTime=next_retry"

function importing(t: Test, from: string, cwd: string, ...more: string[]): Program {
  const given = more.includes('--columns') ? more : ['--columns', columns, ...more]
  const args = ['import', '--from', from, '--table', 'message', ...given]
  return program(t, process.execPath, [bin, ...args], {
    env: { HANDLERS_DIR: handlersDir, TEST_SINK: 'http://127.0.0.1:1' },
    cwd
  })
}
const ended = async (one: Program): Promise<number | null> => {
  await one.said(/ · (?:done|stopped|ended early)$/)
  return await one.stop('SIGCONT')
}

for (const [kind, open] of Object.entries(shops)) {
  t.test(
    `${kind}: open rows become tasks with their very body, the rest and the table stay as they are`,
    async t => {
      const on = await stage(t)
      const shop = on && (await open(t))
      if (!shop) return
      const service = await start(t, on.env)
      const cwd = folder(t)
      await shop.run(
        insert([
          ['due', '{"n": 1e0}'],
          ['later', '{"n": 2}', 'NEW', `${new Date().getUTCFullYear()}-12-31 23:59:59`],
          ['sent', '{"n": 3}', 'DONE'],
          [null, '{"n": 4}'],
          ['no json', 'hello'],
          ['text', 'hello'],
          ['empty', null],
          ['wrong', '{"n": "x"}'],
          ['due', '{"n": 1e0}'],
          ['due', '{"n": 5}']
        ])
      )
      const dry = importing(t, shop.url, cwd, '--where', "status = 'NEW'", '--order', 'id', '--dry-run')
      await dry.said(/^Nothing was posted/)
      t.equal(await dry.stop('SIGCONT'), 2)
      const told = dry.lines.join('\n')
      t.match(
        told,
        /^9 rows of message\. The first 3:\n\{"taskNo":"due","messageCode":"test\.plain","messageBody":\{"n": 1e0\}/
      )
      t.match(told, /\n {2}would be accepted\n/)
      t.match(told, /\n {2}would be refused: 422 INVALID \/taskNo /)
      t.match(told, /9 rows checked with \d+ handlers: 3 would be accepted, 6 refused/)
      t.match(told, /TASK_CONFLICT 1 time, first due: 409/)
      t.match(told, /NOT_JSON 2 times, first no json: 400 NOT_JSON \/messageBody/)
      t.same(await on.sql`select from task`, [], 'it posted nothing')

      const copy = importing(
        t,
        shop.url,
        cwd,
        '--where',
        "status = 'NEW'",
        '--order',
        'id',
        '--to',
        service.url
      )
      t.equal(await ended(copy), 2, 'some were refused')
      t.match(copy.lines.join('\n'), /^9 of 9 rows: 2 new, 1 already there, 6 rejected · done/)
      const kept = readFileSync(path.join(cwd, 'import-rejected.ndjson'), 'utf8').trim().split('\n')
      t.match(
        kept.map(line => JSON.parse(line) as unknown),
        only(
          ...[
            {
              row: { taskNo: '', messageBody: '{"n": 4}' },
              problem: { code: 'INVALID', pointer: '/tasks/0/taskNo' }
            },
            { row: { taskNo: 'no json' }, problem: { code: 'NOT_JSON' } },
            { row: { taskNo: 'text', messageBody: 'hello' }, problem: { code: 'NOT_JSON' } },
            { row: { taskNo: 'empty' }, problem: { code: 'INVALID' } },
            { row: { taskNo: 'wrong' }, problem: { code: 'INVALID' } },
            { row: { taskNo: 'due', messageBody: '{"n": 5}' }, problem: { code: 'TASK_CONFLICT' } }
          ].map(one => ({ row: one.row, problem: { code: one.problem.code } }))
        )
      )
      await until('what is due is delivered', () => on.downstream.count('due') === 1)
      t.equal(on.downstream.requests[0]?.body, '{"n": 1e0}', 'the very text')
      const tasks = await on.sql<{ task_no: string; deliver_start_time: Date }[]>`
      select task_no, deliver_start_time from task order by task_no`
      t.same(
        tasks.map(one => [one.task_no, one.deliver_start_time.toISOString()]),
        [
          ['due', '2020-01-01T00:00:00.000Z'],
          ['later', `${new Date().getUTCFullYear()}-12-31T23:59:59.000Z`]
        ],
        'a time without a zone is in UTC'
      )
      await shop.run("delete from message where id > 8 or msg_id is null or msg_id not in ('due', 'later')")
      await shop.run(`update message set payload = '{"n": 9}' where msg_id = 'later'`)
      const other = importing(t, shop.url, cwd, '--to', service.url)
      t.equal(await ended(other), 2)
      t.match(
        other.lines[0],
        /^2 of 2 rows: 0 new, 1 already there, 1 rejected/,
        'other content is no second time'
      )
      t.match(readFileSync(path.join(cwd, 'import-rejected.ndjson'), 'utf8'), /TASK_CONFLICT/)
    }
  )

  t.test(
    `${kind}: an import that dies of kill -9, and one that Ctrl-C stops, go on: exactly the rows`,
    async t => {
      const on = await stage(t)
      const shop = on && (await open(t))
      if (!shop) return
      const service = await start(t, on.env)
      const cwd = folder(t)
      const year = new Date().getUTCFullYear()
      const rows = Array.from({ length: 10_000 }, (_, n): Row => [
        `n-${n}`,
        `{"n":${n}}`,
        'NEW',
        `${year}-12-31 23:59:59`
      ])
      await shop.run(insert(rows))
      const stored = async (): Promise<number> => {
        const [row] = await on.sql<{ n: number }[]>`select count(*)::int as n from task`
        return row?.n ?? 0
      }
      const run = () => importing(t, shop.url, cwd, '--to', service.url, '--batch', '10')
      const first = run()
      await until('some are there', async () => (await stored()) > 100)
      await first.stop('SIGKILL')
      const before = await stored()
      t.ok(before < rows.length, 'it was killed in the middle')
      const second = run()
      // More rows than the killed import may have had in flight.
      await until('more are there', async () => (await stored()) > before + 200)
      t.equal(await second.stop('SIGINT'), 130)
      t.match(second.lines.join('\n'), / already there, 0 rejected · stopped\nRun the same command again/)
      const third = run()
      t.equal(await ended(third), 0)
      const [, fresh = '', known = ''] =
        /: ([\d,]+) new, ([\d,]+) already there, 0 rejected · done/.exec(third.lines.join()) ?? []
      const count = (text: string): number => Number(text.replace(',', ''))
      t.equal(count(fresh) + count(known), rows.length)
      t.ok(count(known) > before)
      const tasks = await on.sql<{ task_no: string }[]>`select task_no from task`
      t.same(new Set(tasks.map(one => one.task_no)), new Set(rows.map(([msgId]) => msgId)))
      t.equal(tasks.length, rows.length)
      t.notOk(existsSync(path.join(cwd, 'import-rejected.ndjson')), 'no file where nothing was refused')
    }
  )
}

t.test('it waits for an Ackbox that is away, and ends at once where the key is wrong', async t => {
  const statuses = [503, 500, 200, 401]
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      const status = statuses.shift() ?? 500
      response.writeHead(status).end(status === 200 ? '{"results":[{"status":201}]}' : '{}')
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const to = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const shop = await onPostgres(t)
  await shop.run(insert([['one', '{"n":1}']]))
  const cwd = folder(t)
  const waiting = importing(t, shop.url, cwd, '--to', to)
  t.equal(await ended(waiting), 0)
  t.match(waiting.lines.filter(line => line.includes('Trying again')).length, 2)
  t.match(waiting.lines.join('\n'), /1 of 1 rows: 1 new/)
  const wrong = importing(t, shop.url, cwd, '--to', to)
  t.equal(await ended(wrong), 1)
  t.match(wrong.lines.join('\n'), /0 of 1 rows.* · ended early\n.*answered 401.*Run the same command again/)
  const bad = importing(t, shop.url, cwd, '--to', to, '--where', 'nonsense = 1')
  await bad.said(/refuses the query: column "nonsense" does not exist/)
  t.equal(await bad.stop('SIGCONT'), 1)
})

t.test('without a terminal it says now and then how far it is', async t => {
  let answer = (): void => {}
  const server = createServer((request, response) => {
    request.resume().on('end', () => (answer = () => response.end('{"results":[{"status":201}]}')))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const shop = await onPostgres(t)
  await shop.run(insert([['one', '{"n":1}']]))
  const to = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const copy = importing(t, shop.url, folder(t), '--to', to)
  await copy.said(/^0 of 1 rows: 0 new, 0 already there, 0 rejected, 0 a second$/)
  answer()
  t.equal(await ended(copy), 0)
})

t.test('mysql: a time that is none is refused, and not left out', async t => {
  const shop = await onMariadb(t)
  if (!shop) return
  const on = await stage(t)
  if (!on) return
  const service = await start(t, on.env)
  await shop.run(insert([['seconds', '{"n": 1}']]))
  const epoch = columns.replace('deliverStartTime=next_retry', 'deliverStartTime=1924992000')
  const cwd = folder(t)
  const copy = importing(t, shop.url, cwd, '--columns', epoch, '--to', service.url)
  t.equal(await ended(copy), 2)
  const kept = readFileSync(path.join(cwd, 'import-rejected.ndjson'), 'utf8')
  t.match(JSON.parse(kept), { row: { deliverStartTime: '1924992000' }, problem: { code: 'INVALID' } })
})

t.test('mysql: a time held as text keeps its zone', async t => {
  const shop = await onMariadb(t)
  const on = shop && (await stage(t))
  if (!on) return
  const service = await start(t, on.env)
  const taken = {
    '2020-12-20': '2020-12-20T00:00:00.000Z',
    '2020-12-20 10:00:00': '2020-12-20T10:00:00.000Z',
    '2020-12-20 10:00:00.250000': '2020-12-20T10:00:00.250Z',
    '2020-12-20T10:00:00': '2020-12-20T10:00:00.000Z',
    '20201220100000': '2020-12-20T10:00:00.000Z',
    '2020-12-20T10:00:00Z': '2020-12-20T10:00:00.000Z',
    '2020-12-20t10:00:00z': '2020-12-20T10:00:00.000Z',
    '2020-12-20T10:00:00+08:00': '2020-12-20T02:00:00.000Z',
    '2020-12-20T10:00:00.25+08:00': '2020-12-20T02:00:00.250Z',
    '2020-12-20T10:00:00-05:30': '2020-12-20T15:30:00.000Z'
  }
  // No RFC 3339: refused, and not read without its end.
  const refused = [
    '2020-12-20T10:00:00+0800',
    '2020-12-20T10:00:00+08',
    '2020-12-20T10:00+08:00',
    '2020-12-20 10:00:00 +08:00',
    '2020-12-20 10:00:00 CST',
    '2020-12-20 10:00:00 PM',
    '20201220T100000+0800',
    '20201220100000+0800'
  ]
  const texts = [...Object.keys(taken), ...refused]
  await shop.run('alter table message add at varchar(40), add raw varbinary(40)')
  await shop.run(insert(texts.map((_, nth) => [`t-${nth}`, '{"n": 1}'])))
  for (const [nth, text] of texts.entries())
    await shop.run(`update message set at = '${text}', raw = '${text}' where msg_id = 't-${nth}'`)
  for (const column of ['at', 'raw']) {
    const cwd = folder(t)
    const given = `taskNo=concat(msg_id, '-${column}'),messageCode='test.plain',messageBody=payload,deliverStartTime=${column}`
    t.equal(await ended(importing(t, shop.url, cwd, '--columns', given, '--to', service.url)), 2)
    const kept = readFileSync(path.join(cwd, 'import-rejected.ndjson'), 'utf8').trim().split('\n')
    t.match(
      kept.map(line => JSON.parse(line) as unknown),
      only(...refused.map(text => ({ row: { deliverStartTime: text }, problem: { code: 'INVALID' } })))
    )
    const tasks = await on.sql<{ task_no: string; deliver_start_time: Date }[]>`
      select task_no, deliver_start_time from task where task_no like ${`%-${column}`}`
    const read = new Map(tasks.map(task => [task.task_no, task.deliver_start_time.toISOString()]))
    t.same(
      Object.fromEntries(texts.map((text, nth) => [text, read.get(`t-${nth}-${column}`)])),
      { ...Object.fromEntries(refused.map(text => [text, undefined])), ...taken },
      column
    )
  }
  const once = ['--where', "msg_id = 't-0'", '--to', service.url]
  const typed = (name: string, sql: string): string =>
    `taskNo='${name}',messageCode='test.plain',messageBody=payload,deliverStartTime=${sql}`
  const types = {
    datetime: "cast('2020-12-20 10:00:00.25' as datetime(6))",
    date: 'cast(at as date)',
    number: '20201220100000'
  }
  for (const [name, sql] of Object.entries(types))
    t.equal(await ended(importing(t, shop.url, folder(t), '--columns', typed(name, sql), ...once)), 0)
  t.same(
    (
      await on.sql<{ task_no: string; deliver_start_time: Date }[]>`
        select task_no, deliver_start_time from task where task_no = any(${Object.keys(types)}) order by task_no`
    ).map(task => [task.task_no, task.deliver_start_time.toISOString()]),
    [
      ['date', '2020-12-20T00:00:00.000Z'],
      ['datetime', '2020-12-20T10:00:00.250Z'],
      ['number', '2020-12-20T10:00:00.000Z']
    ]
  )
})

t.test('postgres: a time of infinity is refused, and not left out', async t => {
  const on = await stage(t)
  const shop = on && (await onPostgres(t))
  if (!shop) return
  const service = await start(t, on.env)
  await shop.run(insert([['never', '{"n": 1}', 'NEW', 'infinity']]))
  const cwd = folder(t)
  t.equal(await ended(importing(t, shop.url, cwd, '--to', service.url)), 2)
  const kept = readFileSync(path.join(cwd, 'import-rejected.ndjson'), 'utf8')
  t.match(JSON.parse(kept), { row: { deliverStartTime: 'infinity' }, problem: { code: 'INVALID' } })
})

t.test('mysql: a flag is read as its table writes it, and any other is refused', async t => {
  const shop = await onMariadb(t)
  const on = shop && (await stage(t))
  if (!on) return
  const service = await start(t, on.env)
  const flags = ['Y', 'n', 'TRUE', 'false', '1', '0', 'YES']
  await shop.run("alter table message add bits bit(1) default b'0'")
  await shop.run(insert(flags.map(flag => [flag, '{"n": 1}', flag])))
  const cwd = folder(t)
  const flagged = `${columns},needCallback=bits,uniqueBiz=status,bizType='test',bizKey=msg_id`
  t.equal(await ended(importing(t, shop.url, cwd, '--columns', flagged, '--to', service.url)), 2)
  const kept = readFileSync(path.join(cwd, 'import-rejected.ndjson'), 'utf8')
  t.match(JSON.parse(kept), {
    row: { taskNo: 'YES' },
    problem: { code: 'INVALID', pointer: '/uniqueBiz', detail: /uniqueBiz is "YES"/ }
  })
  const tasks = await on.sql`select task_no, need_callback, unique_biz from task`
  const read = new Map(tasks.map(task => [task['task_no'], task]))
  t.equal(read.size, 6)
  for (const [nth, flag] of flags.slice(0, 6).entries()) {
    t.equal(read.get(flag)?.['unique_biz'] ?? false, nth % 2 === 0, flag)
    t.equal(read.get(flag)?.['need_callback'], false)
  }
})

t.test('mysql: bytes that are not UTF-8 are refused, unless their character set is named', async t => {
  const shop = await onMariadb(t)
  const on = shop && (await stage(t))
  if (!on) return
  const service = await start(t, on.env)
  await shop.run('alter table message modify payload blob, add note text character set gbk')
  await shop.run(insert([['utf8', '{"n": 1, "s": "支付"}']]))
  await shop.run(insert([['gbk', null]]))
  await shop.run(`update message set note = '支付'`)
  await shop.run(
    `update message set payload = convert('{"n": 2, "s": "支付"}' using gbk) where msg_id = 'gbk'`
  )
  const cwd = folder(t)
  const noted = `${columns},sceneType=note`
  t.equal(await ended(importing(t, shop.url, cwd, '--columns', noted, '--to', service.url)), 2)
  const kept = readFileSync(path.join(cwd, 'import-rejected.ndjson'), 'utf8')
  t.match(JSON.parse(kept), {
    row: { taskNo: 'gbk' },
    problem: { code: 'NOT_UTF8', pointer: '/messageBody', detail: /convert\(payload using gbk\)/ }
  })
  const named = noted.replace('=payload', '=convert(payload using gbk)')
  const more = ['--columns', named, '--where', "msg_id = 'gbk'", '--to', service.url]
  t.equal(await ended(importing(t, shop.url, cwd, ...more)), 0)
  await until('both are delivered', () => on.downstream.requests.length === 2)
  t.same(
    new Set(on.downstream.requests.map(each => each.body)),
    new Set(['{"n": 1, "s": "支付"}', '{"n": 2, "s": "支付"}'])
  )
})

t.test('what a proxy refuses without JSON is kept as it said it', async t => {
  const shop = await onPostgres(t)
  await shop.run(insert([['large', '{"n": 1}']]))
  const proxy = createServer((request, response) => {
    request.resume().on('end', () => response.writeHead(413).end('<html>too large</html>'))
  })
  proxy.listen(0, '127.0.0.1')
  await once(proxy, 'listening')
  t.teardown(() => proxy.close())
  const cwd = folder(t)
  const to = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`
  const copy = importing(t, shop.url, cwd, '--to', to)
  t.equal(await ended(copy), 2)
  const kept = readFileSync(path.join(cwd, 'import-rejected.ndjson'), 'utf8')
  t.match(JSON.parse(kept), { row: { taskNo: 'large' }, problem: '<html>too large</html>' })
})

t.test('columns are cut where SQL ends, and a wrong one is named', async t => {
  t.same(
    readColumns("taskNo=concat('a,b=', id), messageCode = 'x.y',messageBody=json_object('a', f(1, 2))"),
    {
      taskNo: "concat('a,b=', id)",
      messageCode: "'x.y'",
      messageBody: "json_object('a', f(1, 2))"
    }
  )
  t.throws(() => readColumns('taskNo=id,messageCode=c'), { message: '--columns: messageBody=… is missing' })
  t.throws(() => readColumns('taskNr=id'), { message: /did you mean taskNo\?/ })
  t.throws(() => readColumns('taskNo=id,'), { message: /an empty part/ })
  t.throws(() => readColumns('taskNo=id,taskNo=x'), { message: /twice/ })
})

t.test('the SQL of docs/moving-in.md moves the open rows to the outbox, and once', async t => {
  const root = path.resolve(import.meta.dirname, '../../..')
  const [sql = ''] = page(root, 'docs/moving-in.md').blocks.flatMap(one =>
    one.language === 'sql' ? [one.text] : []
  )
  const db = await testDb(t)
  await db.sql`create table message (msg_id text, payload jsonb, status text, next_retry_at timestamptz)`
  await db.sql`insert into message values ('a', '{"n":1}', 'NEW', now()), ('b', '{"n":2}', 'DONE', now())`
  t.equal((await db.sql.unsafe(sql)).length, 1)
  t.equal((await db.sql.unsafe(sql)).length, 0)
  t.match(
    await db.sql`select task_no, message_code from outbox`,
    only({ task_no: 'a', message_code: 'order.paid' })
  )
})
