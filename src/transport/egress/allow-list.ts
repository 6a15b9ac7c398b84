import { isIP, isIPv6 } from 'node:net'
import {
  addressOf,
  allHard,
  networkOf,
  type Network,
  isLoopback,
  isUnspecified,
  type Address
} from './address.ts'
import type { LookupAddress } from 'node:dns'

/** Our own listeners and stores. They are never a target, even if their network is allowed. */
export interface OwnEndpoints {
  has(port: number, address: Address): boolean
  hasName(port: number, host: string): boolean
  /** Resolves the names among the endpoints on this port. Almost always there are none, and it ends at once. */
  ready(port: number): Promise<void>
}

export function ownEndpoints(
  entries: string[],
  resolve: (host: string) => Promise<LookupAddress[]>,
  localAddresses: () => Address[]
): OwnEndpoints {
  const hosts = new Map<number, Set<string>>()
  const resolved = new Map<string, Address[]>()
  for (const entry of entries) {
    const endpoint = endpointOf(entry)
    if (!endpoint) throw new TypeError(`own endpoint "${entry}" is not a host and port`)
    hosts.set(endpoint.port, (hosts.get(endpoint.port) ?? new Set()).add(endpoint.host))
  }

  function isAt(host: string, address: Address): boolean {
    const literal = host === 'localhost' ? addressOf('127.0.0.1') : addressOf(host)
    if (!literal) return resolved.get(host)?.some(each => same(each, address)) ?? false
    const isLocal = isLoopback(address) || isUnspecified(address)
    if (isUnspecified(literal)) return isLocal || localAddresses().some(each => same(each, address))
    return isLoopback(literal) ? isLocal : same(literal, address)
  }

  return {
    has: (port, address) => [...(hosts.get(port) ?? [])].some(host => isAt(host, address)),
    hasName: (port, host) => hosts.get(port)?.has(host) ?? false,
    async ready(port) {
      for (const host of hosts.get(port) ?? []) {
        if (host === 'localhost' || addressOf(host)) continue
        // If a name of ours does not resolve now, its last known addresses stay denied.
        const addresses = await resolve(host).catch(() => undefined)
        if (addresses)
          resolved.set(
            host,
            addresses.flatMap(each => addressOf(each.address) ?? [])
          )
      }
    }
  }
}

const same = (a: Address, b: Address): boolean => a.kind() === b.kind() && a.toString() === b.toString()

/** EGRESS_ALLOW, parsed. Networks allow private addresses; everything else needs an exact `host:port`. */
export interface AllowList {
  networks: Network[]
  warnings: string[]
  /** Whether exactly this host (a name or an address, without brackets) and port is listed. */
  has(host: string, port: number): boolean
}

export interface Endpoint {
  host: string
  port: number
}

export function allowList(entries: string[]): AllowList {
  const networks: Network[] = []
  const exact = new Set<string>()
  const warnings: string[] = []
  for (const entry of entries.map(each => each.trim()).filter(Boolean)) {
    const network = asNetwork(entry)
    const endpoint = network ? undefined : endpointOf(entry)
    if (network) {
      networks.push(network)
      const why = allHard(network)
      if (why) {
        warnings.push(
          `EGRESS_ALLOW: ${entry} does nothing, since a network cannot allow ${why.what}; list host:port instead`
        )
      }
    } else if (endpoint) {
      exact.add(`${normal(endpoint.host)} ${endpoint.port}`)
    } else {
      throw new TypeError(
        `EGRESS_ALLOW: "${entry}" is neither a network (10.2.0.0/16) nor a host and port (warehouse:8080)`
      )
    }
  }
  return { networks, warnings, has: (host, port) => exact.has(`${normal(host)} ${port}`) }
}

/** One spelling for each address. */
const normal = (host: string): string => addressOf(host)?.toString() ?? host

/** A network. A single address counts as a network of one address. */
function asNetwork(entry: string): Network | undefined {
  if (entry.includes('/')) return networkOf(entry)
  const address = addressOf(entry)
  return address && [address, address.kind() === 'ipv4' ? 32 : 128]
}

/** Parses `host:port` or `[v6]:port`. The host is normalised like the host of a URL. */
export function endpointOf(text: string): Endpoint | undefined {
  const port = /^[^\s/?#@\\]+:(\d{1,5})$/.exec(text)?.[1]
  if (!port || !URL.canParse(`http://${text}`)) return undefined
  const host = new URL(`http://${text}`).hostname.replace(/^\[|\]$|\.$/g, '')
  return { host, port: Number(port) }
}

/** Whether a setting is a network: an address and a prefix length. */
export function isCidr(text: string): boolean {
  const [ip = '', length = '', ...rest] = text.split('/')
  if (rest.length > 0 || !/^\d{1,3}$/.test(length)) return false
  return isIP(ip) !== 0 && Number(length) <= (isIPv6(ip) ? 128 : 32)
}

/** Whether a setting is `host:port` or `[v6]:port`. */
export const isHostPort = (text: string) => {
  const [, port = ''] = /^(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):(\d{1,5})$/.exec(text) ?? []
  return port !== '' && Number(port) >= 1 && Number(port) <= 65535
}
