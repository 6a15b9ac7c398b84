// The egress guard, compared with a second implementation: node:net's BlockList over the registries of special addresses.
import { BlockList, isIP, type LookupFunction } from 'node:net'
import { Finding } from '../reader.ts'
import type { Subject } from '../child.ts'
import { guard, type Guard } from '../../src/transport/egress/guard.ts'
import { Failure } from '../../src/transport/failure.ts'
import { originsFrom, url as urlOf } from '../../src/transport/url.ts'

export type TargetsInput =
  | { url: string }
  /** The addresses of a name. */
  | { addresses: string[]; allow?: string[] }
  /** The values that a producer puts into a handler's URL. */
  | { values: string[] }

/** Refused, whatever networks EGRESS_ALLOW has. */
const never = blockList(
  '0.0.0.0/8 127.0.0.0/8 169.254.0.0/16 192.0.0.0/24 224.0.0.0/4 240.0.0.0/4 100.100.100.200/32 168.63.129.16/32',
  '::/8 64:ff9b:1::/48 2001::/23 2002::/16 fe80::/10 ff00::/8 fd00:ec2::/32 fd20:ce::/32'
)
/** Refused, unless a network of EGRESS_ALLOW contains them. */
const seldom = blockList(
  '10.0.0.0/8 100.64.0.0/10 172.16.0.0/12 192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24',
  '100::/64 2001:db8::/32 3fff::/20 fc00::/7 fec0::/10'
)
const global6 = blockList('', '2000::/3')

type Lists = Record<'ipv4' | 'ipv6', BlockList>

/** One list for each family: a BlockList also finds an IPv4 address in an IPv6 network that contains the mapped addresses. */
function blockList(v4: string, v6: string): Lists {
  const lists = { ipv4: new BlockList(), ipv6: new BlockList() }
  for (const cidr of `${v4} ${v6}`.split(' ').filter(Boolean)) add(lists, cidr)
  return lists
}

function add(lists: Lists, cidr: string): void {
  const [network = '', prefix] = cidr.split('/')
  const family = familyOf(network)
  lists[family].addSubnet(network, Number(prefix ?? (family === 'ipv4' ? 32 : 128)), family)
}

function familyOf(address: string): keyof Lists {
  return isIP(address) === 6 ? 'ipv6' : 'ipv4'
}

/** Checks only the list of its own family: a mapped address is not IPv4. */
function holds(lists: Lists, address: string): boolean {
  const family = familyOf(address)
  return lists[family].check(address, family)
}

type Opinion = 'public' | 'seldom' | 'never'

/** What a rule reads. A zone names an interface, and changes nothing; mapped and NAT64 addresses are the IPv4 address at their end. */
function plain(address: string): string {
  const [bare = ''] = address.split('%')
  if (isIP(bare) !== 6) return bare
  const groups = groupsOf(bare)
  const [front, [high = 0, low = 0]] = [groups.slice(0, 6), groups.slice(6)]
  if (!['0,0,0,0,0,65535', '100,65435,0,0,0,0'].includes(front.join())) return bare
  return [high >> 8, high & 255, low >> 8, low & 255].join('.')
}

function opinion(address: string): Opinion {
  const bare = plain(address)
  // Before `seldom`: metadata services lie inside private ranges.
  if (holds(never, bare)) return 'never'
  if (holds(seldom, bare)) return 'seldom'
  if (isIP(bare) === 6 && (!holds(global6, bare) || isIsatap(bare))) return 'never'
  return 'public'
}

/** The eight groups as the URL parser reads them. */
function groupsOf(address: string): number[] {
  const { hostname } = new URL(`http://[${address}]`)
  const [front = '', back] = hostname.slice(1, -1).split('::')
  const groups = (text: string): string[] => (text === '' ? [] : text.split(':'))
  const [first, last] = [groups(front), groups(back ?? '')]
  const all = [...first, ...Array<string>(8 - first.length - last.length).fill('0'), ...last]
  return all.map(group => Number.parseInt(group, 16))
}

function isIsatap(address: string): boolean {
  const groups = groupsOf(address)
  return ((groups[4] ?? 0) & 0xfdff) === 0 && groups[5] === 0x5efe
}

/** Names that the C library reads as addresses: `127.1`, `0x7f.1`, `2130706433`. */
const numeric = /^(?:0x[0-9a-f]*|\d+)(?:\.(?:0x[0-9a-f]*|\d+)){0,3}\.?$/i

const strict = guard({ allow: undefined, embedded: false, deny: [], resolve: () => Promise.resolve([]) })

export const subject: Subject<null, TargetsInput> = async () => {
  const operator = 'https://warehouse.example:8443/base/'
  originsFrom({ WAREHOUSE_URL: operator })
  return {
    async play(input) {
      if ('url' in input) judgeUrl(input.url)
      else if ('values' in input) judgeTemplate(operator, input.values)
      else await judgeAddresses(input.addresses, input.allow)
    }
  }
}

function judgeUrl(url: string): void {
  const verdict = strict.check(url)
  const again = strict.check(url)
  if (verdict instanceof URL !== again instanceof URL)
    throw new Finding('wrong', 'two checks of one URL differ')
  if (!(verdict instanceof URL)) {
    if (!verdict.reason.startsWith('blocked_target: ')) throw new Finding('wrong', verdict.reason)
    return
  }
  const host = verdict.hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '')
  if (isIP(host)) {
    if (opinion(host) !== 'public') throw new Finding('wrong', `${host} is let through`)
  } else if (numeric.test(host) || host.includes(':')) {
    throw new Finding('wrong', `${host} is taken for a name`)
  } else if (!host.includes('.') || /(^|\.)(localhost|local|internal|svc|home\.arpa)$/.test(host)) {
    throw new Finding('wrong', `${host} is a name inside a network`)
  }
  if (verdict.username !== '' || verdict.password !== '') throw new Finding('wrong', 'with a user')
  if (verdict.protocol !== 'http:' && verdict.protocol !== 'https:')
    throw new Finding('wrong', verdict.protocol)
  // A second parser, as in a proxy: a host without escapes must be the same to it.
  const plain = /^https?:\/\/([a-z0-9.-]+)(?::\d*)?(?:[/?#]|$)/i.exec(url)?.[1]
  if (plain !== undefined && !numeric.test(plain) && plain.toLowerCase() !== verdict.hostname)
    throw new Finding('wrong', `${plain} is read as ${verdict.hostname}`)
}

function judgeTemplate(operator: string, values: string[]): void {
  let href: string
  try {
    href = urlOf`${operator}/orders/${values[0]}/x${values[1]}?q=${values[2]}&r=1#${values[3]}`.href
  } catch (error) {
    if (error instanceof TypeError || error instanceof URIError) return // the attempt fails, and nothing is sent
    throw error
  }
  const { origin, pathname, searchParams, username } = new URL(href)
  if (origin !== new URL(operator).origin || username !== '')
    throw new Finding('wrong', `it goes to ${origin}`)
  if (!pathname.startsWith('/base/orders/') || pathname.split('/').length !== 5)
    throw new Finding('wrong', `its path is ${pathname}`)
  if (searchParams.get('q') !== values[2] || searchParams.get('r') !== '1')
    throw new Finding('wrong', `its query is ${String(searchParams)}`)
}

/** A name with these addresses. Only those that are allowed may be connected to. */
async function judgeAddresses(addresses: string[], allow: string[] | undefined): Promise<void> {
  const host = 'shop.example'
  let judged: Guard
  try {
    judged = guard({
      allow,
      embedded: false,
      deny: [],
      resolve: () => Promise.resolve(addresses.map(address => ({ address, family: isIP(address) })))
    })
  } catch (error) {
    if (error instanceof TypeError && allow) return // the start fails, and names the entry that is wrong
    throw error
  }
  const around = allowed(allow ?? [])
  for (const address of addresses) {
    const isRefused = judged.judge(host, 443, address) !== undefined
    if (isRefused === mayBe(address, around))
      throw new Finding('wrong', `${address} is ${isRefused ? 'refused' : 'let through'}`)
  }
  const given = await lookup(judged.lookup(443), host)
  const good = addresses.filter(address => mayBe(address, around))
  if (good.join() !== (given ?? []).join())
    throw new Finding('wrong', `${addresses.join(' ')}: ${given?.join(' ')}`)
}

function mayBe(address: string, { exact, networks }: ReturnType<typeof allowed>): boolean {
  const is = opinion(address)
  if (is === 'public' || exact.has(address) || exact.has(plain(address))) return true
  return is === 'seldom' && holds(networks, plain(address))
}

/** Parses only the entries of the inputs: networks, and `address:443`. */
function allowed(allow: string[]): { exact: Set<string>; networks: Lists } {
  const networks = blockList('', '')
  const exact = new Set<string>()
  for (const entry of allow) {
    if (isIP(entry.split('/')[0] ?? '')) add(networks, isIP(entry) ? plain(entry) : entry)
    else exact.add(entry.replace(/^\[?(.*?)\]?:443$/, '$1'))
  }
  return { exact, networks }
}

async function lookup(look: LookupFunction, host: string): Promise<string[] | undefined> {
  return await new Promise((resolve, reject) => {
    look(host, { all: true }, (error, addresses) => {
      if (!error) resolve((addresses as { address: string }[]).map(({ address }) => address))
      else if (error instanceof Failure) resolve(undefined)
      else reject(error)
    })
  })
}
