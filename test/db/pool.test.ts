import { once } from 'node:events'
import net from 'node:net'
import { TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { checkServer, isInfrastructure, locatePrimary, openDb } from '../../src/db/pool.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'
import { key, selfSigned } from '../transport/certs.ts'

t.test('a server that cannot keep the promise is refused with what to do', async t => {
  const { url, sql } = await testDb(t)
  t.match(await checkServer(sql), { version: /^\d+/ })
  const readonly = openDb(`${url}?default_transaction_read_only=on`, { max: 1 })
  await t.rejects(checkServer(readonly), { name: 'DatabaseError', message: /read-only/ })
  await readonly.end()
  const name = new URL(url).pathname.slice(1)
  await sql.unsafe(`create database ${name}_latin encoding 'LATIN1' template template0 locale 'C'`)
  const latin = openDb(`${url}_latin`, { max: 1 })
  await t.rejects(checkServer(latin), { name: 'DatabaseError', message: /LATIN1.*UTF8/ })
  await latin.end()
  await sql.unsafe(`drop database ${name}_latin`)
})

t.test('the hot pool commits synchronously and plans for young tables, whatever the server says', async t => {
  const { url } = await testDb(t)
  const sql = openDb(url, { max: 1 })
  t.teardown(() => sql.end())
  const [row] = await sql`
    select current_setting('synchronous_commit') as sync, current_setting('enable_seqscan') as seqscan,
           current_setting('jit') as jit, current_setting('statement_timeout') as timeout,
           9007199254740991::bigint as big, now() as now, array[1::bigint] as bigs`
  t.match(row, {
    sync: 'on',
    seqscan: 'off',
    jit: 'off',
    timeout: '10s',
    big: 9007199254740991,
    now: Date,
    bigs: only(1)
  })
})

t.test('the database away or full is told from a statement that is wrong', async t => {
  const { sql } = await testDb(t)
  const error = async (query: PromiseLike<unknown>) =>
    await query.then(
      () => undefined,
      (err: unknown) => err
    )
  t.notOk(isInfrastructure(await error(sql`select 1 / 0`)))
  t.notOk(isInfrastructure(await error(sql`select nonsense`)))
  t.notOk(isInfrastructure(new TypeError('ours')))
  t.notOk(isInfrastructure(undefined))
  t.ok(isInfrastructure(await error(sql`select pg_terminate_backend(pg_backend_pid())`)))
  const nobody = openDb('postgres://x:x@127.0.0.1:1/x', { max: 1 })
  t.ok(isInfrastructure(await error(nobody`select 1`)))
  await nobody.end()
  t.ok(isInfrastructure(await error(nobody`select 1`)), 'a closed pool')
  const wrong = openDb('postgres://x:x@no.such.host.invalid/x', { max: 1 })
  t.ok(isInfrastructure(await error(wrong`select 1`)))
  await wrong.end()
})

t.test('a certificate that is not accepted is the database away', async t => {
  const server = net.createServer(socket => {
    socket.on('error', () => {})
    // The request for TLS is answered with one letter.
    socket.once('data', () => {
      socket.write('S')
      new TLSSocket(socket, { isServer: true, cert: selfSigned, key }).on('error', () => {})
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as net.AddressInfo
  const sql = openDb(`postgres://x:x@127.0.0.1:${port}/x?sslmode=verify-full`, { max: 1 })
  t.teardown(() => sql.end({ timeout: 0 }))
  const err: unknown = await sql`select 1`.then(
    () => undefined,
    (reason: unknown) => reason
  )
  t.match(err, { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' })
  t.ok(isInfrastructure(err))
})

t.test(
  'a server that vanished without a word is given up, and the pool is whole when it is back',
  async t => {
    const { url } = await testDb(t)
    const proxy = await startProxy(t, Number(new URL(url).port))
    const far = new URL(url)
    far.port = String(proxy.port)
    const sql = openDb(far.href, { max: 2, silenceMs: 2_000 })
    await sql`select 1`
    proxy.silent = true
    const lost = await sql`select 2`.then(
      () => undefined,
      (err: unknown) => err
    )
    t.match(lost, { code: 'ETIMEDOUT' })
    t.ok(isInfrastructure(lost))
    proxy.silent = false
    await new Promise(resolve => setTimeout(resolve, 50)) // its socket is closing
    t.match(await Promise.all([sql`select 3 as n`, sql`select 4 as n`]), [[{ n: 3 }], [{ n: 4 }]])
    await sql.end({ timeout: 1 })
  }
)

t.test(
  'the search for the primary does not wait for a host that falls silent after the handshake',
  async t => {
    const { url } = await testDb(t)
    const silent = net.createServer(socket => {
      socket.on('error', () => {})
      // AuthenticationOk and ReadyForQuery: https://www.postgresql.org/docs/17/protocol-message-formats.html
      socket.once('data', () => socket.write(Buffer.from('R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I', 'latin1')))
    })
    silent.listen(0, '127.0.0.1')
    await once(silent, 'listening')
    t.teardown(() => silent.close())
    const { port } = silent.address() as net.AddressInfo
    await locatePrimary(url.replace('@', `@127.0.0.1:${port},`))
    t.pass()
  }
)

t.test('a connection that is merely idle is kept', async t => {
  const { url } = await testDb(t)
  const sql = openDb(url, { max: 1, silenceMs: 1_500 })
  const pid = async () => (await sql<{ pid: number }[]>`select pg_backend_pid() as pid`)[0]?.pid
  const before = await pid()
  await new Promise(resolve => setTimeout(resolve, 2_000)) // longer than silenceMs
  t.equal(await pid(), before)
  await sql.end()
})

/** A proxy that passes bytes on. While `silent`, it drops them, like a pulled cable. */
async function startProxy(t: Test, to: number): Promise<{ port: number; silent: boolean }> {
  const sockets = new Set<net.Socket>()
  const server = net.createServer(near => {
    const far = net.connect(to, '127.0.0.1')
    for (const [from, into] of [
      [near, far],
      [far, near]
    ] as const) {
      sockets.add(from)
      from.on('data', bytes => {
        if (!proxy.silent) into.write(bytes)
      })
      from.on('error', () => {}).on('close', () => into.destroy())
    }
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const proxy = { port: (server.address() as net.AddressInfo).port, silent: false }
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return proxy
}
