// What ends an import is named: only an error of Ackbox is called a bug.
import { once } from 'node:events'
import { createServer as createHttp } from 'node:http'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { json } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { isInfrastructure, openDb } from '../../src/db/pool.ts'
import { readColumns } from '../../src/relay/columns.ts'
import { withTable, type TableQuery } from '../../src/relay/table.ts'
import { emptyDb } from '../support/postgres.ts'
import { program, type Program } from '../support/program.ts'
import { scriptedMysql, type Answer } from '../support/scripted-mysql.ts'
import { folder } from '../support/service.ts'
import { until } from '../support/until.ts'
import { bin } from './producer.ts'

t.setTimeout(2_400_000)

const columns = 'taskNo=no,messageCode=no,messageBody=body'

/** What an import from here prints. It ends with exit code 1. */
async function failing(t: Test, from: string, ...more: string[]): Promise<string> {
  const copy = importing(t, from, '--to', 'http://127.0.0.1:1', ...more)
  t.equal(await copy.exited, 1)
  return copy.lines.join('\n')
}

function importing(t: Test, from: string, ...more: string[]): Program {
  const args = ['import', '--from', from, '--table', 'message', '--columns', columns]
  return program(t, process.execPath, [bin, ...args, ...more], { env: {}, cwd: folder(t) })
}

/** An Ackbox that takes every task. Resolves to its URL. */
async function ackbox(t: Test, onPost: () => void): Promise<string> {
  const listening = createHttp((request, answer) => {
    void json(request).then(body => {
      const { tasks } = body as { tasks: { taskNo: string }[] }
      const results = tasks.map(({ taskNo }) => ({ taskNo, status: 201 }))
      answer.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ results }))
      onPost()
    })
  })
  listening.listen(0, '127.0.0.1')
  await once(listening, 'listening')
  t.teardown(() => {
    listening.closeAllConnections()
    listening.close()
  })
  return `http://127.0.0.1:${(listening.address() as AddressInfo).port}`
}

const counted: Answer = { columns: ['n'], rows: [['1000']], isWhole: true }
/** The first 20 of the 1,000 rows. */
const begun = {
  columns: ['taskNo', 'messageCode', 'messageBody', 'unreadable'],
  rows: Array.from({ length: 20 }, (_, index) => [`t${index}`, 'order.paid', '{}', '']),
  isWhole: false
}
const isCount = (statement: string): boolean => statement.includes('count(*)')
const isRows = (statement: string): boolean => statement.includes('as `taskNo`')
const query: TableQuery = {
  table: 'message',
  columns: readColumns(columns),
  where: undefined,
  order: undefined,
  batch: 10
}

/** A server that is no database. Resolves to its address. */
async function server(t: Test, talk: (socket: Socket) => void): Promise<string> {
  const listening = createServer(socket => {
    socket.on('error', () => {})
    talk(socket)
  })
  listening.listen(0, '127.0.0.1')
  await once(listening, 'listening')
  t.teardown(() => listening.close())
  return `127.0.0.1:${(listening.address() as AddressInfo).port}`
}

const away =
  /^ackbox import: the database of --from cannot be used \(.+\): check the URL, and that the server is up$/

t.test('a MySQL whose connection ends, and a server without TLS, are away', async t => {
  const ending = await server(t, socket => socket.end())
  t.match(await failing(t, `mysql://root@${ending}/test`), away)
  // It agrees to TLS, and then speaks another protocol.
  const plain = await server(t, socket => {
    socket.once('data', () => {
      socket.once('data', () => socket.end('no TLS here'))
      socket.write('S')
    })
  })
  t.match(await failing(t, `postgres://root@${plain}/test?sslmode=require`), away)
})

t.test('a full disk is an error of the file for refused rows', async t => {
  const url = await emptyDb(t)
  const sql = openDb(url, { max: 1, applicationName: 'shop' })
  t.teardown(() => sql.end({ timeout: 5 }))
  await sql`create table message as select 'one' as no, 'no json' as body`
  const said = await failing(t, url, '--rejected', '/dev/full')
  t.match(said, /^--rejected \/dev\/full cannot be written: ENOSPC.*$/m)
})

/** A MySQL that sends the first rows of an import, and the connection on which it has sent them. */
async function begunMysql(
  t: Test,
  rows: Answer = begun
): Promise<{ from: string; rowsOf: () => Socket | undefined }> {
  let rowsOf: Socket | undefined
  const from = await scriptedMysql(t, (statement, socket) => {
    if (isCount(statement)) return counted
    if (!isRows(statement)) return 'ok'
    rowsOf = socket
    return rows
  })
  return { from, rowsOf: () => rowsOf }
}

for (const [how, die] of Object.entries({
  closes: (socket: Socket) => socket.end(),
  resets: (socket: Socket) => socket.resetAndDestroy()
})) {
  t.test(`a MySQL that ${how} the connection amid the rows ends the import`, async t => {
    const { from, rowsOf } = await begunMysql(t)
    const to = await ackbox(t, () => {
      const socket = rowsOf()
      if (socket) die(socket)
    })
    const copy = importing(t, from, '--to', to, '--batch', '10')
    t.equal(await copy.exited, 1)
    t.match(copy.lines.join('\n'), /^[12]0 of 1,000 rows: [12]0 new, .* · ended early$/m)
    t.ok(copy.lines.some(line => away.test(line)))
  })
}

t.test('a MySQL that dies before the first row is read fails the loop over the rows', async t => {
  const { from, rowsOf } = await begunMysql(t)
  const lost = withTable(
    from,
    // All that comes fits in: the client still reads when the connection ends.
    { ...query, batch: 100 },
    async ({ batches }) => {
      await until('the rows are sent', () => rowsOf() !== undefined)
      rowsOf()?.end()
      await until('the client closed its side too', () => rowsOf()?.closed === true)
      for await (const _ of batches);
    },
    new AbortController().signal
  )
  await t.rejects(lost, { code: 'PROTOCOL_CONNECTION_LOST' })
})

t.test('a MySQL that ends the connection behind its last row ends no import', async t => {
  const { from, rowsOf } = await begunMysql(t, { ...begun, isWhole: true })
  let seen = 0
  await withTable(
    from,
    { ...query, batch: 5 },
    async ({ batches }) => {
      for await (const batch of batches) {
        seen += batch.length
        rowsOf()?.end()
        await until('the client closed its side too', () => rowsOf()?.closed === true)
      }
    },
    new AbortController().signal
  )
  t.equal(seen, 20)
})

t.test('a MySQL that lets the import in and then is silent is away', async t => {
  const from = await scriptedMysql(t, () => 'nothing')
  const lost = withTable(from, query, async () => {}, new AbortController().signal, 200)
  t.ok(isInfrastructure(await lost.catch((err: unknown) => err)))
})

for (const [what, isLast] of Object.entries({ count: isCount, rows: isRows })) {
  t.test(`one SIGTERM ends an import that waits for the ${what} of a silent MySQL`, async t => {
    let isAsked = false
    const from = await scriptedMysql(t, statement => {
      if (!isLast(statement)) return isCount(statement) ? counted : 'ok'
      isAsked = true
      return 'nothing'
    })
    const copy = importing(t, from, '--to', 'http://127.0.0.1:1')
    await until('the import waits', () => isAsked)
    t.equal(await copy.stop(), 130)
  })
}
