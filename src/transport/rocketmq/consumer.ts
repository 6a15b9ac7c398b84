// A consumer of one topic by the gRPC protocol of RocketMQ 5: https://github.com/apache/rocketmq-clients/blob/master/docs/workflow.md
import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js'
import service from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_pb.js'
import { withTimeout } from '../../runtime/with-timeout.ts'
import { rotated } from '../broker.ts'
import { protocolFailure } from '../judged.ts'
import { failure } from '../failure.ts'
import { endpoints } from './cluster.ts'
import { resource } from './message.ts'
import { call, listen, metadata, type ProxyAddress } from './proxy.ts'
import {
  callMs,
  check,
  deadline,
  everything,
  pollMs,
  readerId,
  receive,
  span,
  type MessageQueue,
  type QueueHolder,
  type Subscription,
  type Way
} from './receive.ts'
import { sleep } from '../../runtime/repeat.ts'

const { ClientType, Language, Permission } = definition
/** The intervals at which RocketMQ clients send heartbeats, and refresh the route of a topic (every third heartbeat). */
const heartbeatMs = 10_000
const routeEvery = 3
const brokersMost = 64
/** Commands of a proxy between two heartbeats. Few exist, and this consumer executes none of them. */
const commandsMost = 100

export interface Consumer {
  sources: QueueHolder[]
  /** Resolves when the route of the topic has changed; rejects when a proxy is gone. */
  over: Promise<void>
  close(): void
}

/** Subscribes through one of the broker's hosts: another one for each `turn`. */
export async function subscribe(to: Subscription, turn: number): Promise<Consumer> {
  const [host = { host: '', port: 0 }] = rotated(to.broker.hosts, turn)
  const found = await route(to, host)
  const sources = new Map<string, QueueHolder>()
  const ways = new Map<string, Way>()
  const sessions: Session[] = []
  const stop = new AbortController()
  try {
    for (const { name, queue, addresses } of found.brokers) {
      const [place = host] = rotated(addresses, turn)
      const key = JSON.stringify(place)
      const way = ways.get(key) ?? { ...to, place, proxy: await to.proxies.to(place) }
      if (!ways.has(key)) {
        ways.set(key, way)
        sessions.push(await session(way))
      }
      sources.set(name, { receive: (most, signal, take) => receive(way, queue, most, signal, take) })
    }
  } catch (error) {
    close()
    throw error
  }

  function close(): void {
    stop.abort()
    for (const each of sessions) each.close()
    for (const { proxies, place, proxy } of ways.values()) proxies.forget(place, proxy)
  }

  const watched = watch(to, host, found.key, sessions, [...ways.values()], stop.signal)
  const over = Promise.race([watched, ...sessions.map(each => each.ended)])
  over.catch(() => {})
  return { sources: [...sources.values()], over, close }
}

interface Route {
  brokers: { name: string; queue: MessageQueue; addresses: ProxyAddress[] }[]
  /** Two routes are equal if their keys are equal. */
  key: string
}

/** The brokers from which the topic can be read. A broker returns the messages of all its queues. */
async function route({ broker, proxies, topic }: Subscription, host: ProxyAddress): Promise<Route> {
  const proxy = await proxies.to(host)
  const request = new service.QueryRouteRequest()
    .setTopic(resource(topic, broker.path))
    .setEndpoints(endpoints(broker.hosts))
  let answer: InstanceType<typeof service.QueryRouteResponse>
  try {
    answer = await call(proxy, (client, done) =>
      client.queryRoute(request, metadata(broker), deadline(callMs), done)
    )
  } catch (error) {
    proxies.forget(host, proxy)
    throw error
  }
  check(answer.getStatus()?.getCode(), topic)
  const brokers = new Map<string, Route['brokers'][number]>()
  for (const queue of answer.getMessageQueuesList()) {
    const { id = 0, name = '', endpoints: where } = queue.getBroker()?.toObject() ?? {}
    const permission = queue.getPermission()
    if (id !== 0 || (permission !== Permission.READ && permission !== Permission.READ_WRITE)) continue
    if (!brokers.has(name)) brokers.set(name, { name, queue, addresses: where?.addressesList ?? [] })
    if (brokers.size > brokersMost) throw protocolFailure(`more than ${brokersMost} brokers hold the topic`)
  }
  if (brokers.size === 0) throw failure(`target_missing: the topic ${topic} has no queue to read from`)
  const found = [...brokers.values()]
  const key = JSON.stringify(found.map(({ name, addresses }) => [name, addresses]))
  return { brokers: found, key }
}

interface Session {
  /** Never resolves. Rejects when the session ends: a live proxy does not end it. */
  ended: Promise<void>
  /** Resets the count of commands. */
  forget(): void
  close(): void
}

/** A proxy answers a consumer only while it knows the consumer's settings: as long as this stream is open. */
async function session({ broker, proxy, topic, group }: Way): Promise<Session> {
  const subscription = new definition.Subscription()
    .setGroup(resource(group, broker.path))
    .setSubscriptionsList([
      new definition.SubscriptionEntry().setTopic(resource(topic, broker.path)).setExpression(everything())
    ])
    .setLongPollingTimeout(span(pollMs))
  const settings = new definition.Settings()
    .setClientType(ClientType.SIMPLE_CONSUMER)
    .setAccessPoint(endpoints(broker.hosts))
    .setRequestTimeout(span(callMs))
    .setSubscription(subscription)
    .setUserAgent(new definition.UA().setLanguage(Language.NODE_JS).setVersion('5.0.0'))
  let commands = 0
  let known = (): void => {}
  const accepted = new Promise<void>(resolve => {
    known = resolve
  })
  const line = listen<InstanceType<typeof service.TelemetryCommand>>(
    proxy,
    client => {
      const stream = client.telemetry(metadata(broker, readerId))
      stream.write(new service.TelemetryCommand().setSettings(settings))
      return stream
    },
    command => {
      check(command.getStatus()?.getCode(), topic)
      if (++commands > commandsMost) throw protocolFailure(`more than ${commandsMost} commands`)
      if (command.hasSettings()) known()
    }
  )
  const ended = line.ended.then(() => Promise.reject(failure('connection_closed')))
  ended.catch(() => {})
  try {
    await withTimeout(Promise.race([accepted, ended]), callMs, () => Promise.reject(failure('timeout')))
  } catch (error) {
    line.cancel()
    throw error
  }
  return {
    ended,
    forget() {
      commands = 0
    },
    close: line.cancel
  }
}

/** Sends heartbeats. Resolves when the route of the topic has changed; rejects when a proxy is gone without notice. */
async function watch(
  to: Subscription,
  host: ProxyAddress,
  key: string,
  sessions: Session[],
  ways: Way[],
  signal: AbortSignal
): Promise<void> {
  const request = new service.HeartbeatRequest()
    .setClientType(ClientType.SIMPLE_CONSUMER)
    .setGroup(resource(to.group, to.broker.path))
  for (let nth = 1; ; nth++) {
    await sleep(heartbeatMs, signal)
    if (signal.aborted) return
    for (const each of sessions) each.forget()
    const beat = ({ proxy }: Way): Promise<unknown> =>
      call(proxy, (client, done) =>
        client.heartbeat(request, metadata(to.broker, readerId), deadline(callMs), done)
      )
    await Promise.all(ways.map(beat))
    if (nth % routeEvery === 0 && (await route(to, host)).key !== key) return
  }
}
