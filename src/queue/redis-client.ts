// The client of REDIS_URL.
import { Cluster, Redis, type RedisOptions } from 'ioredis'
import { redisAddress } from './redis-address.ts'
import { withinLimits, type ReplyLimits } from '../transport/redis-replies.ts'

type Times = 'connectTimeout' | 'disconnectTimeout' | 'commandTimeout' | 'socketTimeout' | 'keepAlive'
type Retries = 'retryStrategy' | 'reconnectOnError' | 'maxRetriesPerRequest' | 'autoResendUnfulfilledCommands'

interface ClientOptions extends Pick<RedisOptions, Times | Retries | 'enableOfflineQueue' | 'lazyConnect'> {
  limits: ReplyLimits
  /** The socket timeout of the copies that BullMQ makes to block for jobs. */
  blockingTimeoutMs?: number
}

/**
 * Milliseconds for the connection to a Sentinel and its answer. Without a limit a frozen Sentinel would be waited for, and the next one
 * not asked.
 */
const sentinelCommandTimeout = 1_000

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
    const open = (ofCopy: Pick<RedisOptions, 'socketTimeout' | 'connectionName'> = {}) =>
      new BlockingCluster(address.nodes, {
        ...(enableOfflineQueue !== undefined && { enableOfflineQueue }),
        ...(lazyConnect !== undefined && { lazyConnect }),
        clusterRetryStrategy: retryStrategy ?? (() => 500),
        slotsRefreshTimeout: 1000,
        redisOptions: { ...ofNode, ...address.options, ...withinLimits(limits), ...ofCopy }
      })
    class BlockingCluster extends Cluster {
      // Where the nodes answer that the cluster is down, ioredis never settles its own connect. BullMQ and the doctor wait for it.
      override async connect(): Promise<void> {
        let onClose = (): void => {}
        const closed = new Promise<never>((_, reject) => {
          onClose = () => reject(new Error('the cluster is down'))
        })
        this.once('close', onClose)
        try {
          await Promise.race([super.connect(), closed])
        } finally {
          this.off('close', onClose)
        }
      }
      // A copy by ioredis would be without this connect.
      override duplicate(...[, more]: Parameters<Cluster['duplicate']>): Cluster {
        const { connectionName } = more?.redisOptions ?? {}
        return open({ ...patience, ...(connectionName !== undefined && { connectionName }) })
      }
    }
    return open()
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
      ? { sentinels: address.nodes, name: address.master ?? '', sentinelCommandTimeout }
      : { host: first?.host ?? 'localhost', port: first?.port ?? 6379 })
  })
}
