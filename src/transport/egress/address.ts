import ipaddr from 'ipaddr.js'

/** Ports that never serve HTTP: those of the fetch standard (https://fetch.spec.whatwg.org/#port-blocking), and of common stores. */
export const badPorts: ReadonlySet<number> = new Set([
  0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104,
  109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515,
  526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049,
  3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080, 1433, 1521, 2375,
  2376, 2379, 2380, 3306, 5432, 6379, 9200, 9300, 10250, 10255, 11211, 27017, 27018, 27019
])

/** Names that exist only inside a network. The metadata services of clouds are under `internal`. */
const insideOnly = [
  'localhost',
  'local',
  'internal',
  'svc',
  'localdomain',
  'lan',
  'intranet',
  'corp',
  'home',
  'private',
  'home.arpa'
]

export interface NameProblem {
  /** Not a valid name: no setting allows it. */
  malformed: boolean
  what: string
}

/** The problem of a host name, which comes from the URL parser, without its last dot. */
export function nameProblem(host: string): NameProblem | undefined {
  const labels = host.split('.')
  if (host.length > 253 || labels.some(label => label.length < 1 || label.length > 63)) {
    return { malformed: true, what: 'not a host name' }
  }
  if (labels.length === 1 || insideOnly.some(name => host === name || host.endsWith(`.${name}`))) {
    return { malformed: false, what: 'a name inside a network' }
  }
  return undefined
}

/**
 * Why an address is denied. `hard`: no CIDR allows it, only an exact `host:port` entry. `prefix`: the prefix length of the network
 * in the advice to the operator.
 */
export interface Denied {
  hard: boolean
  what: string
  prefix: number
}

const loopback = 'a loopback address'
const linkLocal = 'a link-local address (cloud metadata)'
const metadata = 'a cloud metadata address'
const reserved = 'a reserved address'
const multicast = 'a multicast address'
const embedded = 'an address with another one inside'
const privateRange = 'in a private range'
const shared = 'in a shared (carrier) range'
const documentation = 'in a documentation range'

const hard: [cidr: string, what: string][] = [
  ['0.0.0.0/8', 'an unspecified address'],
  ['127.0.0.0/8', loopback],
  ['169.254.0.0/16', linkLocal],
  ['224.0.0.0/4', multicast],
  ['240.0.0.0/4', reserved],
  ['192.0.0.0/24', metadata],
  ['100.100.100.200/32', metadata],
  ['168.63.129.16/32', metadata],
  ['::1/128', loopback],
  ['::/96', embedded],
  ['::ffff:0:0/96', embedded],
  ['::ffff:0:0:0/96', embedded],
  ['64:ff9b::/96', embedded],
  ['64:ff9b:1::/48', embedded],
  ['2002::/16', embedded],
  ['2001::/23', embedded],
  ['fe80::/10', linkLocal],
  ['ff00::/8', multicast],
  ['fd00:ec2::/32', metadata],
  ['fd20:ce::/32', metadata]
]

const soft: [cidr: string, what: string][] = [
  ['10.0.0.0/8', privateRange],
  ['172.16.0.0/12', privateRange],
  ['192.168.0.0/16', privateRange],
  ['100.64.0.0/10', shared],
  ['198.18.0.0/15', 'in a benchmarking range'],
  ['192.0.2.0/24', documentation],
  ['198.51.100.0/24', documentation],
  ['203.0.113.0/24', documentation],
  ['192.88.99.0/24', 'in the 6to4 relay range'],
  ['fc00::/7', privateRange],
  ['fec0::/10', privateRange],
  ['2001:db8::/32', documentation],
  ['3fff::/20', documentation],
  ['100::/64', 'in the discard range']
]

export type Address = ipaddr.IPv4 | ipaddr.IPv6
export type Network = [Address, number]

interface Row extends Denied {
  network: Network
}

// Hard rows first: 100.100.100.200 and fd00:ec2::254 lie inside soft ranges.
const rows: Row[] = [...hard.map(row => toRow(row, true)), ...soft.map(row => toRow(row, false))]
const publicV6 = ipaddr.parseCIDR('2000::/3')
const notPublic: Denied = { hard: true, what: reserved, prefix: 128 }

function toRow([cidr, what]: [string, string], isHard: boolean): Row {
  const network = ipaddr.parseCIDR(cidr)
  const narrowest = network[0].kind() === 'ipv4' ? 16 : 64
  return { network, hard: isHard, what, prefix: Math.max(narrowest, network[1]) }
}

/**
 * Where an IPv6 address leads to the IPv4 address in its last 32 bits, and nowhere else: mapped addresses, and those that DNS64
 * makes (RFC 6052, section 2.1). In the local-use prefix of NAT64 (RFC 8215) each network chooses where the IPv4 address is.
 */
const ipv4AtTheEnd = ['::ffff:0:0/96', '64:ff9b::/96'].map(cidr => ipaddr.parseCIDR(cidr))

/**
 * Parses an address from the resolver, the socket or a normalised URL; undefined for a name. An IPv6 address that stands for an
 * IPv4 address is returned as that one, so that the rules of IPv4 judge it.
 */
export function addressOf(host: string): Address | undefined {
  // ipaddr.js takes the deprecated ::1.2.3.4 for ::ffff:1.2.3.4.
  const text = (host.startsWith('[') ? host.slice(1, -1) : host).replace(/^::(?=\d+\.)/, '0::')
  if (ipaddr.IPv4.isValidFourPartDecimal(text)) return ipaddr.IPv4.parse(text)
  if (!ipaddr.IPv6.isValid(text)) return undefined
  const address = ipaddr.IPv6.parse(text)
  return ipv4AtTheEnd.some(network => inside(address, network))
    ? new ipaddr.IPv4(address.toByteArray().slice(12))
    : address
}

export function networkOf(cidr: string): Network | undefined {
  return ipaddr.isValidCIDR(cidr) ? ipaddr.parseCIDR(cidr) : undefined
}

export function inside(address: Address, [network, prefix]: Network): boolean {
  return address.kind() === network.kind() && address.match(network, prefix)
}

export const isLoopback = (address: Address): boolean => address.range() === 'loopback'
export const isUnspecified = (address: Address): boolean => address.range() === 'unspecified'

const rfc1918 = rows.filter(row => row.what === privateRange && row.network[0].kind() === 'ipv4')
export const isRfc1918 = (address: Address): boolean => rfc1918.some(row => inside(address, row.network))

/** Undefined: a public address. */
export function denied(address: Address): Denied | undefined {
  const row = rows.find(each => inside(address, each.network))
  if (row) return row
  if (address.kind() === 'ipv4') return undefined
  if (!inside(address, publicV6)) return notPublic
  return isIsatap(address) ? { hard: true, what: embedded, prefix: 128 } : undefined
}

/** Why allowing this network has no effect: every address in it is hard. Undefined: it has an effect. */
export function allHard([address, prefix]: Network): Denied | undefined {
  return rows.find(row => row.hard && row.network[1] <= prefix && inside(address, row.network))
}

/** ISATAP: an IPv4 address follows the interface identifier [02]00:5efe, in any prefix. */
function isIsatap(address: Address): boolean {
  const bytes = address.toByteArray()
  return ((bytes[8] ?? 0) & 0xfd) === 0 && bytes[9] === 0 && bytes[10] === 0x5e && bytes[11] === 0xfe
}

/** The network around an address, in the form of a setting: 10.2.3.4 and 16 give 10.2.0.0/16. */
export function networkAround(address: Address, prefix: number): string {
  const cidr = `${address.toString()}/${prefix}`
  const start =
    address.kind() === 'ipv4'
      ? ipaddr.IPv4.networkAddressFromCIDR(cidr)
      : ipaddr.IPv6.networkAddressFromCIDR(cidr)
  return `${start.toString()}/${prefix}`
}
