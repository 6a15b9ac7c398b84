import { isMissingPackage, SetupError } from '../runtime/errors.ts'
import { brokerVariable, schemesOf, transportOf, type Broker } from './broker.ts'
import type { Transport, TransportDeps } from './types.ts'

type Maker = (deps: TransportDeps) => Transport<never>

/**
 * All transports. Each is loaded when a handler uses it. A new one needs a file, a line here and the conformance suite. `needs`:
 * its packages, in the form for `npm install`.
 */
const makers = {
  http: { load: async () => (await import('./http/http.ts')).httpTransport, needs: [] },
  dubbo: { load: async () => (await import('./dubbo/triple.ts')).dubboTransport, needs: [] },
  dubbo2: { load: async () => (await import('./dubbo/classic.ts')).dubbo2Transport, needs: ['hessian.js@2'] },
  custom: { load: async () => (await import('./custom.ts')).customTransport, needs: [] },
  rabbitmq: {
    load: async () => (await import('./rabbitmq/rabbitmq.ts')).rabbitmqTransport,
    needs: ['rabbitmq-client@5']
  },
  kafka: {
    load: async () => (await import('./kafka/kafka.ts')).kafkaTransport,
    needs: ['@platformatic/kafka@1.35']
  },
  rocketmq: {
    load: async () => (await import('./rocketmq/rocketmq.ts')).rocketmqTransport,
    needs: ['rocketmq-client-nodejs@1']
  },
  nats: {
    load: async () => (await import('./nats/nats.ts')).natsTransport,
    needs: ['@nats-io/transport-node@3', '@nats-io/jetstream@3']
  },
  'redis-stream': {
    load: async () => (await import('./redis-stream/redis-stream.ts')).redisStreamTransport,
    needs: []
  }
} satisfies Record<string, { load: () => Promise<Maker>; needs: string[] }>

export type TransportName = keyof typeof makers
export const transportNames = Object.keys(makers) as TransportName[]

/** The transports in `used`. Throws a SetupError if a package or broker is missing. Opens no connection: a broker may be down at start. */
export async function transports(
  deps: TransportDeps,
  used: Iterable<TransportName>
): Promise<Partial<Record<TransportName, Transport>>> {
  const names = [...new Set(used)]
  const missing = await missingForTransports(names, deps.brokers)
  if (missing.length > 0) throw new SetupError(missing.join('\n'))
  return Object.fromEntries(
    await Promise.all(names.map(async name => [name, (await load(name))(deps)] as const))
  )
}

/** The brokers and packages that these transports need and that are missing: a line each, with the remedy. */
export async function missingForTransports(
  used: Iterable<TransportName>,
  brokers: ReadonlyMap<string, Broker>
): Promise<string[]> {
  const missing: string[] = []
  for (const name of new Set(used)) {
    const broker = withoutBroker(name, brokers)
    if (broker !== undefined) missing.push(broker)
    else if (!(await isInstalled(name)))
      missing.push(`the transport ${name} needs a package: npm install ${makers[name].needs.join(' ')}`)
  }
  return missing
}

async function isInstalled(name: TransportName): Promise<boolean> {
  try {
    await load(name)
    return true
  } catch (error) {
    if (isMissingPackage(error)) return false
    throw error
  }
}

/** A transport's request has the type that its handlers were checked against. */
const load = async (name: TransportName): Promise<(deps: TransportDeps) => Transport> =>
  await makers[name].load()

function withoutBroker(name: TransportName, brokers: ReadonlyMap<string, Broker>): string | undefined {
  const [scheme] = schemesOf(name)
  if (scheme === undefined || [...brokers.values()].some(each => transportOf(each.scheme) === name))
    return undefined
  return `a downstream uses ${name}, but no broker for it is set: set ${brokerVariable(name)}=${scheme}host`
}
