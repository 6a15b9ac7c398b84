import { BlockList, isIP } from 'node:net'
import type { ApiDeps } from './deps.ts'

/** The unit of limits: an IPv4 address, or the /64 of an IPv6 address, since a single host may use all of it. */
export function addressGroup(address: string): string {
  const plain = unmapped(address)
  if (isIP(plain) !== 6) return plain
  const [front = '', back] = plain.split('%', 1)[0]?.split('::') ?? []
  const left = front === '' ? [] : front.split(':')
  const right = back === undefined || back === '' ? [] : back.split(':')
  const zeros = Array.from({ length: Math.max(0, 8 - left.length - right.length) }, () => '0')
  const groups = back === undefined ? left : [...left, ...zeros, ...right]
  return `${groups.slice(0, 4).join(':')}::/64`
}

/** Whether TRUST_PROXY names this peer as a proxy: its connections carry the requests of many callers. */
export function proxyCheck(trusted: ApiDeps['trustProxy']): (address: string) => boolean {
  if (typeof trusted !== 'string') return () => trusted !== false && trusted !== 0
  const list = new BlockList()
  for (const part of trusted.split(',')) {
    const [address = '', length] = part.trim().split('/')
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4'
    if (isIP(address) === 0) continue
    if (length === undefined) list.addAddress(address, family)
    else list.addSubnet(address, Number(length), family)
  }
  return address => {
    const plain = unmapped(address)
    return list.check(plain, isIP(plain) === 6 ? 'ipv6' : 'ipv4')
  }
}

/** An IPv4 peer of a socket that listens on `::` shows as `::ffff:1.2.3.4`. */
const unmapped = (address: string) => (address.startsWith('::ffff:') ? address.slice(7) : address)
