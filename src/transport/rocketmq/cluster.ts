import type { Logger } from '../../runtime/logger.ts'
import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js'
import service from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_pb.js'
import { isIP } from 'node:net'
import type { Outcome } from '../../domain/types.ts'
import { at, rotated, type Broker } from '../broker.ts'
import type { Guard } from '../egress/guard.ts'
import { failed, Failure, failureOf } from '../failure.ts'
import type { Flight } from '../sends.ts'
import { resource, type RocketMessage } from './message.ts'
import { call, metadata, proxiesOf, type ProxyAddress, type Proxy } from './proxy.ts'
import { failureOfCall, isAway, isUnavailable, verdictOf, wasNotSent } from './status.ts'

const { AddressScheme, MessageType, Permission } = definition

/** The interval at which RocketMQ clients refresh the route of a topic. */
const routeMs = 30_000
const routeTimeoutMs = 3_000
/** Number of routes kept. A limit is needed, because a handler may build the topic from a task's body. */
const routesKept = 1_000

interface Route {
  /** The addresses of each writable queue of the topic. */
  queues: ProxyAddress[][]
  kinds: ReadonlySet<number>
  until: number
}

/** A RocketMQ behind its proxies, with its routes and connections. */
export interface RocketmqCluster {
  publish(message: RocketMessage, flight: Flight): Promise<Outcome>
  close(): void
}

export function rocketmqCluster(
  deps: { guard: Guard; log: Pick<Logger, 'info' | 'warn'> },
  broker: Broker
): RocketmqCluster {
  const proxies = proxiesOf(deps.guard, broker)
  const routes = new Map<string, Promise<Route>>()
  let turn = 0
  let firstHost = 0
  const away = new Set<string>()
  /** The addresses of the hosts and of the routes, each with the time when its last route is out of date. */
  const named = new Map(broker.hosts.map(host => [at(host), Infinity]))
  let isClosed = false

  function lost(place: ProxyAddress, proxy: Proxy, reason: string): void {
    proxies.forget(place, proxy)
    markAway(place, reason)
  }

  function markAway(place: ProxyAddress, reason: string): void {
    if (away.has(at(place)) || isClosed) return
    away.add(at(place))
    deps.log.warn({ broker: broker.name, address: at(place), reason }, 'broker.unavailable')
  }

  function heard(place: ProxyAddress): void {
    if (away.delete(at(place))) deps.log.info({ broker: broker.name, address: at(place) }, 'broker.available')
  }

  /** The Failure if the place cannot be connected to, as when its name has no address. */
  async function proxyTo(place: ProxyAddress): Promise<Proxy | Failure> {
    try {
      return await proxies.to(place)
    } catch (error) {
      const failure = new Failure(failureOf(error))
      markAway(place, failure.outcome.reason)
      return failure
    }
  }

  async function routeTo(topic: string): Promise<Route> {
    const known = routes.get(topic)
    const route = await known
    if (route && performance.now() < route.until) return route
    // The first send requests the route, and the others wait for the same answer.
    if (routes.get(topic) !== known) return routeTo(topic)
    if (routes.size >= routesKept) routes.clear()
    const fresh = askRoute(topic)
    routes.set(topic, fresh)
    fresh.catch(() => {
      if (routes.get(topic) === fresh) routes.delete(topic)
    })
    return fresh
  }

  /** Forgets the addresses that no route names any more: where machines come and go, there is always another one. */
  function forgetGone({ queues, until }: Route): void {
    for (const place of queues.flat()) named.set(at(place), Math.max(until, named.get(at(place)) ?? 0))
    const now = performance.now()
    for (const [address, end] of named) if (end <= now) named.delete(address)
    for (const address of away) if (!named.has(address)) away.delete(address)
    proxies.keepOnly(named)
  }

  /** Queries the broker's hosts until one answers. Each call begins with another host, so that recovered hosts are found. */
  async function askRoute(topic: string): Promise<Route> {
    let failure: unknown
    for (const place of rotated(broker.hosts, firstHost++)) {
      const proxy = await proxyTo(place)
      if (proxy instanceof Failure) {
        failure = proxy
        continue
      }
      try {
        return await askRouteOf(proxy, place, topic)
      } catch (error) {
        failure = error
        if (!isAway(error)) break
        lost(place, proxy, failureOfCall(error).reason)
      }
    }
    throw failure
  }

  async function askRouteOf(proxy: Proxy, place: ProxyAddress, topic: string): Promise<Route> {
    const request = new service.QueryRouteRequest()
      .setTopic(resource(topic, broker.path))
      .setEndpoints(endpoints(broker.hosts))
    const deadline = { deadline: Date.now() + routeTimeoutMs }
    const answer = await call<InstanceType<typeof service.QueryRouteResponse>>(proxy, (client, done) =>
      client.queryRoute(request, metadata(broker), deadline, done)
    )
    heard(place)
    const refused = verdictOf(answer.getStatus()?.getCode() ?? 0)
    if (refused) throw new Failure({ kind: 'failed', reason: refused.reason, address: proxy.address })
    const { messageQueuesList } = answer.toObject()
    const writable = messageQueuesList.filter(
      each => each.permission === Permission.WRITE || each.permission === Permission.READ_WRITE
    )
    const route = {
      queues: writable.map(each => each.broker?.endpoints?.addressesList ?? []),
      kinds: new Set(writable.flatMap(each => each.acceptMessageTypesList)),
      until: performance.now() + routeMs
    }
    forgetGone(route)
    return route
  }

  /** Sends to the first address that is available. Nothing was sent as long as no connection opened. */
  async function publish(message: RocketMessage, flight: Flight): Promise<Outcome> {
    const startedAt = performance.now()
    const route = await routeTo(message.topic)
    const unfit = misfit(route, message)
    if (unfit) return unfit
    let outcome: Outcome = failed('target_missing: the topic has no queue to write to')
    for (const place of candidates(route, turn++, away)) {
      const proxy = await proxyTo(place)
      if (flight.over) return outcome
      if (proxy instanceof Failure) {
        outcome = proxy.outcome
        continue
      }
      try {
        return await publishTo(proxy, place, message, flight, startedAt)
      } catch (error) {
        outcome = { ...failureOfCall(error), address: proxy.address }
        if (!isUnavailable(error)) return outcome
        lost(place, proxy, outcome.reason)
        if (!wasNotSent(error)) return outcome
      }
    }
    return outcome
  }

  async function publishTo(
    proxy: Proxy,
    place: ProxyAddress,
    message: RocketMessage,
    flight: Flight,
    startedAt: number
  ): Promise<Outcome> {
    const answer = await call<InstanceType<typeof service.SendMessageResponse>>(
      proxy,
      (client, done) => client.sendMessage(message.request, metadata(broker), done),
      cancel => {
        const cut = (why: string): void => {
          cancel()
          // A dead machine does not close its connections: only a new connection shows whether it is alive.
          if (why === 'timeout' && proxy.heardAt < startedAt) lost(place, proxy, 'timeout')
        }
        flight.cut = cut // not in place: docs/decisions.md, what has ended
      }
    )
    heard(place)
    const address = { address: proxy.address }
    const status = answer.getStatus()
    const code = answer.getEntriesList()[0]?.getStatus()?.getCode() ?? status?.getCode() ?? 0
    const verdict = verdictOf(code)
    if (!verdict) {
      const messageId = answer.getEntriesList()[0]?.getMessageId() ?? ''
      return { kind: 'delivered', status: code, ...address, ...(messageId === '' ? {} : { messageId }) }
    }
    // The reason may be that the topic has changed.
    routes.delete(message.topic)
    return { ...verdict, status: code, answer: Buffer.from(status?.getMessage() ?? ''), ...address }
  }

  return {
    publish,
    close() {
      isClosed = true
      proxies.close()
      routes.clear()
    }
  }
}

/** The outcome if the topic does not take this kind of message. A topic of unknown kinds is tried. */
function misfit({ kinds }: Route, { topic, kind }: RocketMessage): Outcome | undefined {
  if (kinds.size === 0 || kinds.has(MessageType.MESSAGE_TYPE_UNSPECIFIED) || kinds.has(MessageType[kind]))
    return undefined
  const taken = Object.entries(MessageType).flatMap(([name, number]) =>
    kinds.has(Number(number)) ? name : []
  )
  return { kind: 'refused', reason: `target_type: the topic ${topic} takes ${taken.join(', ')}, not ${kind}` }
}

/** The addresses of all queues, each once, beginning with another queue every time. Unavailable addresses come last. */
function candidates({ queues }: Route, turn: number, away: ReadonlySet<string>): ProxyAddress[] {
  const all = new Map(
    rotated(queues, turn)
      .flatMap(each => rotated(each, turn))
      .map(place => [at(place), place])
  )
  const places = [...all.values()]
  if (away.size === 0) return places
  return [...places.filter(each => !away.has(at(each))), ...places.filter(each => away.has(at(each)))]
}

/** All hosts: proxies in cluster mode return the client's own endpoints as the addresses of the topic. */
export function endpoints(hosts: readonly ProxyAddress[]): InstanceType<typeof definition.Endpoints> {
  const kinds = new Set(hosts.map(({ host }) => isIP(host)))
  const scheme = kinds.has(0)
    ? AddressScheme.DOMAIN_NAME
    : kinds.has(6)
      ? AddressScheme.IPV6
      : AddressScheme.IPV4
  const addresses = hosts.map(({ host, port }) => new definition.Address().setHost(host).setPort(port))
  return new definition.Endpoints().setScheme(scheme).setAddressesList(addresses)
}
