import type { Outcome } from '../../domain/types.ts'
import type { Broker } from '../broker.ts'
import { brokerTransport, reservedName, type Flight } from '../sends.ts'
import { failed } from '../failure.ts'
import { link, type Link } from '../connection.ts'
import { isReply, opener, outcomeOf, type RedisConnection } from './connection.ts'
import type { SendContext, Transport, TransportDeps } from '../types.ts'

/** What a handler's `request` returns for redis-stream. */
export interface RedisStreamRequest {
  /** The name of a broker in the settings, `redis-stream` by default. */
  broker?: string
  stream: string
  /** Cut to about so many entries. */
  maxlen?: number
  /** false: a stream that is not there is a failure; by default it is made. */
  create?: boolean
  /**
   * The fields of the entry; by default one, `body`, with the text of messageBody. The signature is over `body`; without
   * one, over the JSON array of all names and values by turns. Bytes in `body` only.
   */
  fields?: Record<string, string | Uint8Array>
}

const silentMs = 500
/** Of an id, an error, or INFO, which the client asks for when it connects. */
const replyMost = { bytes: 262_144, items: 1_024 }

export function redisStreamTransport(deps: TransportDeps): Transport<RedisStreamRequest> {
  return brokerTransport<RedisStreamRequest, Link<RedisConnection>, Args>('redis-stream', deps, {
    open: broker => link(broker, deps, opener(broker, replyMost)),
    read,
    send: add
  })
}

type Args = [stream: string, ...(string | Buffer)[]]

async function add(to: Link<RedisConnection>, args: Args, flight: Flight): Promise<Outcome> {
  let connection: RedisConnection | undefined
  try {
    connection = await to.client()
    if (flight.over) return failed('timeout')
    const dropSilent = silentDropper(to, connection)
    flight.cut = dropSilent
    const id = await connection.redis.call('XADD', args)
    connection.answered = performance.now()
    const { address } = connection
    if (id === null) return { kind: 'failed', reason: 'target_missing: the stream does not exist', address }
    // Any other answer to XADD does not prove that the stream has the entry.
    if (typeof id !== 'string' || !/^\d+-\d+$/.test(id))
      return { kind: 'failed', reason: 'protocol: not the id of an entry', address }
    return { kind: 'delivered', address, messageId: id }
  } catch (error) {
    const outcome = outcomeOf(error)
    if (!connection) return outcome
    if (isReply(error)) connection.answered = performance.now()
    // A master that became a replica: the name may lead to the new one
    if (outcome.kind === 'failed' && outcome.reason.startsWith('readonly')) to.drop(connection)
    return { ...outcome, address: connection.address }
  }
}

/**
 * Redis answers in order: behind a silent connection everything waits, and what has not left yet must not run after we said
 * that it failed.
 */
function silentDropper(to: Link<RedisConnection>, connection: RedisConnection) {
  const sentAt = performance.now()
  return (why: string): void => {
    const isSilent = performance.now() - Math.max(sentAt, connection.answered) >= silentMs
    if (isSilent || why === 'shutdown') to.drop(connection)
  }
}

function read(request: RedisStreamRequest, context: SendContext, broker: Broker): Args | string {
  if (!/^\d{0,5}$/.test(broker.path)) return 'the path of the broker must be the number of a database'
  const { stream, maxlen, create = true, fields = { body: context.raw ?? '' } } = request
  if (typeof stream !== 'string' || stream === '') return 'the stream must be a name'
  if (maxlen !== undefined && (!Number.isSafeInteger(maxlen) || maxlen < 1))
    return 'maxlen must be a whole number above 0'
  if (typeof create !== 'boolean') return 'create must be true or false'
  if (typeof fields !== 'object' || fields === null) return 'the fields must be an object'
  const own = Object.entries(fields)
  if (own.length === 0) return 'an entry needs a field'
  const reserved = reservedName(own.map(([name]) => name))
  if (reserved) return reserved
  for (const [name, value] of own) {
    if (typeof value !== 'string' && !(name === 'body' && value instanceof Uint8Array))
      return 'the fields must be text, body may be bytes'
  }
  const ours = context.headers(Object.hasOwn(fields, 'body') ? fields['body']! : JSON.stringify(own.flat()))
  const given = new Set(own.map(([name]) => name.toLowerCase()))
  return [
    stream,
    ...(create ? [] : ['NOMKSTREAM']),
    ...(maxlen === undefined ? [] : ['MAXLEN', '~', String(maxlen)]),
    '*',
    ...own.flatMap(([name, value]) => [name, typeof value === 'string' ? value : Buffer.from(value)]),
    ...Object.entries(ours).flatMap(([name, value]) => (given.has(name) ? [] : [name, value]))
  ]
}
