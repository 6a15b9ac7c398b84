// A consumer of each queue, as a downstream would write it, with a function to send receipts by the same queue.
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import type { Message } from '../../src/consumer/consumer.ts'
import { freePorts, server, type Server } from './server.ts'

/** `message` is the message of the client library itself. */
export type Take = (headers: Record<string, string>, body: string, message: Message) => void

export interface Consumed {
  /** The broker's URL, for BROKER_<NAME>. */
  url: string
  server: Server
  /** Writes a receipt to `ackbox.receipts`. Undefined: this consumer sends receipts by HTTP only. */
  reply: ((receipt: string, token: string) => Promise<unknown>) | undefined
}

/** It consumes the queue, topic or stream `story`; on Kafka it can be any topic. */
export type Consumer = (t: Test, take: Take, topic?: string) => Promise<Consumed>

const text = (value: unknown): string =>
  value instanceof Uint8Array
    ? Buffer.from(value).toString()
    : typeof value === 'string'
      ? value
      : JSON.stringify(value)
const texts = (entries: Iterable<readonly [unknown, unknown]>): Record<string, string> =>
  Object.fromEntries([...entries].map(([name, value]) => [text(name), text(value)]))

export const consumers: Record<string, { needs: string[]; start: Consumer }> = {
  nats: {
    needs: ['apt-get', 'dpkg'],
    async start(t, take) {
      const [port = 0] = await freePorts(1)
      const running = await server(t, {
        name: 'nats',
        env: { NATS_PORT: `${port}` },
        ready: /Server is ready/
      })
      const { connect, headers: natsHeaders } = await import('@nats-io/transport-node')
      const { jetstream, jetstreamManager } = await import('@nats-io/jetstream')
      const connection = await connect({
        servers: `127.0.0.1:${port}`,
        maxReconnectAttempts: -1,
        reconnectTimeWait: 100
      })
      t.teardown(() => connection.close())
      const manager = await jetstreamManager(connection)
      await manager.streams.add({ name: 'story', subjects: ['story'] })
      await manager.streams.add({ name: 'receipts', subjects: ['ackbox.receipts'] })
      await manager.consumers.add('story', { durable_name: 'story' })
      const js = jetstream(connection)
      const messages = await (await js.consumers.get('story', 'story')).consume()
      t.teardown(() => messages.close())
      void (async () => {
        for await (const message of messages) {
          const found = message.headers
          take(
            texts((found?.keys() ?? []).map(name => [name, found?.get(name)] as const)),
            message.string(),
            message
          )
          message.ack()
        }
      })()
      return {
        url: `nats://127.0.0.1:${port}`,
        server: running,
        async reply(receipt, token) {
          const all = natsHeaders()
          all.set('ackbox-callback-token', token)
          await js.publish('ackbox.receipts', receipt, { headers: all })
        }
      }
    }
  },

  rabbitmq: {
    needs: ['apt-get', 'dpkg'],
    async start(t, take) {
      const [port = 0, dist = 0, epmd = 0] = await freePorts(3)
      const running = await server(t, {
        name: 'rabbitmq',
        env: { RABBIT_PORT: `${port}`, RABBIT_DIST_PORT: `${dist}`, RABBIT_EPMD_PORT: `${epmd}` },
        ready: /Server startup complete/
      })
      const { Connection } = await import('rabbitmq-client')
      const url = `amqp://guest:guest@127.0.0.1:${port}`
      const connection = new Connection({ url, retryLow: 100, retryHigh: 500 })
      connection.on('error', () => {})
      await connection.queueDeclare({ queue: 'story', durable: true })
      await connection.queueDeclare({ queue: 'ackbox.receipts', durable: true })
      const consumer = connection.createConsumer(
        { queue: 'story', queueOptions: { passive: true }, qos: { prefetchCount: 50 } },
        message => {
          take(texts(Object.entries(message.headers ?? {})), text(message.body), message)
        }
      )
      consumer.on('error', () => {})
      const publisher = connection.createPublisher({ confirm: true })
      t.teardown(async () => {
        await consumer.close()
        await publisher.close()
        await connection.close()
      })
      return {
        url,
        server: running,
        reply: (receipt, token) =>
          publisher.send(
            { routingKey: 'ackbox.receipts', durable: true, headers: { 'ackbox-callback-token': token } },
            Buffer.from(receipt)
          )
      }
    }
  },

  kafka: {
    needs: ['java', 'mvn'],
    async start(t, take, topic = 'story') {
      const [port = 0, control = 0] = await freePorts(2)
      const running = await server(t, {
        name: 'kafka',
        env: { KAFKA_PORT: `${port}`, KAFKA_CTRL_PORT: `${control}` },
        ready: /Kafka Server started/
      })
      const bootstrapBrokers = [`127.0.0.1:${port}`]
      const kafka = await import('@platformatic/kafka')
      const admin = new kafka.Admin({ clientId: 'story', bootstrapBrokers })
      await admin.createTopics({ topics: [topic, 'ackbox.receipts'], partitions: 3, replicas: 1 })
      await admin.close()
      let stop = false
      let close = async (): Promise<void> => {}
      // The client's stream ends when its broker ends: then a new consumer starts.
      const consuming = (async () => {
        for (; !stop; await sleep(200)) {
          const consumer = new kafka.Consumer({
            clientId: 'story',
            groupId: 'story',
            bootstrapBrokers,
            sessionTimeout: 6_000,
            heartbeatInterval: 1_000,
            deserializers: kafka.stringDeserializers
          })
          consumer.on('error' as never, () => {})
          close = () => new Promise(resolve => consumer.close(true, () => resolve()))
          let stream: Awaited<ReturnType<typeof consumer.consume>> | undefined
          // After a restart of the broker the stream's own callback may throw, in a timer of the client.
          catchIn(consumer, error => stream?.destroy(error))
          try {
            stream = await consumer.consume({ topics: [topic], autocommit: true, mode: 'earliest' })
            for await (const message of stream) take(texts(message.headers), message.value, message)
          } catch {} // the broker is away
          await close()
        }
      })()
      const producer = new kafka.Producer({
        clientId: 'story-receipts',
        bootstrapBrokers,
        serializers: kafka.stringSerializers
      })
      t.teardown(async () => {
        stop = true
        await close()
        await consuming
        await new Promise<void>(resolve => producer.close(true, () => resolve()))
      })
      return {
        url: `kafka://127.0.0.1:${port}`,
        server: running,
        reply: (receipt, token) =>
          producer.send({
            messages: [
              { topic: 'ackbox.receipts', value: receipt, headers: { 'ackbox-callback-token': token } }
            ],
            acks: kafka.ProduceAcks.ALL
          })
      }
    }
  },

  'redis-stream': {
    needs: ['apt-get', 'dpkg'],
    async start(t, take) {
      const [port = 0] = await freePorts(1)
      const running = await server(t, {
        name: 'redis',
        env: { REDIS_PORT: `${port}` },
        ready: /Ready to accept/
      })
      const { Redis } = await import('ioredis')
      const client = new Redis(port, '127.0.0.1')
      client.on('error', () => {})
      let stop = false
      t.teardown(() => {
        stop = true
        client.disconnect()
      })
      void (async () => {
        for (let from = '0'; !stop; await sleep(50)) {
          const read = (await client.xread('COUNT', 100, 'STREAMS', 'story', from).catch(() => null)) ?? []
          for (const [, entries] of read as [string, [string, string[]][]][]) {
            for (const [id, flat] of entries) {
              from = id
              const pairs = flat.flatMap((name, i) =>
                i % 2 === 0 ? [[name, flat[i + 1] ?? ''] as const] : []
              )
              const fields = texts(pairs)
              take(fields, fields['body'] ?? '', { headers: flat })
            }
          }
        }
      })()
      return { url: `redis://127.0.0.1:${port}`, server: running, reply: undefined }
    }
  }
}

/** Whatever the callback of a call of `metadata` throws goes to `end`. The stream of the consumer asks so before each fetch. */
function catchIn(consumer: object, end: (error: Error) => void): void {
  type Call = (options: unknown, callback?: (...given: unknown[]) => void) => unknown
  const called = consumer as { metadata: Call }
  const metadata = called.metadata.bind(consumer)
  called.metadata = (options, callback) =>
    metadata(
      options,
      callback &&
        ((...given) => {
          try {
            callback(...given)
          } catch (error) {
            end(error as Error)
          }
        })
    )
}
