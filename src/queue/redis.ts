import type { Logger } from '../runtime/logger.ts'
import type { Cluster, Redis } from 'ioredis'
import { placeOf, redisAddress } from './redis-address.ts'
import { redisClient } from './redis-client.ts'
import { messageOf } from '../runtime/errors.ts'

/** An error that an operator can fix. The message is one line with the cause and the fix. */
export class QueueServerError extends Error {
  override name = 'QueueServerError'
}

/** How long a start waits for a Redis that does not answer. */
const startMs = 2000
/** A worker blocks this long for a job. The socket timeout must be longer. */
const blockSeconds = 2
/** The largest replies for BullMQ are a job with its data, and the list of stalled jobs. */
const replyMost = { bytes: 8_388_608, items: 65_536 }
/** The part of a server's text that is logged. The server decides its length. */
const mostLogged = 200

/**
 * Rejects with `QueueServerError` if Redis cannot be reached, is too old or refuses our password.
 * Two clients: producers fail fast (a late job is useless), workers wait for ever.
 * Blocking clients are copies of the workers' client, made by BullMQ, one for each queue.
 */
export async function openRedis(url: string, prefix: string, log: Logger) {
  const both = {
    limits: replyMost,
    connectTimeout: 1000,
    // A server behind a broken network does not answer our FIN either.
    disconnectTimeout: 200,
    keepAlive: 10_000,
    retryStrategy: (times: number) => Math.min(50 * times, 500),
    // A primary that became a replica refuses writes on a working connection. Only a new connection finds the new primary.
    reconnectOnError: (error: Error) => error.message.startsWith('READONLY')
  }
  const producer = redisClient(url, {
    ...both,
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    // A job that was given up after 250 ms must not be sent again after a reconnect.
    autoResendUnfulfilledCommands: false,
    commandTimeout: 1000,
    socketTimeout: 1000
  })
  const consumer = redisClient(url, {
    ...both,
    // A connection on which BullMQ blocks for a job: an answer takes as long as the block.
    blockingTimeoutMs: blockSeconds * 1000 + 2000,
    maxRetriesPerRequest: null,
    // No answer after this time: the network lost it. Without this limit a dead connection hangs until TCP
    // gives up, a quarter of an hour later.
    socketTimeout: 2000
  })
  const lostListeners: (() => void)[] = []
  const place = placeOf(url)
  const inCluster = redisAddress(url)?.kind === 'cluster'
  let lastError: Error | undefined
  let closing = false
  let wasUp = false

  producer.on('error', error => {
    lastError = error
  })
  consumer.on('error', error => {
    lastError = error
  })
  producer.on('ready', () => {
    if (wasUp) log.info({ redis: place }, 'redis.available')
    wasUp = true
  })
  producer.on('close', () => {
    if (closing) return
    for (const lost of lostListeners) lost()
  })

  const close = async () => {
    closing = true
    // disconnect, not quit: a QUIT waits for an answer, which may never arrive.
    producer.disconnect()
    consumer.disconnect()
  }

  try {
    if (!(await untilReady(producer, startMs))) {
      refuseWrongCredentials(lastError, place)
      const reason = lastError?.message.slice(0, mostLogged) ?? `no answer within ${startMs} ms`
      throw new QueueServerError(
        `Redis at ${place} cannot be reached: check REDIS_URL, and that the server is up (${reason})`
      )
    }
    refuseWrongDatabase(lastError, place)
    await check(producer, place, log)
  } catch (error) {
    await close()
    throw error
  }

  return {
    producer,
    consumer,
    blockSeconds,
    // In a cluster all keys of a queue must be in one slot.
    prefixOf: (queue: string) => (inCluster ? `{${prefix}:${queue}}` : prefix),
    up: () => producer.status === 'ready',
    onLost: (listener: () => void) => {
      lostListeners.push(listener)
    },
    // A write, because a replica or a server without free memory still answers PING.
    ping: async () => {
      await producer.set(`${prefix}:ping`, '1', 'PX', 10_000)
    },
    close
  }
}

async function untilReady(client: Redis | Cluster, ms: number): Promise<boolean> {
  if (client.status === 'ready') return true
  return new Promise(resolve => {
    const done = (ready: boolean) => () => {
      clearTimeout(timer)
      client.off('ready', yes)
      client.off('error', onError)
      resolve(ready)
    }
    const yes = done(true)
    const no = done(false)
    const onError = (error: Error) => {
      if (isCredentials(error)) no()
    }
    const timer = setTimeout(no, ms)
    client.on('ready', yes)
    client.on('error', onError)
  })
}

const isCredentials = (error: Error) => /^(WRONGPASS|NOAUTH|ERR (invalid password|AUTH))/.test(error.message)

function refuseWrongCredentials(error: Error | undefined, place: string) {
  if (!error || !isCredentials(error)) return
  throw new QueueServerError(
    `Redis at ${place} refuses the user or password of REDIS_URL (${error.message.slice(0, mostLogged)})`
  )
}

/** ioredis goes on with database 0, where the jobs of another Ackbox may lie. */
function refuseWrongDatabase(error: Error | undefined, place: string) {
  const { command } = (error ?? {}) as { command?: { name?: string } }
  if (!error || command?.name !== 'select') return
  throw new QueueServerError(
    `Redis at ${place} refuses the database in REDIS_URL (${error.message.slice(0, mostLogged)})`
  )
}

/** Throws if the server is too old. Logs a warning if it may delete jobs. */
async function check(client: Redis | Cluster, place: string, log: Logger) {
  let info
  try {
    info = await client.info()
  } catch (error) {
    // Our user may have no right to INFO. The service still works.
    const reason = messageOf(error).slice(0, mostLogged)
    if (isCredentials(new Error(reason))) refuseWrongCredentials(new Error(reason), place)
    log.warn({ redis: place, reason }, 'redis.unchecked')
    return
  }
  const problem = serverProblem(info, place)
  if (problem) throw new QueueServerError(problem)
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1]
  if (policy && policy !== 'noeviction') {
    log.warn({ redis: place, policy, remedy: 'set maxmemory-policy to noeviction' }, 'redis.eviction')
  }
}

/** The error line for an unsuitable server, or undefined. Exported for its test, which has no such server. */
export function serverProblem(info: string, place: string): string | undefined {
  const version = /^redis_version:(\d+)\.(\d+)\S*/m.exec(info)
  if (!version) return undefined
  const [text, major, minor] = version
  if (Number(major) > 6 || (Number(major) === 6 && Number(minor) >= 2)) return undefined
  return (
    `Redis at ${place} is ${text.slice('redis_version:'.length)}: Ackbox needs 6.2 or newer. ` +
    'Upgrade it, or leave REDIS_URL out to queue on PostgreSQL'
  )
}
