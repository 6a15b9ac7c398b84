import { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { redisStreamTransport } from '../../src/transport/redis-stream/redis-stream.ts'
import { ownRedis } from '../support/redis.ts'
import { sendContext } from './send-context.ts'

function open(t: Test, url: string) {
  const transport = redisStreamTransport({
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
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
