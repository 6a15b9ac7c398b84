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
import { stopwatch } from '../support/stopwatch.ts'
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
  const began = stopwatch(t)
  let outcome = await send()
  t.match(outcome, { kind: 'failed', reason: 'timeout' })
  while (outcome.kind === 'failed' && began() < 2_000) outcome = await send()
  t.match(outcome, { kind: 'delivered' })
})

t.test('a connection that answers later and later is dropped, one that is only slow is not', async t => {
  let clock = performance.now()
  t.capture(performance, 'now', () => clock)
  let answer = (): void => {}
  let came = (): void => {}
  const server = await scriptedServer(
    t,
    speaksRedis(/xadd/i, socket => {
      answer = () => socket.write('+1-1\r\n')
      socket.on('data', () => came())
      came()
    })
  )
  const transport = open(t, `redis://127.0.0.1:${server.port}`)
  /** Resolves when the server has the command. */
  const send = async (timeoutMs: number) => {
    const arrived = new Promise<void>(resolve => (came = resolve))
    const outcome = transport.send({ stream: 'orders' }, sendContext({ raw: 'x', timeoutMs }))
    await arrived
    return { outcome }
  }
  const late = async (): Promise<void> => {
    const { outcome } = await send(100)
    clock += 200
    t.match(await outcome, { kind: 'failed', reason: 'timeout' })
  }
  const [first, second, third] = [await send(600_000), await send(600_000), await send(600_000)]
  clock += 29_000
  answer()
  t.match(await first.outcome, { kind: 'delivered' })
  await late()
  await send(600_000)
  t.equal(server.taken, 1, 'nothing has waited for 30 s')
  clock += 1_000
  answer()
  t.match(await second.outcome, { kind: 'delivered' })
  await late()
  await send(600_000)
  t.equal(server.taken, 2)
  if (server.taken === 2) t.match(await third.outcome, { kind: 'failed', reason: 'connection_closed' })
})
