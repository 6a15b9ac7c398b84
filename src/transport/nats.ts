import { isIP } from 'node:net'
import { jetstream, JetStreamApiError, type JetStreamClient } from '@nats-io/jetstream'
import { connect, errors, headers as natsHeaders, type MsgHdrs } from '@nats-io/transport-node'
import type { Outcome } from '../task/task.ts'
import { carry, headersOf, payloadOf, type Sending } from './carry.ts'
import { failureOf } from './failure.ts'
import { Failure, type Blocked } from './guard.ts'
import { links, type Dial, type Line } from './link.ts'
import type { Transport, TransportDeps } from './transport.ts'

/** What a handler's `request` returns for nats. */
export interface NatsRequest {
  /** The name of a broker in the settings, `nats` by default. */
  broker?: string
  /** Of a JetStream stream. */
  subject: string
  headers?: Record<string, string>
  /** The text of messageBody by default. */
  payload?: string | Uint8Array
}

interface Message {
  subject: string
  payload: string | Uint8Array
  headers: MsgHdrs
  /** Of the delivery: the same on every attempt. */
  delivery: string
  msgId: string
}

interface NatsLine extends Line {
  jetstream: JetStreamClient
  /** Bytes of a message, its headers included. */
  most: number
}

/** Deliveries whose last send here may have been stored: their next send has the same id, for the stream to recognise. */
const uncertainKept = 10_000

/**
 * Publishes to a stream and waits for its ack. `Nats-Msg-Id` names the attempt, since one that was stored and only lacks its
 * receipt must reach the consumer again; after a send that nobody confirmed it stays the same, so that the stream drops the
 * second one within its duplicate window.
 */
export function natsTransport(deps: TransportDeps): Transport<NatsRequest> {
  const open = links<NatsLine>(deps, dial, broken)
  const uncertain = new Map<string, string>()

  function remember(delivery: string, msgId: string): void {
    uncertain.set(delivery, msgId)
    const [oldest] = uncertain.keys()
    if (uncertain.size > uncertainKept && oldest !== undefined) uncertain.delete(oldest)
  }

  async function publish(line: NatsLine, message: Message, sending: Sending): Promise<Outcome> {
    const { subject, payload, headers, delivery, msgId } = message
    const bytes = Buffer.byteLength(payload)
    if (bytes > line.most)
      return { kind: 'refused', reason: `too_large: ${bytes} bytes, the server takes ${line.most}` }
    remember(delivery, msgId)
    const ack = await line.jetstream.publish(subject, payload, { msgID: msgId, headers, timeout, retries: 1 })
    // An ack that comes after the deadline was told to nobody: the next send is the same to the stream.
    if (!sending.ended) uncertain.delete(delivery)
    return ack.duplicate
      ? { kind: 'delivered', warning: 'duplicate: the stream had it from a send that was not confirmed' }
      : { kind: 'delivered' }
  }

  return carry<NatsRequest, Message>(deps, {
    name: 'nats',

    prepare({ subject, headers, payload: own }, parcel) {
      // https://docs.nats.io/nats-concepts/subjects: tokens between dots, no white space, no wildcards to publish
      if (typeof subject !== 'string' || !/^[^\s.*>]+(?:\.[^\s.*>]+)*$/.test(subject))
        return 'the subject must be words between dots, without spaces or wildcards'
      const payload = payloadOf(own, parcel)
      if (payload === undefined) return 'the payload must be text or bytes'
      const all = headersOf(headers, parcel, payload)
      if (typeof all === 'string') return all
      const made = natsHeaders()
      for (const [name, value] of Object.entries(all)) {
        // The client throws on these; a header of NATS is a line.
        if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name) || /[\r\n]/.test(value))
          return `the header ${name} does not fit into a line`
        if (/^nats-/i.test(name)) return `the header ${name} is not the handler's to set`
        made.set(name, value)
      }
      const delivery = `${all['webhook-id'] ?? ''} ${subject}`
      const msgId = uncertain.get(delivery) ?? `${all['webhook-id'] ?? ''}.${all['ackbox-attempt'] ?? ''}`
      return { subject, payload, headers: made, delivery, msgId }
    },

    async publish(broker, message, sending) {
      const { line, address } = await open.line(broker)
      sending.address = address
      if (sending.ended) return { kind: 'failed', reason: 'timeout' }
      try {
        return await publish(line, message, sending)
      } catch (error) {
        // What the server answered is certain: it is not stored.
        if (error instanceof JetStreamApiError || isWithoutStream(error)) uncertain.delete(message.delivery)
        throw error
      }
    },

    broken,
    close: () => open.close()
  })
}

const connectMs = 5_000
const pingMs = 5_000
/** Longer than any deadline of ours: the client must not give up a send that we still wait for. */
const timeout = 11 * 60_000

const dial: Dial<NatsLine> = async (broker, { ip, port, host }, broke, signal) => {
  const opening = connect({
    servers: `${ip.includes(':') ? `[${ip}]` : ip}:${port}`,
    ...(broker.username === undefined ? {} : { user: broker.username, pass: broker.password ?? '' }),
    ...(broker.options['token'] === undefined ? {} : { token: broker.options['token'] }),
    tls: broker.tls ? (isIP(host) ? {} : ({ servername: host } as object)) : null,
    name: 'ackbox',
    timeout: connectMs,
    reconnect: false,
    pingInterval: pingMs,
    maxPingOut: 2,
    // Servers of the cluster that it tells of were judged by nobody.
    ignoreClusterUpdates: true
  })
  const over = new AbortController()
  const stopped = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(new Failure({ kind: 'failed', reason: 'shutdown' })), {
      signal: over.signal
    })
  })
  // One that opens after we gave up is closed.
  opening.then(
    late => {
      if (signal.aborted) void late.close()
    },
    () => {}
  )
  const connection = await Promise.race([opening, stopped]).finally(() => over.abort())
  connection
    .closed()
    .then(error => broke(error ?? new Failure({ kind: 'failed', reason: 'connection_closed' })), broke)
  return {
    jetstream: jetstream(connection, { timeout }),
    most: connection.info?.max_payload ?? Infinity,
    // close, not drain: nobody waits for a server that hangs.
    close: () =>
      Promise.race([connection.close(), new Promise(resolve => setTimeout(resolve, 1_000).unref())])
  }
}

/** The client calls a subject without a stream "jetstream is not enabled"; its cause tells. */
function isWithoutStream(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if (cause instanceof errors.NoRespondersError) return true
  return false
}

function broken(error: unknown): Blocked {
  if (error instanceof Failure) return error.outcome
  if (isWithoutStream(error)) return failed('target_missing: no stream takes this subject')
  if (error instanceof JetStreamApiError) return failed(`stream_refused: ${error.code} ${error.message}`)
  if (error instanceof errors.AuthorizationError || error instanceof errors.UserAuthenticationExpiredError)
    return failed('credentials: the server does not let this user in')
  if (error instanceof errors.PermissionViolationError)
    return failed('credentials: this user may not publish to this subject')
  if (error instanceof errors.TimeoutError) return failed('connect_timeout')
  if (error instanceof errors.ClosedConnectionError || error instanceof errors.RequestError)
    return failed('connection_closed')
  const cause = error instanceof Error ? error.cause : undefined
  if (error instanceof errors.ConnectionError)
    return cause === undefined ? failed('connection_refused') : failureOf(cause)
  return failureOf(error)
}

const failed = (reason: string): Blocked => ({ kind: 'failed', reason })
