import { setTimeout as sleep } from 'node:timers/promises'
import rocketmq from 'rocketmq-client-nodejs'
import t, { type Test } from 'tap'
import type { RocketmqRequest } from '../../src/transport/rocketmq/rocketmq.ts'
import { sendContext } from '../transport/send-context.ts'
import { brokerConformance, type BrokerUnderTest, type Stored } from './conformance.ts'
import { accessKey, accessSecret, login, rocketmqServer, transportTo } from './rocketmq-server.ts'
import { only } from '../support/only.ts'
import { without } from '../support/program.ts'

const silent = { info() {}, warn() {}, error() {}, debug() {} }

/** A session that was shut down has no listeners: its error when the server ends would end the process. So one is added. */
class Reader extends rocketmq.SimpleConsumer {
  override createTelemetryStream(...to: Parameters<rocketmq.SimpleConsumer['createTelemetryStream']>) {
    const stream = super.createTelemetryStream(...to)
    const remove = stream.removeAllListeners.bind(stream)
    stream.removeAllListeners = () => remove().on('error', () => {})
    return stream
  }
}

let groups = 0
/** Starts a consumer. It retries, since the topics of a new broker are known only after a moment. */
async function reader(port: number, topic: string): Promise<Reader> {
  for (let left = 20; ; left--) {
    const consumer = new Reader({
      consumerGroup: `reader${groups++}`,
      endpoints: `127.0.0.1:${port}`,
      namespace: '',
      logger: silent,
      sessionCredentials: { accessKey, accessSecret },
      subscriptions: new Map([[topic, '*']]),
      // Its own limit is 3 s, which a busy machine does not keep.
      requestTimeout: 60_000,
      awaitDuration: 500
    })
    try {
      await consumer.startup()
      return consumer
    } catch (error) {
      await consumer.shutdown()
      if (left === 0) throw error
    }
    await sleep(500)
  }
}

/** All messages of a topic, read by a new consumer group. */
async function stored(port: number, topic: string, count: number): Promise<Found[]> {
  const consumer = await reader(port, topic)
  const found: Found[] = []
  try {
    for (let more = true; more || found.length < count;) {
      const messages = await consumer.receive(32, 60_000)
      more = messages.length > 0
      for (const { body, properties, tag, keys, messageGroup } of messages)
        found.push({ body, headers: Object.fromEntries(properties), tag, keys, group: messageGroup })
    }
  } finally {
    await consumer.shutdown()
  }
  return found
}

interface Found extends Stored {
  tag: string | undefined
  keys: string[]
  group: string | undefined
}

async function make(t: Test): Promise<BrokerUnderTest<RocketmqRequest>> {
  const { server, port } = await rocketmqServer(t)
  return {
    server,
    url: more => `rocketmq://${more?.login ?? login}@127.0.0.1:${more?.port ?? port}`,
    transport: transportTo,
    request: ({ body, headers }) => ({
      topic: 'orders',
      ...(body === undefined ? {} : { body }),
      ...(headers ? { properties: headers } : {})
    }),
    missing: () => ({ topic: 'nowhere' }),
    tooLarge: 5_000_000,
    wrongLogin: 'ackbox:mistaken',
    stored: count => stored(port, 'orders', count),
    // The proxy caches for 20 s whether a topic exists.
    backMs: 40_000
  }
}

const skip = without('java', 'mvn')

t.test('RocketMQ', { skip }, async t => {
  brokerConformance(t, make)
})

t.test('what only RocketMQ has', { skip }, async t => {
  const { port } = await rocketmqServer(t)
  const transport = transportTo(`rocketmq://${login}@127.0.0.1:${port}`)
  t.teardown(() => transport.close())
  const send = (request: RocketmqRequest) => transport.send(request, sendContext({ raw: '{}' }))

  await t.test('tag and keys arrive, and the messages of a group in their order', async t => {
    for (let n = 1; n <= 5; n++) {
      const outcome = await send({
        topic: 'steps',
        group: 'o-7',
        tag: 'paid',
        keys: ['k1', 'k2'],
        body: `${n}`
      })
      t.match(outcome, { kind: 'delivered' })
    }
    const found = await stored(port, 'steps', 5)
    t.strictSame(
      found.map(each => each.body.toString()),
      ['1', '2', '3', '4', '5']
    )
    t.match(found[0], { tag: 'paid', keys: only('k1', 'k2'), group: 'o-7' })
  })

  await t.test('a delayed message is there no earlier', async t => {
    const began = Date.now()
    t.match(await send({ topic: 'later', delayMs: 3_000, body: 'x' }), { kind: 'delivered' })
    await stored(port, 'later', 1)
    const took = Date.now() - began
    t.ok(took >= 2_900, `${took} ms`)
  })

  await t.test('a delay of more than a day, and an empty body, are bad requests', async t => {
    t.match(await send({ topic: 'later', delayMs: 25 * 3_600_000 }), {
      kind: 'failed',
      reason: /^bad_request/
    })
    t.match(await send({ topic: 'orders', body: '' }), { kind: 'failed', reason: /^bad_request/ })
    t.match(await send({ topic: 'no topic!' }), { kind: 'failed', reason: /^bad_request/ })
    t.match(await send({ topic: 'orders', tag: 'a|b' }), { kind: 'failed', reason: /^bad_request/ })
    t.match(await send({ topic: 'orders', properties: { KEYS: 'x' } }), {
      kind: 'failed',
      reason: /^bad_request/
    })
  })

  await t.test('a topic that takes another kind of message refuses it', async t => {
    t.match(await send({ topic: 'orders', group: 'g' }), {
      kind: 'refused',
      reason: /^target_type.*not FIFO/
    })
    t.match(await send({ topic: 'orders', delayMs: 10 }), {
      kind: 'refused',
      reason: /^target_type.*not DELAY/
    })
    t.match(await send({ topic: 'steps' }), { kind: 'refused', reason: /^target_type.*not NORMAL/ })
  })

  await t.test('4 MB is the most, and 16 kB of properties', async t => {
    t.match(await send({ topic: 'orders', body: Buffer.alloc(4 << 20) }), { kind: 'delivered' })
    t.match(await send({ topic: 'orders', body: Buffer.alloc((4 << 20) + 1) }), {
      kind: 'refused',
      reason: /^too_large/
    })
    t.match(await send({ topic: 'orders', properties: { a: 'x'.repeat(17_000) } }), {
      kind: 'refused',
      reason: /^too_large/
    })
  })

  await t.test('a certificate that nobody signed is not trusted', async t => {
    const secure = transportTo(`rocketmqs://${login}@localhost:${port}`)
    t.teardown(() => secure.close())
    t.match(await secure.send({ topic: 'orders', body: 'x' }, sendContext()), {
      kind: 'failed',
      reason: /^tls/,
      alarm: 'TLS'
    })
  })
})
