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
import { isError } from '../../runtime/text-of.ts'

// Decides which targets we may connect to. It judges each address of a name, not only the name, and again the address of the open socket.

export type Resolve = (host: string) => Promise<LookupAddress[]>

export interface GuardOptions {
  /** EGRESS_ALLOW: networks and `host:port`. Undefined if it is not set, which is not the same as empty. */
  allow: string[] | undefined
  /** True without DATABASE_URL: loopback and RFC 1918 are then allowed, unless `allow` is set. */
  embedded: boolean
  /** Our own endpoints, `host:port`: never a target, whatever is allowed. */
  deny: string[]
  resolve?: Resolve
}

export interface Guard {
  /** Entries of `allow` without effect, and why, for a warning at start. */
  readonly warnings: string[]
  /** Judges the parts of a URL that need no DNS. */
  check(url: string): Failed | URL
  /** Judges one address of a host, before connecting to it and on the open socket. */
  judge(host: string, port: number, ip: string): Failed | undefined
  /** Must be awaited before connecting to a literal address, because `lookup` is not called for it. */
  ready(port: number): Promise<void>
  /** For net.connect: returns only the allowed addresses of a name, and fails if all are denied. */
  lookup(port: number): LookupFunction
}

/** Number of verdicts kept, by origin: most sends have the same origin as earlier ones. */
const verdictsKept = 1_000
/** Number of whole URLs kept. It is small: URLs that contain an order number are all different. */
const urlsKept = 100
const urlLength = 500

/** Throws on an invalid entry of `allow` or `deny`. The error names the entry. */
export function guard(options: GuardOptions): Guard {
  const allow = allowList(options.allow ?? [])
  const resolve = shared(options.resolve ?? resolveBySystem)
  const own = ownEndpoints(options.deny, resolve, localAddresses)
  const byDefault = options.embedded && options.allow === undefined
  const verdicts = new Map<string, Failed | null>()
  const good = new Map<string, URL>()
  // If a list is set, the advice must be to add to it, not to replace it.
  const fix = (entry: string): string =>
    options.allow?.length ? `add ${entry} to EGRESS_ALLOW` : `set EGRESS_ALLOW=${entry}`

  /** Why one address of a host is denied, and the entry of EGRESS_ALLOW that would allow it, if there can be one. */
  function deniedBecause(
    host: string,
    port: number,
    ip: string
  ): { what: string; entry?: string } | undefined {
    const address = addressOf(ip)
    if (!address) return { what: 'has an address that cannot be read' }
    if (own.has(port, address)) return { what: `at port ${port} is this service's own endpoint` }
    const why = denied(address)
    if (!why || allow.has(ip, port)) return undefined
    if (byDefault && (isLoopback(address) || isRfc1918(address))) return undefined
    // A name in the operator's list may resolve to loopback or a private range. A metadata service must be listed by its address.
    if (allow.has(host, port) && (!why.hard || isLoopback(address))) return undefined
    if (!why.hard && allow.networks.some(network => inside(address, network))) return undefined
    const entry = why.hard ? `${bracketed(ip)}:${port}` : networkAround(address, why.prefix)
    return { what: `is ${why.what}`, entry }
  }

  /** The refusal of a host, with the reason for each of these addresses. Undefined for an address that is allowed. */
  function judge(name: string, port: number, ...ips: string[]): Failed | undefined {
    const host = bare(name)
    const reasons: string[] = []
    const entries = new Set<string>()
    for (const ip of ips) {
      const why = deniedBecause(host, port, ip)
      if (!why) return undefined
      reasons.push(`${host === ip ? '' : `(${ip}) `}${why.what}`)
      if (why.entry !== undefined) entries.add(why.entry)
    }
    const advice = entries.size > 0 ? `; to allow it ${fix([...entries].join())}` : ''
    return blocked(`target ${host} ${reasons.join(', ')}${advice}`)
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

  /**
   * The allowed addresses of a name. Rejects if all are denied. A denied one is left out and never connected to: behind DNS64 a
   * name has an address of each kind, and only one of them may be usable.
   */
  async function checked(
    name: string,
    port: number,
    family: unknown
  ): Promise<[LookupAddress, ...LookupAddress[]]> {
    await own.ready(port)
    // With the dot that may end it: the dot keeps the resolver from trying its search list.
    const addresses = await resolve(name.toLowerCase())
    const allowed = addresses.filter(each => !judge(name, port, each.address))
    if (allowed.length === 0 && addresses.length > 0) {
      const refused = judge(name, port, ...addresses.map(each => each.address))
      if (refused) throw new Failure(refused)
    }
    const [first, ...others] = allowed.filter(
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
      // Most sends of a downstream have the same URL, and parsing it costs more than the rest of this function.
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
      checked(hostname, port, wanted.family).then(
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
  isError(error) && 'code' in error && typeof error.code === 'string' ? error.code : 'failed'

const portOf = (url: URL): number => (url.port ? Number(url.port) : url.protocol === 'https:' ? 443 : 80)
const bracketed = (host: string): string => (isIPv6(host) ? `[${host}]` : host)

/** A host in lower case, as in EGRESS_ALLOW, without brackets and without the dot that may end a name. */
function bare(hostname: string): string {
  if (hostname.startsWith('[')) return hostname.slice(1, -1)
  return (hostname.endsWith('.') ? hostname.slice(0, -1) : hostname).toLowerCase()
}

/** Shares one lookup of a name. getaddrinfo has four threads for the whole process: fifty new sockets must not occupy them all. */
function shared(resolve: Resolve): Resolve {
  const lookups = new Map<string, Promise<LookupAddress[]>>()
  return host => {
    const known = lookups.get(host)
    if (known) return known
    const lookup = resolve(host).finally(() => lookups.delete(host))
    lookups.set(host, lookup)
    return lookup
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
