import type { Outcome } from '../../domain/types.ts'
import { brokerTransport, reservedName, type Flight } from '../sends.ts'
import { failed } from '../failure.ts'
import { link, type Link } from '../connection.ts'
import { opener, outcomeOf, type RedisConnection } from './connection.ts'
import type { SendContext, Transport, TransportDeps } from '../types.ts'

/** The result of a handler's `request` for redis-stream. */
export interface RedisStreamRequest {
  /** The name of a broker in the settings, `redis-stream` by default. */
  broker?: string
  stream: string
  /** The stream is cut to about this number of entries. */
  maxlen?: number
  /** False: a missing stream is a failure. By default it is created. */
  create?: boolean
  /**
   * The fields of the entry. Default: `body` with the text of messageBody. The signature covers `body`; without `body`, it
   * covers the JSON array of names and values, alternating, in the order of the entry. Only `body` may be bytes.
   */
  fields?: Record<string, string | Uint8Array>
}

const silentMs = 500
/** A Redis that keeps up, however slow, is not this late. */
const lateMs = 30_000
/** The limits of a reply: an id, an error, or INFO, which the client requests when it connects. */
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
    const drop = dropper(to, connection)
    flight.cut = drop
    const id = await answered(connection, connection.redis.call('XADD', args))
    const { address } = connection
    if (id === null) return { kind: 'failed', reason: 'target_missing: the stream does not exist', address }
    // Any other answer to XADD does not prove that the stream has the entry.
    if (typeof id !== 'string' || !/^\d+-\d+$/.test(id))
      return { kind: 'failed', reason: 'protocol: not the id of an entry', address }
    return { kind: 'delivered', address, messageId: id }
  } catch (error) {
    const outcome = outcomeOf(error)
    if (!connection) return outcome
    // A master has become a replica: the name may resolve to the new master.
    if (outcome.kind === 'failed' && outcome.reason.startsWith('readonly')) to.drop(connection)
    return { ...outcome, address: connection.address }
  }
}

async function answered<T>(connection: RedisConnection, command: Promise<T>): Promise<T> {
  const sent = { sentAt: performance.now() }
  if (connection.unanswered.size === 0) connection.silentSince = sent.sentAt
  connection.unanswered.add(sent)
  try {
    return await command
  } finally {
    connection.unanswered.delete(sent)
    connection.silentSince = performance.now()
  }
}

/**
 * Ends a silent connection. Redis answers in order, so all later commands wait behind it, and unsent commands must not run after
 * they were reported as failed. A send may wait shorter than `silentMs`: those before it count too. Ends also a late connection:
 * the client holds each command with its body until it is answered, and a Redis that falls behind answers ever later.
 */
function dropper(to: Link<RedisConnection>, connection: RedisConnection) {
  return (why: string): void => {
    const now = performance.now()
    const isSilent = now - connection.silentSince >= silentMs
    const [oldest] = connection.unanswered
    const isLate = oldest !== undefined && now - oldest.sentAt >= lateMs
    if (isSilent || isLate || why === 'shutdown') to.drop(connection)
  }
}

function read(request: RedisStreamRequest, context: SendContext): Args | string {
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
  // The handler's fields come first, then `webhook-id`: by that a receiver knows which of the fields are signed.
  return [
    stream,
    ...(create ? [] : ['NOMKSTREAM']),
    ...(maxlen === undefined ? [] : ['MAXLEN', '~', String(maxlen)]),
    '*',
    ...own.flatMap(([name, value]) => [name, typeof value === 'string' ? value : Buffer.from(value)]),
    ...Object.entries(ours).flatMap(([name, value]) => (given.has(name) ? [] : [name, value]))
  ]
}
