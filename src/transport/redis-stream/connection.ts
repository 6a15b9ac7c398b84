import { Redis } from 'ioredis'
import type { Outcome } from '../../domain/types.ts'
import { at, type Broker } from '../broker.ts'
import type { Live, Open } from '../connection.ts'
import { failed, Failure, failureOf } from '../failure.ts'
import { withinLimits, type ReplyLimits } from '../redis-replies.ts'
import { defined } from '../../domain/optional-members.ts'
import { tlsName } from '../../runtime/tls.ts'
import { isError } from '../../runtime/text-of.ts'

export interface RedisConnection {
  redis: Redis
  address: string
  /** Commands without an answer, the oldest first, also those whose sends have timed out. */
  unanswered: Set<{ readonly sentAt: number }>
  /** The time of the last answer, or of the oldest unanswered command if that is later, by performance.now(). */
  silentSince: number
}

/**
 * One connection, whose replies stay within `limits`. With `silentMs` it ends if a command is unanswered and nothing arrives for that
 * long, so none may block for longer.
 */
export const opener =
  (broker: Broker, limits: ReplyLimits, silentMs?: number): Open<RedisConnection> =>
  async (place, signal): Promise<Live<RedisConnection>> => {
    const redis = new Redis({
      ...withinLimits(limits),
      host: place.address,
      port: place.port,
      ...defined({ username: broker.username, password: broker.password, socketTimeout: silentMs }),
      ...(broker.tls ? { tls: { servername: tlsName(place.host) } } : {}),
      db: Number(broker.path || 0),
      lazyConnect: true,
      connectTimeout: 5_000,
      keepAlive: 10_000,
      connectionName: 'ackbox',
      // A command must not run after it was reported as failed: no offline queue, no resend.
      enableOfflineQueue: false,
      autoResendUnfulfilledCommands: false,
      maxRetriesPerRequest: 0,
      retryStrategy: () => null
    })
    const address = at({ host: place.address, port: place.port })
    let last: unknown
    redis.on('error', error => (last = error))
    const gone = new Promise<void>(resolve => redis.once('end', resolve))
    const end = () => redis.disconnect()
    signal.addEventListener('abort', end, { once: true })
    try {
      await redis.connect()
      // The client goes on after a failed SELECT: it would write to database 0.
      if (isError(last)) throw last
    } catch (error) {
      end()
      const outcome = outcomeOf(last ?? error)
      throw new Failure({
        ...(outcome.kind === 'failed' ? outcome : failed('connection_closed')),
        address
      })
    } finally {
      signal.removeEventListener('abort', end)
    }
    return { client: { redis, address, unanswered: new Set(), silentSince: 0 }, gone, end }
  }

const isReply = (error: unknown): error is Error =>
  isError(error) && /^(?:-?[A-Z]{2,32})(?: |$)/.test(error.message)

const replies: Readonly<Record<string, Outcome>> = {
  WRONGTYPE: { kind: 'refused', reason: 'wrong_type: the key is not a stream' },
  OOM: failed('full: the server is out of memory'),
  NOAUTH: failed('credentials: the server requires a login'),
  WRONGPASS: failed('credentials: the server refused the login'),
  NOPERM: failed('credentials: the login lacks the permission'),
  READONLY: failed('readonly: the server is a replica')
}

/** The first word of an error decides, because errors have no code. The text may contain sent data, and is never shown. */
export function outcomeOf(error: unknown): Outcome {
  if (error instanceof Failure) return error.outcome
  if (isReply(error)) {
    if (/^ERR .*DB index/.test(error.message))
      return failed('target_missing: the server has no such database')
    const [word = ''] = error.message.split(' ')
    return replies[word] ?? failed(`broker: ${word}`)
  }
  if (isError(error) && /Connection is closed|isn't writeable/.test(error.message))
    return failed('connection_closed')
  return failureOf(error)
}
