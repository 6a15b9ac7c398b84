import { once } from 'node:events'
import type { AddressInfo, Socket } from 'node:net'
import { createServer, type TlsOptions } from 'node:tls'
import t, { type Test } from 'tap'
import { guard } from '../../src/transport/egress/guard.ts'
import { httpTransport } from '../../src/transport/http/http.ts'
import { stopwatch } from '../support/stopwatch.ts'
import * as certs from './certs.ts'
import { sendContext } from './send-context.ts'
import { answer } from './raw-server.ts'
import { scriptedServer } from './scripted-server.ts'

async function tlsServer(t: Test, options: TlsOptions) {
  const requests: string[] = []
  const server = createServer({ key: certs.key, ...options }, socket => {
    socket
      .on('error', () => {})
      .on('data', data => {
        requests.push(String(data))
        socket.write(answer(200, 'fine'))
      })
  })
  server.on('tlsClientError', () => {})
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const sockets = new Set<{ destroy(): void }>()
  server.on('connection', socket => sockets.add(socket))
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return { requests, port: (server.address() as AddressInfo).port }
}

function open(t: Test, ca?: string) {
  const resolve = async () => [{ address: '127.0.0.1', family: 4 }]
  const http = httpTransport({
    guard: guard({ allow: undefined, embedded: true, deny: [], resolve }),
    limits: { ca }
  })
  t.teardown(() => http.close())
  return http
}

t.test('D6 a bad certificate fails, calls a person, and not a byte of the request leaves', async t => {
  const rows: [name: string, options: TlsOptions, ca: string | undefined, reason: string][] = [
    ['expired', { cert: certs.expired }, certs.ca, 'tls: CERT_HAS_EXPIRED'],
    ['of another name', { cert: certs.otherName }, certs.ca, 'tls: ERR_TLS_CERT_ALTNAME_INVALID'],
    [
      'from an authority nobody knows',
      { cert: certs.good },
      undefined,
      'tls: UNABLE_TO_VERIFY_LEAF_SIGNATURE'
    ],
    ['self-signed', { cert: certs.selfSigned }, undefined, 'tls: DEPTH_ZERO_SELF_SIGNED_CERT']
  ]
  for (const [name, options, ca, reason] of rows) {
    const server = await tlsServer(t, options)
    const http = open(t, ca)
    for (let i = 0; i < 2; i++) {
      const outcome = await http.send({ url: `https://localhost:${server.port}/`, body: 'x' }, sendContext())
      t.match(outcome, { kind: 'failed', reason, alarm: 'TLS' }, name)
    }
    t.strictSame(server.requests, [], name)
  }
})

t.test('a name that ends in a dot is sent and checked without it, and Host has it', async t => {
  const asked: (string | undefined)[] = []
  const server = await tlsServer(t, {
    cert: certs.good,
    SNICallback: (name, done) => {
      asked.push(name)
      done(null)
    }
  })
  const outcome = await open(t, certs.ca).send({ url: `https://localhost.:${server.port}/` }, sendContext())
  t.match(outcome, { kind: 'delivered' })
  t.strictSame(asked, ['localhost'])
  t.match(server.requests[0], `host: localhost.:${server.port}`)
})

t.test('a server that demands a certificate of the client is reported as that', async t => {
  for (const maxVersion of ['TLSv1.2', 'TLSv1.3'] as const) {
    const server = await tlsServer(t, {
      cert: certs.good,
      ca: certs.ca,
      requestCert: true,
      rejectUnauthorized: true,
      maxVersion
    })
    const http = open(t, certs.ca)
    for (const pipelining of [1, 8]) {
      const context = { ...sendContext(), limit: { concurrency: 8, pipelining } }
      const sends = Array.from({ length: 5 }, () =>
        http.send({ url: `https://localhost:${server.port}/`, body: 'x' }, context)
      )
      const reason = /^tls: ERR_SSL_.*_ALERT_(?:CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE)$/
      for (const outcome of await Promise.all(sends))
        t.match(outcome, { kind: 'failed', reason, address: /^127/ }, `${maxVersion}, ${pipelining} at once`)
    }
  }
})

t.test('TLS 1.1 is too old', async t => {
  const server = await tlsServer(t, {
    cert: certs.good,
    minVersion: 'TLSv1',
    maxVersion: 'TLSv1.1',
    ciphers: 'DEFAULT@SECLEVEL=0'
  })
  const outcome = await open(t, certs.ca).send({ url: `https://localhost:${server.port}/` }, sendContext())
  t.match(outcome, { kind: 'failed', reason: /^tls: / })
})

t.test('https to a server that speaks plain http fails', async t => {
  const { rawServer } = await import('./raw-server.ts')
  const server = await rawServer(t, () => {})
  server.open.forEach(socket => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'))
  const outcome = await open(t).send(
    { url: `https://127.0.0.1:${server.port}/` },
    sendContext({ timeoutMs: 300 })
  )
  t.match(outcome, { kind: 'failed', reason: 'connect_timeout' })
})

t.test('a good certificate is delivered to, by name and by address', async t => {
  const server = await tlsServer(t, { cert: certs.good })
  const http = open(t, certs.ca)
  for (const host of ['localhost', '127.0.0.1']) {
    const outcome = await http.send({ url: `https://${host}:${server.port}/x`, body: 'x' }, sendContext())
    t.match(outcome, { kind: 'delivered', address: `127.0.0.1:${server.port}` }, host)
  }
  t.equal(server.requests.length, 2)
})

t.test(
  'a handshake that is reset, garbled or never answered ends by its limit, and leaves no socket',
  async t => {
    const scripts: [name: string, does: (socket: Socket) => void][] = [
      ['reset', socket => socket.once('data', () => socket.resetAndDestroy())],
      ['closed', socket => socket.once('data', () => socket.end())],
      ['garbled', socket => socket.once('data', () => socket.write(Buffer.alloc(2_000, 0x16)))],
      [
        'half a record',
        socket => socket.once('data', () => socket.write(Buffer.from([22, 3, 3, 0x3f, 0xff, 2])))
      ],
      ['an alert', socket => socket.once('data', () => socket.end(Buffer.from([21, 3, 3, 0, 2, 2, 40])))],
      ['silence', socket => socket.resume()]
    ]
    for (const [name, does] of scripts) {
      const server = await scriptedServer(t, does)
      const http = open(t, certs.ca)
      const url = `https://localhost:${server.port}/`
      const started = stopwatch(t)
      t.match(await http.send({ url, body: 'x' }, sendContext({ timeoutMs: 300 })), { kind: 'failed' }, name)
      t.ok(started() < 1_300, name)
      await http.close()
      await server.empty()
    }
  }
)

t.test('a chain of two thousand certificates is not read to its end', async t => {
  const server = await tlsServer(t, { cert: certs.good + certs.ca.repeat(2_000) })
  const began = stopwatch(t)
  const outcome = await open(t, certs.ca).send({ url: `https://localhost:${server.port}/` }, sendContext())
  t.match(outcome, { kind: 'failed', reason: /^tls: / })
  t.ok(began() < 2_000)
  t.strictSame(server.requests, [])
})

t.test('a close_notify in the middle of the body is a warning', async t => {
  const server = createServer({ key: certs.key, cert: certs.good }, socket => {
    socket
      .on('error', () => {})
      .on('data', () => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nfine'))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  t.match(await open(t, certs.ca).send({ url: `https://localhost:${port}/` }, sendContext()), {
    kind: 'delivered',
    warning: 'connection_closed'
  })
})
