import { isIP } from 'node:net'
import { Redis } from 'ioredis'
import { carry, headersOf, payloadOf } from './carry.ts'
import { failureOf } from './failure.ts'
import { Failure, type Blocked } from './guard.ts'
import { links, type Dial, type Line } from './link.ts'
import type { Transport, TransportDeps } from './transport.ts'

/** What a handler's `request` returns for redis-stream. */
export interface RedisStreamRequest {
  /** The name of a broker in the settings, `redis-stream` by default. */
  broker?: string
  stream: string
  /** Cut to about so many entries. */
  maxlen?: number
  /** Fields of the entry beside `body` and our headers. */
  fields?: Record<string, string>
  /** The field `body`: the text of messageBody by default. */
  body?: string | Uint8Array
}

interface RedisLine extends Line {
  xadd(args: (string | Buffer)[]): Promise<unknown>
}

/** XADD of one entry: the body, which the signature is over, the handler's fields, and our headers. Delivered is its reply. */
export function redisStreamTransport(deps: TransportDeps): Transport<RedisStreamRequest> {
  const open = links<RedisLine>(deps, dial, broken)
  return carry<RedisStreamRequest, (string | Buffer)[]>(deps, {
    name: 'redis-stream',

    prepare({ stream, maxlen, fields, body }, parcel) {
      if (typeof stream !== 'string' || stream === '') return 'the stream must be a name'
      if (maxlen !== undefined && (!Number.isSafeInteger(maxlen) || maxlen < 1))
        return 'maxlen must be a whole number from 1'
      const payload = payloadOf(body, parcel)
      if (payload === undefined) return 'the body must be text or bytes'
      const all = headersOf(fields, parcel, payload)
      if (typeof all === 'string') return all
      if ('body' in all) return 'the field body has a member of its own'
      const bytes = typeof payload === 'string' ? payload : Buffer.from(payload)
      const cut = maxlen === undefined ? [] : ['MAXLEN', '~', String(maxlen)]
      return [stream, ...cut, '*', 'body', bytes, ...Object.entries(all).flat()]
    },

    async publish(broker, message, sending) {
      const { line, address } = await open.line(broker)
      sending.address = address
      if (sending.ended) return { kind: 'failed', reason: 'timeout' }
      await line.xadd(message)
      return { kind: 'delivered' }
    },

    broken,
    close: () => open.close()
  })
}

const connectMs = 5_000
/** A connection that owes an answer for so long is given up: the network swallowed it. */
const silentMs = 15_000

const dial: Dial<RedisLine> = async (broker, { ip, port, host }, broke, signal) => {
  const client = new Redis({
    host: ip,
    port,
    ...(broker.username === undefined ? {} : { username: broker.username }),
    ...(broker.password === undefined ? {} : { password: broker.password }),
    ...(broker.path === '' ? {} : { db: Number(broker.path) }),
    ...(broker.tls ? { tls: isIP(host) ? {} : { servername: host } } : {}),
    lazyConnect: true,
    connectTimeout: connectMs,
    socketTimeout: silentMs,
    // Nothing may run after we have said that it failed: no queue, no second try, no new connection by itself.
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    retryStrategy: null
  })
  let error: unknown
  client.on('error', err => {
    error = err
  })
  const abort = (): void => client.disconnect()
  signal.addEventListener('abort', abort, { once: true })
  try {
    await client.connect()
  } catch (err) {
    client.disconnect()
    throw error ?? err
  } finally {
    signal.removeEventListener('abort', abort)
  }
  client.once('end', () => broke(error ?? new Failure({ kind: 'failed', reason: 'connection_closed' })))
  return {
    xadd: args => client.call('XADD', ...args),
    close: async () => client.disconnect()
  }
}

/** By the first word of Redis's own errors: https://redis.io/docs/latest/develop/reference/protocol-spec/#simple-errors */
const words: Readonly<Record<string, string>> = {
  NOAUTH: 'credentials: the server wants a password',
  WRONGPASS: 'credentials: the server does not know this user and password',
  NOPERM: 'credentials: this user may not do that',
  WRONGTYPE: 'target_wrong: the key holds something other than a stream',
  OOM: 'server_full: it is out of memory',
  READONLY: 'server_readonly: it is a replica',
  LOADING: 'server_loading',
  MISCONF: 'server_readonly: it cannot write its disk'
}

function broken(error: unknown): Blocked {
  const text = error instanceof Error ? error.message : ''
  const said = words[/^[A-Z]+/.exec(text)?.[0] ?? '']
  if (said !== undefined) return { kind: 'failed', reason: said }
  if (/^ERR (AUTH|invalid password)/.test(text)) return { kind: 'failed', reason: words['WRONGPASS'] ?? '' }
  // ioredis has no code for a connection that ended under a command.
  if (/connection is closed|isn't writeable|socket timeout/i.test(text))
    return { kind: 'failed', reason: 'connection_closed' }
  if (/connect ETIMEDOUT/.test(text)) return { kind: 'failed', reason: 'connect_timeout' }
  return failureOf(error)
}
