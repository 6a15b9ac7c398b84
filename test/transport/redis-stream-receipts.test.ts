// The reader of receipts against a real Redis, while PostgreSQL is slow.
import { Redis } from 'ioredis'
import t from 'tap'
import { readReceipts } from '../../src/transport/redis-stream/receipts.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { ownRedis } from '../support/redis.ts'
import { until } from '../support/until.ts'

t.setTimeout(120_000)

t.test('of large receipts few are in hand at a time, and all are handled', async t => {
  const redis = await ownRedis(t)
  if (!redis) return
  const client = new Redis(redis.url)
  t.teardown(() => client.disconnect())
  for (let n = 0; n < 20; n++)
    await client.xadd('ackbox.receipts', '*', 'body', `${n} ${'x'.repeat(1_500_000)}`)
  let inHand = 0
  let mostInHand = 0
  const stop = new AbortController()
  const over = readReceipts(
    {
      broker: parseBroker('redis-stream', redis.url) as Broker,
      guard: guard({ allow: undefined, embedded: true, deny: [] }),
      log: { info: () => {}, warn: () => {} }
    },
    async () => {
      mostInHand = Math.max(mostInHand, ++inHand)
      // As long as a slow PostgreSQL takes. The bound is in bytes, so a busy machine does not change it.
      await new Promise(resolve => setTimeout(resolve, 500))
      inHand--
      return 'done'
    },
    stop.signal
  )
  t.teardown(() => (stop.abort(), over))
  await until('all are handled', async () => (await client.xlen('ackbox.receipts')) === 0)
  t.ok(mostInHand <= 5, `${mostInHand} of 1.5 MB in hand`)
})
