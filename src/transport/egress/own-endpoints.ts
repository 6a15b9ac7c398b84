import type { LookupAddress } from 'node:dns'
import { addressOf, isLoopback, isUnspecified, type Address } from './address.ts'
import { endpointOf } from './allow-list.ts'

/** Our own listeners and stores, which no target may reach even where their network is allowed. */
export interface OwnEndpoints {
  has(port: number, address: Address): boolean
  hasName(port: number, host: string): boolean
  /** Resolves the names among the endpoints on this port; at once where there are none, which is nearly always. */
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
        // A name of ours that does not resolve now leaves its last known addresses denied.
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
