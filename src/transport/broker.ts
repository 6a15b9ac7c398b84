import type { LookupAddress } from 'node:dns'
import { connect, isIP } from 'node:net'
import { unreadableUrl } from '../runtime/errors.ts'
import type { Guard } from './egress/guard.ts'
import { failure, Failure } from './failure.ts'

/** A server that handlers name in their requests: its hosts and its login. Its secrets are never printed. */
export interface Broker {
  name: string
  scheme: Scheme
  tls: boolean
  hosts: readonly { host: string; port: number }[]
  username: string | undefined
  password: string | undefined
  /** The path behind the hosts, without its slash: a virtual host or a database. Decoded. */
  path: string
  /** How Kafka checks the login. */
  mechanism: Mechanism
}

const mechanisms = ['plain', 'scram-sha-256', 'scram-sha-512'] as const
export type Mechanism = (typeof mechanisms)[number]

/** Transport, default port, TLS, by the scheme of a broker's URL. */
const schemes = {
  amqp: { transport: 'rabbitmq', port: 5672, tls: false },
  amqps: { transport: 'rabbitmq', port: 5671, tls: true },
  dubbo: { transport: 'dubbo2', port: 20_880, tls: false },
  kafka: { transport: 'kafka', port: 9092, tls: false },
  kafkas: { transport: 'kafka', port: 9093, tls: true },
  nats: { transport: 'nats', port: 4222, tls: false },
  natss: { transport: 'nats', port: 4222, tls: true },
  redis: { transport: 'redis-stream', port: 6379, tls: false },
  rediss: { transport: 'redis-stream', port: 6379, tls: true },
  rocketmq: { transport: 'rocketmq', port: 8081, tls: false },
  rocketmqs: { transport: 'rocketmq', port: 8081, tls: true },
  tri: { transport: 'dubbo', port: 50_051, tls: false },
  tris: { transport: 'dubbo', port: 50_051, tls: true }
} as const
export type Scheme = keyof typeof schemes
export type BrokerTransport = (typeof schemes)[Scheme]['transport']

export const transportOf = (scheme: Scheme): BrokerTransport => schemes[scheme].transport
/** `kafka` → `kafka://`, for error messages. */
export const schemesOf = (transport: string): string[] =>
  Object.entries(schemes).flatMap(([scheme, each]) => (each.transport === transport ? [`${scheme}://`] : []))

/** The path behind the hosts. Other transports have none. */
const paths: Partial<Record<BrokerTransport, { form: RegExp; what: string }>> = {
  rabbitmq: { form: /^/, what: 'a virtual host' },
  'redis-stream': { form: /^\d{0,5}$/, what: 'the number of a database' },
  rocketmq: { form: /^[!-~]*$/, what: 'a namespace' }
}

export const brokerName = /^[a-z][a-z0-9-]{0,31}$/
/** The environment variable of a broker: `stock-events` → `BROKER_STOCK_EVENTS`. */
export const brokerVariable = (name: string): string => `BROKER_${name.toUpperCase().replaceAll('-', '_')}`

/**
 * `scheme://[user[:password]@]host[:port][,host[:port]…][/path]`, everything percent-encoded as in a URL. Kafka's may end in
 * `?mechanism=…`. What a transport would ignore is refused.
 * For any other text it returns the error, without the URL itself: it may hold a password.
 */
export function parseBroker(name: string, text: string): Broker | string {
  const scheme = /^([a-z]+):\/\//.exec(text)?.[1] ?? ''
  if (!isScheme(scheme)) return `must be a URL that starts with ${Object.keys(schemes).join('://, ')}://`
  const [, login, authority = '', path = '', query = ''] =
    /^[a-z]+:\/\/(?:([^@/?#]*)@)?([^/?#@]+)(?:\/([^?#]*))?(?:\?([^#]*))?$/.exec(text) ?? []
  const { port } = schemes[scheme]
  const hosts = authority.split(',').map(each => hostOf(each, port))
  if (!hosts.every(each => each !== undefined))
    return unreadableUrl(`${scheme}://user:password@host:${port},host:${port}`)
  const mechanism = mechanismOf(scheme, query)
  if (!mechanism)
    return transportOf(scheme) === 'kafka'
      ? `may have one option, ?mechanism=, with one of ${mechanisms.join(', ')}`
      : 'must not have options, which begin with a ?'
  try {
    // A password may contain a colon (RFC 3986, userinfo).
    const [, username = '', password = ''] = (/^([^:]*):?(.*)$/.exec(login ?? '') ?? []).map(
      decodeURIComponent
    )
    const decoded = decodeURIComponent(path)
    const { form, what } = paths[transportOf(scheme)] ?? { form: /^$/, what: undefined }
    if (!form.test(decoded)) return what ? `must have ${what} as its path` : 'must not have a path'
    return {
      name,
      scheme,
      tls: schemes[scheme].tls,
      hosts,
      username: username || undefined,
      password: password || undefined,
      path: decoded,
      mechanism
    }
  } catch {
    return 'holds a % that is not followed by two hexadecimal digits'
  }
}

const isScheme = (text: string): text is Scheme => Object.hasOwn(schemes, text)

function mechanismOf(scheme: Scheme, query: string): Mechanism | undefined {
  const options = [...new URLSearchParams(query)]
  if (options.length === 0) return 'plain'
  const [name, value] = options[0]!
  if (transportOf(scheme) !== 'kafka' || name !== 'mechanism' || options.length > 1) return undefined
  return mechanisms.find(each => each === value.toLowerCase())
}

function hostOf(text: string, defaultPort: number): { host: string; port: number } | undefined {
  const [, bracketed, plain, port] = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s]+))(?::(\d{1,5}))?$/.exec(text) ?? []
  const host = bracketed ?? plain
  const number = port === undefined ? defaultPort : Number(port)
  if (host === undefined || number < 1 || number > 65_535) return undefined
  if (bracketed !== undefined && isIP(bracketed) !== 6) return undefined
  return { host, port: number }
}

/** `host:port`, as in the log and in an outcome's `address`. */
export const at = ({ host, port }: { host: string; port: number }): string =>
  host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`

/** The list, beginning with another element at each turn. */
export const rotated = <T>(list: readonly T[], turn: number): T[] => {
  const first = turn % (list.length || 1)
  return [...list.slice(first), ...list.slice(0, first)]
}

/**
 * Resolves a broker's host to one address that the egress guard allows, for clients that do not accept our
 * `lookup`. Of several addresses it is one that accepts a connection: a broker may listen on IPv4 only. Rejects with
 * a Failure that holds the outcome.
 */
export async function allowedAddress(guard: Guard, place: { host: string; port: number }): Promise<string> {
  const [first, ...others] = await allowedAddresses(guard, place)
  if (others.length === 0) return first.address
  return (await accepting(place, [first, ...others])) ?? first.address
}

/** The addresses of a host that the egress guard allows, without a connection. Rejects with a Failure if it allows none. */
export async function allowedAddresses(
  guard: Guard,
  { host, port }: { host: string; port: number }
): Promise<[LookupAddress, ...LookupAddress[]]> {
  const family = isIP(host)
  if (family !== 0) {
    await guard.ready(port)
    const refused = guard.judge(host, port, host)
    if (refused) throw new Failure(refused)
    return [{ address: host, family }]
  }
  return new Promise((resolve, reject) => {
    guard.lookup(port)(host, { all: true }, (error, addresses) => {
      if (error) reject(error)
      else resolve(addresses as [LookupAddress, ...LookupAddress[]])
    })
  })
}

/** Less than the time for a connect, so that the first address can still be tried. */
const acceptMs = 2_000

/** The first of these addresses that accepts a connection. Node tries them in turn. */
const accepting = (
  place: { host: string; port: number },
  addresses: LookupAddress[]
): Promise<string | undefined> =>
  new Promise(resolve => {
    const socket = connect({
      ...place,
      autoSelectFamily: true,
      lookup: (_host, _options, tell) => tell(null, addresses)
    })
    const end = (address?: string): void => {
      clearTimeout(late)
      socket.destroy()
      resolve(address)
    }
    const late = setTimeout(end, acceptMs)
    socket.once('connect', () => end(socket.remoteAddress))
    socket.on('error', () => end())
  })

/** The broker that a request names; by default the one with the name of the transport. Throws a Failure that names the missing setting. */
export function chosen(
  brokers: ReadonlyMap<string, Broker>,
  transport: string,
  name: string = transport
): Broker {
  if (typeof name !== 'string') throw failure('bad_request: the broker must be a name')
  const broker = brokers.get(name)
  if (broker && transportOf(broker.scheme) === transport) return broker
  throw failure(
    broker
      ? `bad_request: the broker ${name} is ${broker.scheme}://, not ${schemesOf(transport).join(' or ')}`
      : `bad_request: the broker ${name} is not set: set ${brokerVariable(name)}`
  )
}
