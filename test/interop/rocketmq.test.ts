import { setTimeout as sleep } from 'node:timers/promises'
import rocketmq from 'rocketmq-client-nodejs'
import t, { type Test } from 'tap'
import { parseBroker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/guard.ts'
import { rocketmqTransport, type RocketmqRequest } from '../../src/transport/rocketmq.ts'
import type { Transport } from '../../src/transport/transport.ts'
import { parcel } from '../transport/parcel.ts'
import { brokerConformance, type BrokerUnderTest, type Stored } from './conformance.ts'
import { freePorts, server, without, type Server } from './server.ts'

const silent = { info() {}, warn() {}, error() {}, debug() {} }
const login = 'ackbox:right'
const [accessKey = '', accessSecret = ''] = login.split(':')

interface Rocketmq {
  /** Broker and proxy, one process. */
  server: Server
  port: number
}

async function rocketmqServer(t: Test): Promise<Rocketmq> {
  const [names, remoting, port, other] = (await freePorts(4)).map(String)
  // It takes two more ports of its own beside this one.
  const brokerPort = String(20_000 + Math.floor(Math.random() * 4_000) * 3)
  const env = {
    RMQ_NAMESRV_PORT: names!,
    RMQ_BROKER_PORT: brokerPort,
    RMQ_GRPC_PORT: port!,
    RMQ_REMOTING_PORT: remoting ?? other!,
    RMQ_TOPICS: 'orders:NORMAL steps:FIFO later:DELAY ready:NORMAL',
    RMQ_LOGIN: login
  }
  await server(t, { name: 'rocketmq', args: ['namesrv'], env, ready: /The Name Server boot success/ })
  const local = await server(t, {
    name: 'rocketmq',
    args: ['local'],
    env,
    ready: /rocketmq-proxy startup successfully/
  })
  return { server: local, port: Number(port) }
}

const loopback = guard({ allow: undefined, embedded: true, deny: [] })
const quiet = { info() {}, warn() {} }

function transportTo(url: string, log = quiet, by = loopback): Transport<RocketmqRequest> {
  const broker = parseBroker('rocketmq', url)
  if (typeof broker === 'string') throw new Error(broker)
  return rocketmqTransport({ guard: by, brokers: new Map([['rocketmq', broker]]), log })
}

let groups = 0
/** All that is in a topic, by a consumer that was never there before. */
async function stored(port: number, topic: string, count: number): Promise<Found[]> {
  const consumer = new rocketmq.SimpleConsumer({
    consumerGroup: `reader${groups++}`,
    endpoints: `127.0.0.1:${port}`,
    namespace: '',
    logger: silent,
    sessionCredentials: { accessKey, accessSecret },
    subscriptions: new Map([[topic, '*']]),
    awaitDuration: 500
  })
  await consumer.startup()
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

/** A broker tells its name server of its topics a moment after it is up. */
async function ready(t: Test, port: number): Promise<void> {
  const transport = transportTo(`rocketmq://${login}@127.0.0.1:${port}`)
  t.teardown(() => transport.close())
  for (let left = 150; ; left--) {
    const outcome = await transport.send({ topic: 'ready', body: 'x' }, parcel())
    if (outcome.kind === 'delivered') return
    if (left === 0) throw new Error(`the broker takes nothing: ${outcome.reason}`)
    await sleep(200)
  }
}

async function make(t: Test): Promise<BrokerUnderTest<RocketmqRequest>> {
  const { server, port } = await rocketmqServer(t)
  await ready(t, port)
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
    // The proxy believes for 20 s what it was told about a topic, also that there is none.
    backMs: 40_000
  }
}

t.test('RocketMQ', { skip: without('java', 'mvn') }, async t => {
  brokerConformance(t, make)
})
