import { Redis } from 'ioredis'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import {
  redisStreamTransport,
  type RedisStreamRequest
} from '../../src/transport/redis-stream/redis-stream.ts'
import type { Transport } from '../../src/transport/types.ts'
import { sendContext } from '../transport/send-context.ts'
import { without } from '../support/program.ts'
import { until } from '../support/until.ts'
import { brokerConformance, type BrokerUnderTest } from './conformance.ts'
import { freePorts, server } from './server.ts'

const skip = without('apt-get')
const password = 'pass-7Qx'

function transportAt(url: string, allow?: string[]): Transport<RedisStreamRequest> {
  const broker = parseBroker('redis-stream', url) as Broker
  return redisStreamTransport({
    guard: guard({ allow, embedded: allow === undefined, deny: [] }),
    brokers: new Map([['redis-stream', broker]]),
    log: { info: () => {}, warn: () => {} }
  })
}

async function redis(t: Test) {
  const [port] = await freePorts(1)
  const running = await server(t, {
    name: 'redis',
    env: { REDIS_PORT: String(port), REDIS_EXTRA: `--requirepass ${password}` },
    ready: /Ready to accept connections/
  })
  const asked = async <T>(what: (client: Redis) => Promise<T>): Promise<T> => {
    const client = new Redis({ port: port!, password })
    client.on('error', () => {})
    try {
      return await what(client)
    } finally {
      client.disconnect()
    }
  }
  const url = ({ port: other = port, login = `:${password}` }: { port?: number; login?: string } = {}) =>
    `redis://${login}@127.0.0.1:${other}`
  return { server: running, url, asked }
}

async function make(t: Test): Promise<BrokerUnderTest<RedisStreamRequest>> {
  const broker = await redis(t)
  return {
    server: broker.server,
    url: broker.url,
    transport: url => transportAt(url),
    request: ({ body, headers }) =>
      body === undefined && !headers
        ? { stream: 'orders' }
        : { stream: 'orders', fields: { body: body ?? '', ...headers } },
    missing: () => ({ stream: 'nobody', create: false }),
    tooLarge: undefined,
    wrongLogin: 'default:wrong-9Zk',
    backMs: 10_000,
    stored: count =>
      broker.asked(async client => {
        await until(`${count} are stored`, async () => (await client.xlen('orders')) >= count)
        const entries = await client.xrangeBuffer('orders', '-', '+')
        return entries.map(([, flat]) => {
          const headers: Record<string, string> = {}
          let body = Buffer.alloc(0)
          for (let i = 0; i < flat.length; i += 2) {
            if (String(flat[i]) === 'body') body = Buffer.from(flat[i + 1]!)
            else headers[String(flat[i])] = String(flat[i + 1])
          }
          return { body, headers }
        })
      })
  }
}

t.test('redis-stream', { skip }, async t => {
  brokerConformance(t, make)

  t.test('what the server says', async t => {
    const broker = await redis(t)
    const transport = transportAt(broker.url())
    t.teardown(() => transport.close())
    const send = (request: unknown) =>
      transport.send(request as RedisStreamRequest, sendContext({ raw: 'x' }))

    await broker.asked(client => client.set('text', 'x'))
    t.match(await send({ stream: 'text' }), { kind: 'refused', reason: /^wrong_type/ })

    for (let i = 0; i < 300; i++) await send({ stream: 'short', maxlen: 10 })
    const length = await broker.asked(client => client.xlen('short'))
    t.ok(length >= 10 && length < 300, `cut to about 10: ${length}`)

    await broker.asked(client => client.config('SET', 'maxmemory', '1'))
    t.match(await send({ stream: 'orders' }), { kind: 'failed', reason: /^full/ })
    await broker.asked(client => client.config('SET', 'maxmemory', '0'))

    await broker.asked(client => client.replicaof('127.0.0.1', 1))
    t.match(await send({ stream: 'orders' }), { kind: 'failed', reason: /^readonly/ })
    await broker.asked(client => client.replicaof('NO', 'ONE'))
    t.match(await send({ stream: 'orders' }), { kind: 'delivered' }, 'by a new connection')

    const open = transportAt(broker.url().replace(`:${password}@`, ''))
    t.teardown(() => open.close())
    t.match(await open.send({ stream: 'orders' }, sendContext()), { kind: 'failed', reason: /^credentials/ })

    const wrong = [
      null,
      { stream: '' },
      { stream: 'a', maxlen: 0 },
      { stream: 'a', fields: {} },
      { stream: 'a', fields: { n: 7 } },
      { stream: 'a', fields: { 'Webhook-Id': 'x' } },
      { stream: 'a', broker: 'other' }
    ]
    for (const request of wrong) t.match(await send(request), { kind: 'failed', reason: /^bad_request/ })
  })

  t.test('the signature is over the body, or over all fields in their order', async t => {
    const broker = await redis(t)
    const transport = transportAt(broker.url())
    t.teardown(() => transport.close())
    const signed: unknown[] = []
    const headers = (payload: string | Uint8Array) => {
      signed.push(payload)
      return { 'webhook-id': 'msg_1' }
    }
    await transport.send({ stream: 'a', fields: { no: '1', body: 'b' } }, sendContext({ headers }))
    await transport.send({ stream: 'a', fields: { no: '1', cents: '2' } }, sendContext({ headers }))
    t.strictSame(signed, ['b', '["no","1","cents","2"]'])
    const entries = await broker.asked(client => client.xrange('a', '-', '+'))
    t.strictSame(entries[1]?.[1], ['no', '1', 'cents', '2', 'webhook-id', 'msg_1'])
  })

  t.test('nothing waits for a server that is away to run later', async t => {
    const broker = await redis(t)
    const transport = transportAt(broker.url())
    t.teardown(() => transport.close())
    t.match(await transport.send({ stream: 'a' }, sendContext()), { kind: 'delivered' })
    await broker.server.kill()
    const sent = Array.from({ length: 20 }, () =>
      transport.send({ stream: 'a' }, sendContext({ timeoutMs: 1_000 }))
    )
    for (const outcome of await Promise.all(sent)) t.match(outcome, { kind: 'failed' })
    await broker.server.start()
    await sleep(1_000)
    t.match(await transport.send({ stream: 'a' }, sendContext()), { kind: 'delivered' })
    t.equal(await broker.asked(client => client.xlen('a')), 2)
  })

  t.test('a server at a denied address is never connected to', async t => {
    let connections = 0
    const listening = createServer(socket => {
      connections++
      socket.destroy()
    }).listen(0, '127.0.0.1')
    await once(listening, 'listening')
    t.teardown(() => listening.close())
    const { port } = listening.address() as { port: number }
    for (const host of ['127.0.0.1', 'localhost']) {
      const transport = transportAt(`redis://${host}:${port}`, [])
      t.match(await transport.send({ stream: 'a' }, sendContext()), {
        kind: 'failed',
        reason: /^blocked_target/,
        alarm: 'BLOCKED_TARGET'
      })
      await transport.close()
    }
    t.equal(connections, 0)
  })
})
