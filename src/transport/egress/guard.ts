import { lookup as systemLookup, type LookupAddress } from 'node:dns'
import { networkInterfaces } from 'node:os'
import { isIPv6, type LookupFunction } from 'node:net'
import { failure, Failure, type Failed } from '../failure.ts'
import {
  addressOf,
  denied,
  inside,
  isLoopback,
  isRfc1918,
  networkAround,
  type Address,
  badPorts,
  nameProblem
} from './address.ts'
import { allowList, ownEndpoints } from './allow-list.ts'

// Where we may connect. What a name resolves to is judged, not the name alone, and judged again on the open socket.

export type Resolve = (host: string) => Promise<LookupAddress[]>

export interface GuardOptions {
  /** EGRESS_ALLOW: networks and `host:port`; undefined when it is not set, which is not the same as empty. */
  allow: string[] | undefined
  /** No DATABASE_URL: loopback and RFC 1918 are allowed unless `allow` says otherwise. */
  embedded: boolean
  /** Our own endpoints, `host:port`: never a target, whatever is allowed. */
  deny: string[]
  resolve?: Resolve
}

export interface Guard {
  /** Entries of `allow` without effect, and why, for a warning at start. */
  readonly warnings: string[]
  /** Judges all of a URL that can be judged without DNS. */
  check(url: string): Failed | URL
  /** Judges one address of a host, before connecting to it and on the open socket. */
  judge(host: string, port: number, ip: string): Failed | undefined
  /** To be awaited before a connect to a literal, which never meets `lookup`. */
  ready(port: number): Promise<void>
  /** For net.connect: gives checked addresses only, and fails when any one of them is denied. */
  lookup(port: number): LookupFunction
}

/** Verdicts are kept by origin, since most sends go where many went before. */
const verdictsKept = 1_000
/** Few whole URLs are kept: where they name an order, each is different. */
const urlsKept = 100
const urlLength = 500

/** Throws on an entry of `allow` or `deny` that it cannot read, naming it. */
export function guard(options: GuardOptions): Guard {
  const allow = allowList(options.allow ?? [])
  const resolve = shared(options.resolve ?? resolveBySystem)
  const own = ownEndpoints(options.deny, resolve, localAddresses)
  const byDefault = options.embedded && options.allow === undefined
  const verdicts = new Map<string, Failed | null>()
  const good = new Map<string, URL>()
  // The advice must not make an operator replace a list that is set.
  const fix = (entry: string): string =>
    options.allow?.length ? `add ${entry} to EGRESS_ALLOW` : `set EGRESS_ALLOW=${entry}`

  function judge(host: string, port: number, ip: string): Failed | undefined {
    const address = addressOf(ip)
    const at = host === ip ? host : `${host} (${ip})`
    if (!address) return blocked(`target ${at} has an address that cannot be read`)
    if (own.has(port, address)) return blocked(`target ${at}:${port} is this service's own endpoint`)
    const why = denied(address)
    if (!why || allow.has(ip, port)) return undefined
    if (byDefault && (isLoopback(address) || isRfc1918(address))) return undefined
    // A name that the operator listed may be on loopback or in a private range; metadata must be listed by its address.
    if (allow.has(host, port) && (!why.hard || isLoopback(address))) return undefined
    if (!why.hard && allow.networks.some(network => inside(address, network))) return undefined
    const entry = why.hard ? `${bracketed(ip)}:${port}` : networkAround(address, why.prefix)
    return blocked(`target ${at} is ${why.what}; to allow it ${fix(entry)}`)
  }

  function judgeOrigin(url: URL): Failed | null {
    const port = portOf(url)
    const host = bare(url.hostname)
    if (badPorts.has(port) && !allow.has(host, port)) {
      return blocked(
        `target ${host} port ${port} belongs to another service; to allow it ${fix(`${bracketed(host)}:${port}`)}`
      )
    }
    if (addressOf(host)) return judge(host, port, host) ?? null
    if (own.hasName(port, host)) return blocked(`target ${host}:${port} is this service's own endpoint`)
    const problem = nameProblem(host)
    if (!problem || allow.has(host, port)) return null
    if (problem.malformed) return blocked(`target ${host}: ${problem.what}`)
    if (byDefault && (host === 'localhost' || host.endsWith('.localhost'))) return null
    return blocked(`target ${host} is ${problem.what}; to allow it ${fix(`${host}:${port}`)}`)
  }

  /** The addresses of a name, if every one of them may be connected to. */
  async function checked(
    host: string,
    port: number,
    family: unknown
  ): Promise<[LookupAddress, ...LookupAddress[]]> {
    await own.ready(port)
    const addresses = await resolve(host)
    for (const each of addresses) {
      const refused = judge(host, port, each.address)
      if (refused) throw new Failure(refused)
    }
    const [first, ...others] = addresses.filter(
      each => (family !== 4 && family !== 6) || each.family === family
    )
    if (!first) throw unresolved('no address')
    return [first, ...others]
  }

  return {
    warnings: allow.warnings,
    judge,
    ready: port => own.ready(port),

    check(raw) {
      // Most sends of a downstream go to the same URL, and parsing it costs more than the rest of this function.
      const known = good.get(raw)
      if (known) return known
      const problem = rawProblem(raw)
      if (problem) return blocked(problem)
      let url: URL
      try {
        url = new URL(raw)
      } catch {
        return blocked('the url cannot be parsed')
      }
      let verdict = verdicts.get(url.origin)
      if (verdict === undefined) {
        verdict = judgeOrigin(url)
        if (verdicts.size >= verdictsKept) verdicts.clear()
        verdicts.set(url.origin, verdict)
      }
      if (verdict) return verdict
      if (good.size >= urlsKept) good.clear()
      if (raw.length <= urlLength) good.set(raw, url)
      return url
    },

    lookup: port => (hostname, wanted, tell) => {
      checked(bare(hostname), port, wanted.family).then(
        addresses => {
          if (wanted.all) tell(null, addresses)
          else tell(null, addresses[0].address, addresses[0].family)
        },
        (error: unknown) => {
          tell(error instanceof Failure ? error : unresolved(codeOf(error)), '')
        }
      )
    }
  }
}

/** Refuses strings in which two parsers could see different hosts. */
function rawProblem(raw: string): string | undefined {
  const authority = /^https?:\/\/([^/?#]*)/.exec(raw)?.[1]
  if (authority === undefined) return 'the url must start with http:// or https://'
  // eslint-disable-next-line no-control-regex -- the characters that WHATWG strips or splits at
  if (/[\\\s\u0000-\u0020\u007f-\u009f]/.test(raw))
    return 'the url holds a backslash, a space or a control character'
  if (authority === '') return 'the url has no host'
  if (authority.includes('@')) return 'the url holds a user or a password'
  return undefined
}

function blocked(what: string): Failed {
  return { kind: 'failed', alarm: 'BLOCKED_TARGET', reason: `blocked_target: ${what}` }
}

const unresolved = (code: string): Failure => failure(`dns: ${code}`)

const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : 'failed'

const portOf = (url: URL): number => (url.port ? Number(url.port) : url.protocol === 'https:' ? 443 : 80)
const bracketed = (host: string): string => (isIPv6(host) ? `[${host}]` : host)

/** A host without brackets and without the one dot that may end a name. */
function bare(hostname: string): string {
  if (hostname.startsWith('[')) return hostname.slice(1, -1)
  return hostname.endsWith('.') ? hostname.slice(0, -1) : hostname
}

/** getaddrinfo has four threads for the whole process: fifty sockets opened at once must not take them all. */
function shared(resolve: Resolve): Resolve {
  const asking = new Map<string, Promise<LookupAddress[]>>()
  return host => {
    const asked = asking.get(host)
    if (asked) return asked
    const answer = resolve(host).finally(() => asking.delete(host))
    asking.set(host, answer)
    return answer
  }
}

const resolveBySystem: Resolve = host =>
  new Promise((resolve, reject) => {
    systemLookup(host, { all: true }, (error, addresses) => (error ? reject(error) : resolve(addresses)))
  })

function localAddresses(): Address[] {
  return Object.values(networkInterfaces())
    .flatMap(list => list ?? [])
    .flatMap(each => addressOf(each.address) ?? [])
}
