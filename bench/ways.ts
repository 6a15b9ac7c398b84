// The real servers of the transports' benchmark, and the bare publish loop of each client.
import { connect } from 'node:net'
import { callBody, javaArgs, readResponse } from '../src/transport/dubbo/hessian.ts'
import { flags, frameOf, frames } from '../src/transport/dubbo/classic-frame.ts'
import { freePorts, startServer } from '../test/interop/server.ts'

export interface Ground {
  /** The URL of the broker. */
  url: string
  request: (body: string) => unknown
  /** Publishes one message, with the same confirmation as the transport. */
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
  },

  async rocketmq(headers) {
    const [names = 0, remoting = 0, port = 0] = await freePorts(3)
    // The broker uses two more ports next to this one.
    const env = {
      RMQ_NAMESRV_PORT: `${names}`,
      RMQ_BROKER_PORT: `${20_000 + Math.floor(Math.random() * 4_000) * 3}`,
      RMQ_GRPC_PORT: `${port}`,
      RMQ_REMOTING_PORT: `${remoting}`,
      RMQ_TOPICS: 'bench:NORMAL'
    }
    const nameServer = await startServer({
      name: 'rocketmq',
      args: ['namesrv'],
      env,
      ready: /The Name Server boot success/
    })
    const server = await startServer({
      name: 'rocketmq',
      args: ['local'],
      env,
      ready: /rocketmq-proxy startup successfully/
    })
    const { Producer } = await import('rocketmq-client-nodejs')
    const quiet = { debug() {}, info() {}, warn() {}, error() {}, close() {} }
    const producer = new Producer({ endpoints: `127.0.0.1:${port}`, namespace: '', logger: quiet })
    await producer.startup()
    const message = (body: string) => ({
      topic: 'bench',
      body: Buffer.from(body),
      properties: new Map(Object.entries(headers))
    })
    // A broker registers its topics with its name server a moment after its start.
    for (let left = 100; left > 0; left--) {
      const receipt = await producer.send(message('x')).catch(() => undefined)
      if (receipt) break
      await new Promise(resolve => setTimeout(resolve, 300))
    }
    return {
      url: `rocketmq://127.0.0.1:${port}`,
      request: body => ({ topic: 'bench', body }),
      publish: body => producer.send(message(body)),
      async close() {
        await producer.shutdown()
        // The client leaves a stream open. When the server ends, it throws outside of all promises.
        process.on('uncaughtException', error => {
          if (!/UNAVAILABLE|CANCELLED/.test(String(error))) throw error
        })
        await server.close()
        await nameServer.close()
      }
    }
  },

  async dubbo(headers) {
    const { port, server } = await provider()
    const { Pool } = await import('undici')
    const pool = new Pool(`http://127.0.0.1:${port}`, { connections: 1_024 })
    return {
      url: `tri://127.0.0.1:${port}`,
      request: () => ({ service, method: 'ping', args: [] }),
      async publish() {
        const answer = await pool.request({
          path: `/${service}/ping`,
          method: 'POST',
          headers: { ...headers, 'content-type': 'application/json' },
          body: '[]'
        })
        await answer.body.dump()
      },
      async close() {
        await pool.close()
        await server.close()
      }
    }
  },

  /** There is no client to compare with: the bare loop writes hessian.js's calls to one socket and reads each answer. */
  async dubbo2(headers) {
    const { classic, server } = await provider()
    const call = { service, method: 'ping', types: [], args: [] }
    const waiting = new Map<bigint, () => void>()
    const socket = connect(classic, '127.0.0.1')
    const incoming = frames(1 << 20, ({ id, isRequest, status, body }) => {
      if (isRequest) return
      readResponse(status, body)
      waiting.get(id)?.()
      waiting.delete(id)
    })
    socket.on('data', (chunk: Buffer) => incoming.push(chunk))
    let id = 0n
    return {
      url: `dubbo://127.0.0.1:${classic}`,
      request: () => call,
      publish: () =>
        new Promise<void>(resolve => {
          waiting.set(++id, resolve)
          socket.write(
            frameOf(flags.request | flags.twoWay, 0, id, callBody(call, javaArgs(call.args), headers))
          )
        }),
      async close() {
        socket.destroy()
        await server.close()
      }
    }
  }
}

const service = 'ackbox.interop.OrderNotifyService'

/** The Java provider, for both forms of Dubbo. */
async function provider() {
  const [port = 0, classic = 0] = await freePorts(2)
  const server = await startServer({
    name: 'dubbo',
    env: { TRI_PORT: `${port}`, DUBBO_PORT: `${classic}` },
    ready: /READY tri=/
  })
  return { port, classic, server }
}
