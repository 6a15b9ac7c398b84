import { Redis } from 'ioredis'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createServer } from 'node:tls'
import t, { type Test } from 'tap'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { redisStreamTransport } from '../../src/transport/redis-stream/redis-stream.ts'
import { ownRedis } from '../support/redis.ts'
import * as certs from './certs.ts'
import { redis as speaksRedis } from './conversations.ts'
import { scriptedServer } from './scripted-server.ts'
import { sendContext } from './send-context.ts'

function open(t: Test, url: string) {
  const transport = redisStreamTransport({
    guard: guard({
      allow: undefined,
      embedded: true,
      deny: [],
      resolve: async () => [{ address: '127.0.0.1', family: 4 }]
    }),
    brokers: new Map([['redis-stream', parseBroker('redis-stream', url) as Broker]]),
    log: { info: () => {}, warn: () => {} }
  })
  t.teardown(() => transport.close())
  return transport
}

t.test('an entry for a database that does not exist is not written to database 0', async t => {
  const redis = await ownRedis(t, '--databases', '16')
  if (!redis) return
  const transport = open(t, `${redis.url}/20`)
  for (let i = 0; i < 2; i++)
    t.match(await transport.send({ stream: 'orders' }, sendContext({ raw: 'x' })), {
      kind: 'failed',
      reason: 'target_missing: the server has no such database'
    })
  t.match(await open(t, `${redis.url}/15`).send({ stream: 'orders' }, sendContext({ raw: 'x' })), {
    kind: 'delivered'
  })
  const client = new Redis(redis.url)
  t.equal(await client.exists('orders'), 0)
  client.disconnect()
})

t.test('a certificate that is not trusted raises the alarm TLS', async t => {
  const server = createServer({ key: certs.key, cert: certs.selfSigned }, socket => socket.destroy())
  server.on('tlsClientError', () => {})
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  t.match(await open(t, `rediss://localhost:${port}`).send({ stream: 'orders' }, sendContext({ raw: 'x' })), {
    kind: 'failed',
    reason: 'tls: DEPTH_ZERO_SELF_SIGNED_CERT',
    address: `127.0.0.1:${port}`,
    alarm: 'TLS'
  })
})

t.test('a silent connection is dropped, also if no send waits for half a second', async t => {
  const server = await scriptedServer(t, socket =>
    speaksRedis(/xadd/i, () => server.taken > 1 && socket.write('+1-1\r\n'))(socket)
  )
  const transport = open(t, `redis://127.0.0.1:${server.port}`)
  const send = () => transport.send({ stream: 'orders' }, sendContext({ raw: 'x', timeoutMs: 200 }))
  let outcome = await send()
  t.match(outcome, { kind: 'failed', reason: 'timeout' })
  for (let i = 0; i < 9 && outcome.kind === 'failed'; i++) outcome = await send()
  t.match(outcome, { kind: 'delivered' })
})
