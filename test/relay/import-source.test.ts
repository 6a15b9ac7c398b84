// What ends an import is named: only an error of Ackbox is called a bug.
import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { openDb } from '../../src/db/pool.ts'
import { emptyDb } from '../support/postgres.ts'
import { program } from '../support/program.ts'
import { folder } from '../support/service.ts'
import { bin } from './producer.ts'

t.setTimeout(120_000)

const columns = 'taskNo=no,messageCode=no,messageBody=body'

/** What an import from here prints. It ends with exit code 1. */
async function failing(t: Test, from: string, ...more: string[]): Promise<string> {
  const args = ['import', '--from', from, '--table', 'message', '--columns', columns]
  const copy = program(t, process.execPath, [bin, ...args, '--to', 'http://127.0.0.1:1', ...more], {
    env: {},
    cwd: folder(t)
  })
  t.equal(await copy.exited, 1)
  return copy.lines.join('\n')
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
