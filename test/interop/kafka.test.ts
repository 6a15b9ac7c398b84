import { setTimeout as sleep } from 'node:timers/promises'
import { Admin, Consumer, MessagesStreamModes, stringDeserializers, type Message } from '@platformatic/kafka'
import t, { type Test } from 'tap'
import { kafkaTransport, type KafkaRequest } from '../../src/transport/kafka.ts'
import { parcel } from '../transport/parcel.ts'
import { brokerConformance, type Stored } from './conformance.ts'
import { listener, only, strict } from './open.ts'
import { freePorts, server, without, type Server } from './server.ts'

const skip = without('java', 'mvn')
t.setTimeout(600_000)

interface Ground {
  server: Server
  url(more?: { port?: number; login?: string }): string
  read(topic: string, count: number): Promise<Message<string, Buffer, string, string>[]>
  stored(count: number): Promise<Stored[]>
}

async function kafka(t: Test): Promise<Ground> {
  const [port = 0, control = 0] = await freePorts(2)
  const running = await server(t, {
    name: 'kafka',
    env: { KAFKA_PORT: `${port}`, KAFKA_CTRL_PORT: `${control}` },
    ready: /Kafka Server started/
  })
  const bootstrapBrokers = [`127.0.0.1:${port}`]
  const admin = new Admin({ clientId: 'test', bootstrapBrokers })
  await admin.createTopics({ topics: ['orders'], partitions: 1, replicas: 1 })
  await admin.createTopics({ topics: ['spread'], partitions: 5, replicas: 1 })
  await admin.close()
  let groups = 0
  const read: Ground['read'] = async (topic, count) => {
    const consumer = new Consumer({
      clientId: 'test',
      groupId: `reader-${groups++}`,
      bootstrapBrokers,
      maxWaitTime: 200,
      deserializers: {
        ...stringDeserializers,
        value: (data?: Buffer) => Buffer.from(data ?? [])
      }
    })
    const found: Message<string, Buffer, string, string>[] = []
    try {
      const stream = await consumer.consume({
        topics: [topic],
        autocommit: false,
        mode: MessagesStreamModes.EARLIEST
      })
      stream.on('data', (message: Message<string, Buffer, string, string>) => found.push(message))
      for (const end = Date.now() + 15_000; found.length < count && Date.now() < end;) await sleep(25)
      // Whatever should not be there has its chance to come too.
      await sleep(500)
      await stream.close()
    } finally {
      await consumer.close(true)
    }
    return found
  }
  return {
    server: running,
    url: (more = {}) => `kafka://127.0.0.1:${more.port ?? port}`,
    read,
    stored: async count =>
      (await read('orders', count)).map(({ value, headers }) => ({
        body: value,
        headers: Object.fromEntries(headers)
      }))
  }
}

t.test('as every broker', { skip }, t => {
  brokerConformance<KafkaRequest>(t, async t => {
    const ground = await kafka(t)
    return {
      server: ground.server,
      url: ground.url,
      transport: url => kafkaTransport(only('kafka', url)),
      request: ({ body, headers }) => ({
        topic: 'orders',
        ...(body === undefined ? {} : { value: body }),
        ...(headers === undefined ? {} : { headers })
      }),
      missing: () => ({ topic: 'nobody-made-this' }),
      tooLarge: 1_200_000,
      wrongLogin: undefined,
      stored: ground.stored,
      backMs: 30_000
    }
  })
  t.end()
})

t.test('what only Kafka does', { skip }, async t => {
  const ground = await kafka(t)
  const transport = kafkaTransport(only('kafka', ground.url()))
  t.teardown(() => transport.close())
  const send = (request: KafkaRequest) => transport.send(request, parcel({ raw: '{}' }))

  await t.test('twenty at once are twenty records', async t => {
    const values = Array.from({ length: 20 }, (_, i) => `twenty-${i}`)
    const outcomes = await Promise.all(values.map(value => send({ topic: 'orders', value })))
    t.same(new Set(outcomes.map(each => each.kind)), new Set(['delivered']))
    t.same((await ground.read('orders', 20)).map(each => each.value.toString()).toSorted(), values.toSorted())
  })

  await t.test('a key has one partition, the one that Java gives it; without a key all are used', async t => {
    // Partitioner.partition of Kafka's Java client for these keys and 5 partitions: toPositive(murmur2(key)) % 5
    for (const key of ['a', 'order-1', 'é你', 'x'.repeat(100)]) {
      for (let i = 0; i < 3; i++) await send({ topic: 'spread', key, value: key })
    }
    for (let i = 0; i < 10; i++) await send({ topic: 'spread', value: 'none' })
    const found = await ground.read('spread', 22)
    t.equal(found.length, 22)
    for (const key of new Set(found.map(each => each.key))) {
      const partitions = new Set(found.filter(each => each.key === key).map(each => each.partition))
      if (key) t.equal(partitions.size, 1, `${key.slice(0, 10)} is in one partition`)
      else t.equal(partitions.size, 5, 'no key: all of them')
    }
  })

  await t.test('what a handler must not ask for', async t => {
    const bad: [unknown, RegExp][] = [
      [{ topic: 'bad name!' }, /topic/],
      [{ topic: '..' }, /topic/],
      [{ topic: 'orders', key: 7 }, /key/],
      [{ topic: 'orders', value: {} }, /text or bytes/],
      [{ topic: 'orders', headers: { 'webhook-id': 'x' } }, /not the handler's/]
    ]
    for (const [request, why] of bad)
      t.match(await send(request as KafkaRequest), { kind: 'failed', reason: why })
  })
})

t.test('the egress guard holds: not one connection', async t => {
  const denied = await listener(t)
  const transport = kafkaTransport(only('kafka', `kafka://127.0.0.1:${denied.port}`, strict()))
  t.teardown(() => transport.close())
  t.match(await transport.send({ topic: 'orders' }, parcel()), { kind: 'failed', alarm: 'BLOCKED_TARGET' })
  t.equal(denied.connections(), 0)
})
