import { randomUUID } from 'node:crypto'
import { errors, headers as newHeaders, type MsgHdrs, type NatsConnection } from '@nats-io/transport-node'
import { jetstream, JetStreamApiError, type PubAck } from '@nats-io/jetstream'
import type { Outcome } from '../../domain/types.ts'
import type { Broker } from '../broker.ts'
import { brokerTransport, reservedName, type Flight } from '../sends.ts'
import { failed } from '../failure.ts'
import type { Link } from '../connection.ts'
import { natsFailure, natsLink } from './connection.ts'
import type { SendContext, Transport, TransportDeps } from '../types.ts'
import { isError } from '../../runtime/text-of.ts'

/** The result of a handler's `request` for nats. */
export interface NatsRequest {
  /** The name of a broker in the settings, `nats` by default. */
  broker?: string
  /** A subject of a JetStream stream. */
  subject: string
  headers?: Record<string, string>
  /** The text of messageBody by default. */
  payload?: string | Uint8Array
}

interface Ready {
  key: string | undefined
  webhookId: string | undefined
  headers: MsgHdrs
  /** Bytes of headers and payload: both count towards the server's max_payload. */
  bytes: number
  payload: string | Uint8Array
  subject: string
}

const uncertainKept = 10_000
/** Bytes of a confirmation. It is short: the name of a stream and a number. */
const messageMost = 65_536
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const idHeader = 'Nats-Msg-Id'

export function natsTransport(deps: TransportDeps): Transport<NatsRequest> {
  const uncertain = remembered(uncertainKept)

  async function publish(link: Link<NatsConnection>, ready: Ready, flight: Flight): Promise<Outcome> {
    let address: string | undefined
    try {
      const client = await link.client()
      if (flight.over) return failed('timeout')
      address = client.getServer()
      // A send that was never confirmed is repeated with its old id, so that the stream detects a duplicate. Any other send gets
      // a new id, or the stream would drop a wanted repeat as a duplicate.
      const id = uncertain.get(ready.key) ?? `${ready.webhookId ?? 'ackbox'}.${randomUUID()}`
      ready.headers.set(idHeader, id)
      const bytes = ready.bytes + idHeader.length + id.length + 4
      // The server ends the connection over a message that is too large, and all messages in flight fail with it.
      if (client.info && bytes > client.info.max_payload)
        return { kind: 'refused', reason: `too_large: over ${client.info.max_payload} bytes`, address }
      uncertain.set(ready.key, id)
      const ack = await jetstream(client).publish(ready.subject, ready.payload, {
        headers: ready.headers,
        // Only for the client's bookkeeping: the deadline is enforced by `flight`.
        timeout: Math.max(1, flight.due - performance.now()) + 1_000,
        retries: 1
      })
      // Any subscriber of the subject may have answered, and the client takes every JSON.
      if (!isAck(ack)) return { ...failed('protocol: not the ack of a stream'), address }
      // After the deadline a confirmation does not count: the attempt has failed, and the stream must drop its repeat as a duplicate.
      if (!flight.over) uncertain.delete(ready.key)
      const messageId = `${ack.stream}/${ack.seq}`
      return ack.duplicate
        ? {
            kind: 'delivered',
            address,
            messageId,
            warning: 'duplicate: the stream had it from a former attempt'
          }
        : { kind: 'delivered', address, messageId }
    } catch (error) {
      const outcome = outcomeOf(error, address)
      if (settled(error)) uncertain.restore(ready.key)
      return outcome
    }
  }

  return brokerTransport<NatsRequest, Link<NatsConnection>, Ready>('nats', deps, {
    open: broker => natsLink(broker, deps, messageMost),
    read,
    send: publish
  })
}

function read(request: NatsRequest, context: SendContext, broker: Broker): Ready | string {
  const { subject, headers: own = {} } = request
  const payload = request.payload ?? context.raw ?? ''
  const problem = subjectProblem(subject)
  if (problem) return problem
  if (typeof payload !== 'string' && !(payload instanceof Uint8Array))
    return 'the payload must be text or bytes'
  if (typeof own !== 'object' || own === null) return 'the headers must be an object'
  const reserved = reservedName(Object.keys(own))
  if (reserved) return reserved
  const given = new Map<string, string>()
  for (const [name, value] of Object.entries(own)) {
    const lower = name.toLowerCase()
    if (!token.test(name)) return 'a header name is not a token'
    if (lower === 'nats-msg-id') return `a handler must not set the header ${lower}`
    if (given.has(lower)) return `the header ${lower} is set twice`
    // eslint-disable-next-line no-control-regex -- what would end the header or the message
    if (typeof value !== 'string' || /[\u0000-\u0008\u000a-\u001f\u007f]/.test(value))
      return `the header ${lower} has a character that headers must not have`
    given.set(lower, name)
  }
  const ours = context.headers(payload)
  const headers = newHeaders()
  let bytes = 'NATS/1.0\r\n\r\n'.length + Buffer.byteLength(payload)
  const put = (name: string, value: string): void => {
    headers.set(name, value)
    bytes += name.length + Buffer.byteLength(value) + ': \r\n'.length
  }
  for (const [name, value] of Object.entries(own)) put(name, value)
  for (const [name, value] of Object.entries(ours)) if (!given.has(name)) put(name, value)
  const webhookId = ours['webhook-id']
  const key = webhookId === undefined ? undefined : `${broker.name} ${subject} ${webhookId}`
  return { key, webhookId, headers, bytes, payload, subject }
}

function subjectProblem(subject: unknown): string | undefined {
  if (typeof subject !== 'string' || !/^[^\s.\p{Cc}]+(?:\.[^\s.\p{Cc}]+)*$/u.test(subject))
    return 'the subject must be words joined by dots, without spaces'
  if (subject.length > 1_024) return 'the subject is longer than 1024 characters'
  if (subject.split('.').some(each => each === '*' || each === '>')) return 'the subject holds a wildcard'
  // $JS.API.STREAM.DELETE.ORDERS is a subject too
  if (subject.startsWith('$') || subject.startsWith('_INBOX.'))
    return 'the subject belongs to the server itself'
  return undefined
}

const isAck = ({ stream, seq }: PubAck): boolean =>
  typeof stream === 'string' && stream !== '' && Number.isSafeInteger(seq) && seq > 0

/** Whether the server reported that it did not store the message. */
const settled = (error: unknown): boolean => error instanceof JetStreamApiError || isNoResponders(error)

/** No stream has the subject. The client reports this as `jetstream is not enabled`, which is rarely the cause. */
const isNoResponders = (error: unknown): boolean =>
  isError(error) && error.cause instanceof errors.RequestError && error.cause.isNoResponders()

function outcomeOf(error: unknown, address: string | undefined): Outcome {
  const evidence = address === undefined ? {} : { address }
  if (isNoResponders(error))
    return { kind: 'failed', reason: 'target_missing: no stream has that subject', ...evidence }
  if (error instanceof JetStreamApiError) {
    const code = error.code
    if (code === 10_054)
      return { kind: 'refused', reason: 'too_large: larger than the stream accepts', ...evidence }
    const word = code === 10_077 || code === 10_047 || code === 10_023 ? 'full' : 'broker'
    return { kind: 'failed', reason: `${word}: ${code}`, ...evidence }
  }
  return { ...evidence, ...natsFailure(error) }
}

/** The ids of unconfirmed sends, at most `kept`. Beyond that the oldest id is forgotten, which may cause a duplicate. */
function remembered(kept: number) {
  const now = new Map<string, string>()
  /** Keys whose id was sent only once: if the server refuses that send, the id was never stored. */
  const fresh = new Set<string>()
  return {
    get: (key: string | undefined) => (key === undefined ? undefined : now.get(key)),
    set(key: string | undefined, id: string) {
      if (key === undefined) return
      if (now.get(key) !== id) fresh.add(key)
      else fresh.delete(key)
      now.delete(key)
      now.set(key, id)
      const oldest = now.size > kept ? now.keys().next().value : undefined
      if (oldest === undefined) return
      now.delete(oldest)
      fresh.delete(oldest)
    },
    delete(key: string | undefined) {
      if (key === undefined) return
      now.delete(key)
      fresh.delete(key)
    },
    /** After a refusal: forgets an id that was sent only once. */
    restore(key: string | undefined) {
      if (key !== undefined && fresh.delete(key)) now.delete(key)
    }
  }
}
