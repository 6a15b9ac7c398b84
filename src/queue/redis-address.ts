// REDIS_URL: one server, the nodes of a Redis Cluster, or the Sentinels of a master. It loads no client: every command reads it.
import type { RedisOptions } from 'ioredis'

interface RedisAddress {
  kind: 'server' | 'cluster' | 'sentinel'
  /** As in the URL. */
  nodes: { host: string; port: number }[]
  /** The name of the master in the Sentinels. */
  master?: string
  options: Pick<RedisOptions, 'username' | 'password' | 'db' | 'tls'>
}

const parts = /^(rediss?|redis\+sentinel):\/\/((?:[^@/?]*@)?)([^/?]+)(.*)$/s

/**
 * `redis://[user:password@]host[:6379][/db]`, `redis://…@a:6379,b:6379` (a cluster), or
 * `redis+sentinel://[user:password@]a:26379,b:26379/master[?db=N]`; rediss:// uses TLS. Undefined for any other text.
 */
export function redisAddress(url: string): RedisAddress | undefined {
  const [, scheme, access, hosts, rest = ''] = parts.exec(url) ?? []
  if (scheme === undefined || hosts === undefined) return undefined
  const sentinel = scheme === 'redis+sentinel'
  const urls = hosts.split(',').map(host => `redis://${access}${host}${rest}`)
  if (!urls.every(node => URL.canParse(node) && new URL(node).hostname !== '')) return undefined
  const parsed = urls.map(node => new URL(node))
  const [first] = parsed
  if (!first) return undefined
  const path = decodeURIComponent(first.pathname.slice(1))
  const db = sentinel ? (first.searchParams.get('db') ?? '0') : path === '' ? '0' : path
  const kind = sentinel ? 'sentinel' : parsed.length > 1 ? 'cluster' : 'server'
  if (!/^\d+$/.test(db) || (sentinel && path === '') || (kind === 'cluster' && db !== '0')) return undefined
  return {
    kind,
    nodes: parsed.map(node => ({
      host: node.hostname,
      port: Number(node.port || (sentinel ? 26_379 : 6379))
    })),
    ...(sentinel && { master: path }),
    options: {
      ...(first.username !== '' && { username: decodeURIComponent(first.username) }),
      ...(first.password !== '' && { password: decodeURIComponent(first.password) }),
      ...(db !== '0' && { db: Number(db) }),
      ...(scheme === 'rediss' && { tls: {} })
    }
  }
}

/** The text for people: `host:port` of each node. */
export const placeOf = (url: string): string =>
  redisAddress(url)
    ?.nodes.map(({ host, port }) => `${host}:${port}`)
    .join(', ') ?? 'REDIS_URL'
