// The targets of this setup, checked like those of a delivery: by the egress rules, after DNS. Nothing is sent.
import type { Config } from '../../service/config.ts'
import { egress } from '../../service/egress.ts'
import type { NamedTarget } from '../../handler/load.ts'
import { waitAtMost } from '../../runtime/with-timeout.ts'
import { at, brokerVariable, allowedAddresses, transportOf, type Broker } from '../../transport/broker.ts'
import { endpointOf } from '../../transport/egress/allow-list.ts'
import { Failure } from '../../transport/failure.ts'
import { runIdOf } from './redis.ts'

export interface CheckedTarget {
  /** The source of the target: a handler's file, or the setting of a broker. */
  of: string
  /** The target as written in its file or its setting. */
  name: string
  /** The reason why the egress rules block it. Undefined: it is allowed, or its name does not resolve now. */
  refused: string | undefined
}

export interface TargetFacts {
  targets: CheckedTarget[]
  /** Brokers on the same server as REDIS_URL. */
  besideQueue: string[]
}

const lookMs = 3_000

export async function lookAtTargets(
  config: Config,
  databaseUrl: string | undefined,
  named: NamedTarget[]
): Promise<TargetFacts> {
  const guard = egress({ config, databaseUrl })
  const judge = async (
    of: string,
    name: string,
    place: { host: string; port: number }
  ): Promise<CheckedTarget> => {
    const target: CheckedTarget = { of, name, refused: undefined }
    const looking = allowedAddresses(guard, place).catch((err: unknown) => {
      if (err instanceof Failure && err.outcome.alarm !== undefined) target.refused = err.outcome.reason
    })
    await waitAtMost(lookMs, looking)
    return { ...target }
  }
  const ofHandlers = named.map(async ({ file, name, url }): Promise<CheckedTarget> => {
    const target = guard.check(url)
    if (!(target instanceof URL)) return { of: file, name, refused: target.reason }
    const { host, protocol } = target
    const place = endpointOf(target.port ? host : `${host}:${protocol === 'https:' ? 443 : 80}`)
    return place ? await judge(file, name, place) : { of: file, name, refused: undefined }
  })
  const ofBrokers = [...config.brokers.values()].flatMap(broker =>
    broker.hosts.map(place => judge(brokerVariable(broker.name), at(place), place))
  )
  const targets = await Promise.all([...ofHandlers, ...ofBrokers])
  return { targets, besideQueue: await besideQueue(config, targets) }
}

/** Compares `run_id`s, because a server can have several names and addresses. */
async function besideQueue({ redisUrl, brokers }: Config, targets: CheckedTarget[]): Promise<string[]> {
  const streams = [...brokers.values()].filter(({ scheme }) => transportOf(scheme) === 'redis-stream')
  if (redisUrl === undefined || streams.length === 0) return []
  const queue = await runIdOf(redisUrl).catch(() => undefined)
  const isBeside = async (broker: Broker): Promise<boolean> => {
    const variable = brokerVariable(broker.name)
    const ours = targets.filter(({ of }) => of === variable)
    if (ours.some(({ refused }) => refused?.includes("this service's own endpoint"))) return true
    if (queue === undefined || ours.some(({ refused }) => refused !== undefined)) return false
    const ids = await Promise.all(broker.hosts.map(place => runIdOf(urlOf(broker, place)).catch(() => '')))
    return ids.includes(queue)
  }
  const beside = await Promise.all(streams.map(isBeside))
  return streams.filter((_, index) => beside[index]).map(({ name }) => brokerVariable(name))
}

function urlOf(
  { scheme, username = '', password = '' }: Broker,
  place: { host: string; port: number }
): string {
  const login = username || password ? `${encodeURIComponent(username)}:${encodeURIComponent(password)}@` : ''
  return `${scheme}://${login}${at(place)}`
}
