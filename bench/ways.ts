// The real servers of the transports' benchmark, and the bare loop of each client.
import { freePorts, startServer } from '../test/interop/server.ts'

export interface Ground {
  /** Of the broker. */
  url: string
  request: (body: string) => unknown
  /** Publishes one, confirmed as the transport wants it. */
  publish: (body: string) => Promise<unknown>
  close: () => Promise<void>
}

export type Way = (headers: Record<string, string>) => Promise<Ground>

export const ways: Record<string, Way> = {
  async 'redis-stream'(headers) {
    const [port = 0] = await freePorts(1)
    const server = await startServer({
      name: 'redis',
      env: { REDIS_PORT: `${port}` },
      ready: /Ready to accept/
    })
    const { Redis } = await import('ioredis')
    const client = new Redis(port, '127.0.0.1')
    const fields = Object.entries(headers).flat()
    return {
      url: `redis://127.0.0.1:${port}`,
      request: body => ({ stream: 'bench', fields: { body } }),
      publish: body => client.xadd('bench', '*', 'body', body, ...fields),
      async close() {
        client.disconnect()
        await server.close()
      }
    }
  },

  async nats(headers) {
    const [port = 0] = await freePorts(1)
    const server = await startServer({
      name: 'nats',
      env: { NATS_PORT: `${port}` },
      ready: /Server is ready/
    })
    const { connect, headers: natsHeaders } = await import('@nats-io/transport-node')
    const { jetstream, jetstreamManager } = await import('@nats-io/jetstream')
    const connection = await connect({ servers: `127.0.0.1:${port}` })
    await (await jetstreamManager(connection)).streams.add({ name: 'bench', subjects: ['bench'] })
    const js = jetstream(connection)
    let id = 0
    return {
      url: `nats://127.0.0.1:${port}`,
      request: body => ({ subject: 'bench', payload: body }),
      async publish(body) {
        const all = natsHeaders()
        for (const [name, value] of Object.entries(headers)) all.set(name, value)
        await js.publish('bench', body, { headers: all, msgID: `${id++}` })
      },
      async close() {
        await connection.close()
        await server.close()
      }
    }
  },

  async rabbitmq(headers) {
    const [port = 0, dist = 0, epmd = 0] = await freePorts(3)
    const server = await startServer({
      name: 'rabbitmq',
      env: { RABBIT_PORT: `${port}`, RABBIT_DIST_PORT: `${dist}`, RABBIT_EPMD_PORT: `${epmd}` },
      ready: /Server startup complete/
    })
    const { Connection } = await import('rabbitmq-client')
    const connection = new Connection(`amqp://guest:guest@127.0.0.1:${port}`)
    connection.on('error', error => console.error('rabbitmq', String(error)))
    await connection.queueDeclare({ queue: 'bench', durable: true })
    const publisher = connection.createPublisher({ confirm: true })
    const envelope = { routingKey: 'bench', durable: true, mandatory: true, headers }
    return {
      url: `amqp://guest:guest@127.0.0.1:${port}`,
      request: body => ({ routingKey: 'bench', body }),
      publish: body => publisher.send(envelope, Buffer.from(body)),
      async close() {
        await publisher.close()
        await connection.close()
        await server.close()
      }
    }
  },

  async kafka(headers) {
    const [port = 0, control = 0] = await freePorts(2)
    const server = await startServer({
      name: 'kafka',
      env: { KAFKA_PORT: `${port}`, KAFKA_CTRL_PORT: `${control}` },
      ready: /Kafka Server started/
    })
    const { Admin, ProduceAcks, Producer, stringSerializers } = await import('@platformatic/kafka')
    const admin = new Admin({ clientId: 'bench', bootstrapBrokers: [`127.0.0.1:${port}`] })
    await admin.createTopics({ topics: ['bench'], partitions: 3, replicas: 1 })
    const producer = new Producer({
      clientId: 'bench',
      bootstrapBrokers: [`127.0.0.1:${port}`],
      serializers: stringSerializers
    })
    return {
      url: `kafka://127.0.0.1:${port}`,
      request: body => ({ topic: 'bench', value: body }),
      publish: body =>
        producer.send({ messages: [{ topic: 'bench', value: body, headers }], acks: ProduceAcks.ALL }),
      async close() {
        await admin.close()
        await producer.close()
        await server.close()
      }
    }
  }
}
