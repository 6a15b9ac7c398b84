import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { freePort, takePort } from '../../src/embedded/port.ts'
import { parseBroker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { rocketmqTransport, type RocketmqRequest } from '../../src/transport/rocketmq/rocketmq.ts'
import type { Transport } from '../../src/transport/types.ts'
import { sendContext } from '../transport/send-context.ts'
import { freePorts, server, type Server } from './server.ts'

export const login = 'ackbox:right'
export const [accessKey = '', accessSecret = ''] = login.split(':')

export interface Rocketmq {
  /** Broker and proxy, in one process. */
  server: Server
  port: number
}

export async function rocketmqServer(t: Test): Promise<Rocketmq> {
  const [names = 0, remoting = 0, port = 0] = await freePorts(3)
  const brokerPort = await portOfBroker()
  const env = {
    RMQ_NAMESRV_PORT: `${names}`,
    RMQ_BROKER_PORT: `${brokerPort}`,
    RMQ_GRPC_PORT: `${port}`,
    RMQ_REMOTING_PORT: `${remoting}`,
    RMQ_TOPICS: 'orders:NORMAL steps:FIFO later:DELAY ready:NORMAL ackbox-receipts:NORMAL',
    RMQ_LOGIN: login
  }
  await server(t, { name: 'rocketmq', args: ['namesrv'], env, ready: /The Name Server boot success/ })
  const local = await server(t, {
    name: 'rocketmq',
    args: ['local'],
    env,
    ready: /rocketmq-proxy startup successfully/
  })
  await ready(t, port)
  return { server: local, port }
}

/** A free port for a broker, which also listens on port - 2 and port + 1. */
async function portOfBroker(): Promise<number> {
  const port = await freePort()
  const free = await Promise.all([port - 2, port + 1].map(takePort))
  return free.every(Boolean) ? port : portOfBroker()
}

const loopback = guard({ allow: undefined, embedded: true, deny: [] })
const quiet = { info() {}, warn() {} }

export function transportTo(url: string, log = quiet, by = loopback): Transport<RocketmqRequest> {
  const broker = parseBroker('rocketmq', url)
  if (typeof broker === 'string') throw new Error(broker)
  return rocketmqTransport({ guard: by, brokers: new Map([['rocketmq', broker]]), log })
}

/** Waits until the broker has registered its topics with its name server, a moment after its start. */
async function ready(t: Test, port: number): Promise<void> {
  const transport = transportTo(`rocketmq://${login}@127.0.0.1:${port}`)
  t.teardown(() => transport.close())
  for (let left = 150; ; left--) {
    const outcome = await transport.send({ topic: 'ready', body: 'x' }, sendContext())
    if (outcome.kind === 'delivered') return
    if (left === 0) throw new Error(`the broker takes nothing: ${outcome.reason}`)
    await sleep(200)
  }
}
