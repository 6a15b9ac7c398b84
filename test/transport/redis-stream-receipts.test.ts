// The reader of receipts against a real Redis, while PostgreSQL is slow or Redis hangs.
import { Redis } from 'ioredis'
import t from 'tap'
import { readReceipts } from '../../src/transport/redis-stream/receipts.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { ownRedis } from '../support/redis.ts'
import { until } from '../support/until.ts'
import { redis as speaksRedis } from './conversations.ts'
import { scriptedServer } from './scripted-server.ts'

t.setTimeout(2_400_000)

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

/** A reader of these servers in this order. */
function reader(hosts: string, silentMs: number) {
  const receipts: string[] = []
  const logged: string[] = []
  const say = (_: object, message: string): void => void logged.push(message)
  const stop = new AbortController()
  const over = readReceipts(
    {
      broker: parseBroker('redis-stream', `redis://${hosts}`) as Broker,
      guard: guard({ allow: undefined, embedded: true, deny: [] }),
      log: { info: say, warn: say }
    },
    async ({ body }) => {
      receipts.push(Buffer.from(body).toString())
      return 'done'
    },
    stop.signal,
    silentMs
  )
  const end = (): Promise<void> => (stop.abort(), over)
  return { receipts, logged, end }
}

t.test('a server that hangs is given up, and the next host of the URL is read', async t => {
  const [first, second] = [await ownRedis(t), await ownRedis(t)]
  if (!first || !second) return
  const send = async (port: number, body: string): Promise<void> => {
    const client = new Redis({ port })
    await client.xadd('ackbox.receipts', '*', 'body', body)
    client.disconnect()
  }
  const { receipts, logged, end } = reader(`127.0.0.1:${first.port},127.0.0.1:${second.port}`, 5_000)
  t.teardown(end)
  await send(first.port, 'of the first')
  await until('the first is read', () => receipts.length === 1)
  // Its connections stay, and new ones are accepted.
  void first.kill('SIGSTOP')
  await send(second.port, 'of the second')
  await until('the second is read', () => receipts.length === 2)
  t.same(receipts, ['of the first', 'of the second'])
  t.ok(
    logged.some(each => each.endsWith('.unavailable')),
    'and it is said'
  )
})

t.test('a reader whose command is never answered ends', async t => {
  for (const command of [/xgroup/i, /xreadgroup/i]) {
    let asked = false
    const hangs = await scriptedServer(
      t,
      speaksRedis(command, () => {
        asked = true
      })
    )
    // The time of a silent server never comes.
    const { end } = reader(`127.0.0.1:${hangs.port}`, 3_600_000)
    await until('its command waits', () => asked)
    await end()
    await hangs.empty()
    t.pass(String(command))
  }
})

t.test('a login that may not read the stream is said once, and read when it may', async t => {
  const redis = await ownRedis(t)
  if (!redis) return
  const client = new Redis(redis.url)
  t.teardown(() => client.disconnect())
  await client.call('ACL', 'SETUSER', 'default', '-xreadgroup')
  const refused = async (): Promise<number> => {
    const stats = await client.info('commandstats')
    return Number(/cmdstat_xreadgroup:.*rejected_calls=(\d+)/.exec(stats)?.[1] ?? 0)
  }
  const { receipts, logged, end } = reader(`127.0.0.1:${redis.port}`, 5_000)
  t.teardown(end)
  await until('it was refused several times', async () => (await refused()) >= 4)
  await client.call('ACL', 'SETUSER', 'default', '+xreadgroup')
  await client.xadd('ackbox.receipts', '*', 'body', 'a')
  await until('it is read', () => receipts.length === 1)
  t.same(
    logged.filter(each => each.startsWith('receipts.')),
    ['receipts.unavailable', 'receipts.available']
  )
})
