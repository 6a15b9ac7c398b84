// REDIS_URL: one server, the nodes of a Redis Cluster, or the Sentinels of a master.
import { Cluster, Redis, type RedisOptions } from 'ioredis'
import { withinLimits, type ReplyLimits } from '../transport/redis-replies.ts'

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

type Times = 'connectTimeout' | 'disconnectTimeout' | 'commandTimeout' | 'socketTimeout' | 'keepAlive'
type Retries = 'retryStrategy' | 'reconnectOnError' | 'maxRetriesPerRequest' | 'autoResendUnfulfilledCommands'

interface ClientOptions extends Pick<RedisOptions, Times | Retries | 'enableOfflineQueue' | 'lazyConnect'> {
  limits: ReplyLimits
  /** The socket timeout of the copies that BullMQ makes to block for jobs. */
  blockingTimeoutMs?: number
}

/** A client for REDIS_URL. Throws for a URL that `redisAddress` does not accept. */
export function redisClient(
  url: string,
  { limits, blockingTimeoutMs, ...options }: ClientOptions
): Redis | Cluster {
  const address = redisAddress(url)
  if (!address) throw new TypeError('REDIS_URL is not an address of Redis')
  const patience = blockingTimeoutMs === undefined ? {} : { socketTimeout: blockingTimeoutMs }
  if (address.kind === 'cluster') {
    const { enableOfflineQueue, retryStrategy, lazyConnect, ...ofNode } = options
    class BlockingCluster extends Cluster {
      override duplicate(...[nodes, more]: Parameters<Cluster['duplicate']>): Cluster {
        return super.duplicate(nodes, { ...more, redisOptions: { ...more?.redisOptions, ...patience } })
      }
    }
    return new BlockingCluster(address.nodes, {
      ...(enableOfflineQueue !== undefined && { enableOfflineQueue }),
      ...(lazyConnect !== undefined && { lazyConnect }),
      clusterRetryStrategy: retryStrategy ?? (() => 500),
      slotsRefreshTimeout: 1000,
      redisOptions: { ...ofNode, ...address.options, ...withinLimits(limits) }
    })
  }
  class BlockingRedis extends Redis {
    override duplicate(override?: Partial<RedisOptions>): Redis {
      return super.duplicate({ ...override, ...patience })
    }
  }
  const [first] = address.nodes
  return new BlockingRedis({
    ...options,
    ...address.options,
    ...withinLimits(limits, address.kind),
    ...(address.kind === 'sentinel'
      ? { sentinels: address.nodes, name: address.master ?? '' }
      : { host: first?.host ?? 'localhost', port: first?.port ?? 6379 })
  })
}
