import { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { redisStreamTransport, type RedisStreamRequest } from '../../src/transport/redis-stream.ts'
import type { Transport } from '../../src/transport/transport.ts'
import { parcel } from '../transport/parcel.ts'
import { brokerConformance, type Stored } from './conformance.ts'
import { listener, only, strict } from './open.ts'
import { freePorts, server, without, type Server } from './server.ts'

const skip = without('apt-get', 'dpkg')
const password = 'hunter2'

interface Ground {
  port: number
  server: Server
  client: Redis
  url(more?: { port?: number; login?: string }): string
  stored(count: number): Promise<Stored[]>
}

async function redis(t: Test): Promise<Ground> {
  const [port = 0] = await freePorts(1)
  const env = { REDIS_PORT: `${port}`, REDIS_EXTRA: `--requirepass ${password}` }
  const running = await server(t, { name: 'redis', env, ready: /Ready to accept/ })
  const client = new Redis({ host: '127.0.0.1', port, password, retryStrategy: () => 50 })
  client.on('error', () => {})
  t.teardown(() => client.disconnect())
  return {
    port,
    server: running,
    client,
    url: (more = {}) => `redis://${more.login ?? `:${password}`}@127.0.0.1:${more.port ?? port}`,
    async stored() {
      const entries = await client.xrangeBuffer('orders', '-', '+')
      return entries.map(([, flat]) => {
        const fields = new Map<string, Buffer>()
        for (let i = 0; i < flat.length; i += 2) fields.set(String(flat[i]), flat[i + 1]!)
        const { body = Buffer.alloc(0), ...headers } = Object.fromEntries(fields)
        return {
          body,
          headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)]))
        }
      })
    }
  }
}

const open = (t: Test, url: string): Transport<RedisStreamRequest> & { said: { message: string }[] } => {
  const deps = only('redis-stream', url)
  const transport = redisStreamTransport(deps)
  t.teardown(() => transport.close())
  return { ...transport, said: deps.said }
}

t.test('as every broker', { skip }, t => {
  brokerConformance<RedisStreamRequest>(t, async t => {
    const ground = await redis(t)
    return {
      server: ground.server,
      url: ground.url,
      transport: url => redisStreamTransport(only('redis-stream', url)),
      request: ({ body, headers }) => ({
        stream: 'orders',
        ...(body === undefined ? {} : { body }),
        ...(headers === undefined ? {} : { fields: headers })
      }),
      missing: undefined,
      tooLarge: undefined,
      wrongLogin: 'default:not-the-password',
      stored: ground.stored,
      backMs: 10_000
    }
  })
  t.end()
})

t.test('what only Redis does', { skip }, async t => {
  const ground = await redis(t)
  const ways = open(t, ground.url())
  const send = (request: RedisStreamRequest) => ways.send(request, parcel({ raw: '{}' }))

  t.match(await send({ stream: 'cut', maxlen: 10 }), { kind: 'delivered' })
  for (let i = 0; i < 300; i++) await send({ stream: 'cut', maxlen: 10 })
  t.ok((await ground.client.xlen('cut')) < 200, 'maxlen cuts, about')

  await ground.client.set('text', 'x')
  t.match(await send({ stream: 'text' }), { kind: 'failed', reason: /^target_wrong/ })

  await ground.client.config('SET', 'maxmemory', '1')
  t.match(await send({ stream: 'orders' }), { kind: 'failed', reason: /^server_full/ })
  await ground.client.config('SET', 'maxmemory', '0')

  await ground.client.replicaof('127.0.0.1', 1)
  t.match(await send({ stream: 'orders' }), { kind: 'failed', reason: /^server_readonly/ })
  await ground.client.replicaof('NO', 'ONE')
  t.match(await send({ stream: 'orders' }), { kind: 'delivered' })
})

t.test('what a handler must not ask for', { skip }, async t => {
  const ways = open(t, 'redis://127.0.0.1:1')
  const bad: [unknown, RegExp][] = [
    [undefined, /no request/],
    [{ stream: '' }, /stream/],
    [{ stream: 's', maxlen: 0.5 }, /maxlen/],
    [{ stream: 's', body: 7 }, /text or bytes/],
    [{ stream: 's', fields: { 'Webhook-Id': 'x' } }, /not the handler's to set/],
    [{ stream: 's', fields: { body: 'x' } }, /member of its own/],
    [{ stream: 's', fields: { n: 1 } }, /must be a text/],
    [{ stream: 's', broker: 'other' }, /set BROKER_OTHER/]
  ]
  for (const [request, why] of bad) {
    const outcome = await ways.send(request as RedisStreamRequest, parcel())
    t.match(outcome, { kind: 'failed', reason: /^bad_request/ })
    t.match(outcome, { reason: why })
  }
})

t.test('an outage is said once, and once when it is over', { skip }, async t => {
  const ground = await redis(t)
  const ways = open(t, ground.url())
  await ways.send({ stream: 'orders' }, parcel())
  await ground.server.kill()
  for (let i = 0; i < 5; i++) {
    t.match(await ways.send({ stream: 'orders' }, parcel()), { kind: 'failed' })
    await new Promise(resolve => setTimeout(resolve, 120))
  }
  await ground.server.start()
  for (let i = 0; i < 20; i++) {
    if ((await ways.send({ stream: 'orders' }, parcel())).kind === 'delivered') break
    await new Promise(resolve => setTimeout(resolve, 120))
  }
  t.same(
    ways.said.map(each => each.message),
    ['broker.away', 'broker.back']
  )
})

t.test('the egress guard holds: not one connection', async t => {
  const denied = await listener(t)
  const transport = redisStreamTransport(only('redis-stream', `redis://127.0.0.1:${denied.port}`, strict()))
  t.teardown(() => transport.close())
  t.match(await transport.send({ stream: 'orders' }, parcel()), {
    kind: 'failed',
    alarm: 'BLOCKED_TARGET',
    reason: /^blocked_target/
  })
  t.equal(denied.connections(), 0)
})
