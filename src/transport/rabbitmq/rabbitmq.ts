import { randomUUID } from 'node:crypto'
import { failed, failureOf } from '../failure.ts'
import { brokerTransport, reservedName, type Flight } from '../sends.ts'
import type { UnconfirmedSend } from './channel.ts'
import { defined } from '../../domain/optional-members.ts'
import type { Outcome } from '../../domain/types.ts'
import { rabbitmqLink, type RabbitmqLink } from './connection.ts'
import type { SendContext, Transport, TransportDeps } from '../types.ts'

/** The result of a handler's `request` for rabbitmq. */
export interface RabbitmqRequest {
  /** The name of a broker in the settings, `rabbitmq` by default. */
  broker?: string
  /** '' is the default exchange: the routing key is then a queue's name. */
  exchange?: string
  routingKey: string
  /** Headers of the message; `content-type` is its property, application/json by default. */
  headers?: Record<string, string>
  /** The text of messageBody by default. */
  body?: string | Uint8Array
}

/**
 * Publishes persistent messages and waits for the broker's confirmation. A message that no queue takes, or that a full queue
 * rejects, is a failure. A repeat of a delivery has the same `message-id`, its webhook-id.
 */
export function rabbitmqTransport(deps: TransportDeps): Transport<RabbitmqRequest> {
  return brokerTransport<RabbitmqRequest, RabbitmqLink, Message>('rabbitmq', deps, {
    open: broker => rabbitmqLink(deps, broker),
    read: (request, context) => problemOf(request) ?? messageOf(request, context),
    send: publish
  })
}

type Message = Pick<UnconfirmedSend, 'envelope' | 'body'>

async function publish(to: RabbitmqLink, { envelope, body }: Message, flight: Flight): Promise<Outcome> {
  const { exchange = '', routingKey = '' } = envelope
  const sending: UnconfirmedSend = {
    exchange,
    routingKey,
    bytes: body.length,
    envelope,
    body,
    flight,
    returned: false,
    leave: undefined
  }
  let address: string | undefined
  const cut = (why: string): Outcome => {
    sending.leave?.()
    if (address !== undefined) return { ...failed(why), address }
    return failed(why === 'timeout' ? 'connect_timeout' : why)
  }
  flight.cut = cut // not in place: docs/decisions.md, what has ended
  try {
    const pool = await to.pool()
    address = pool.address
    return { ...(await pool.publish(sending)), address }
  } catch (error) {
    return { ...failureOf(error), ...defined({ address }) }
  }
}

/** Converts to a Buffer: the client accepts no other bytes, and would mark text as text/plain. */
const bytesOf = (payload: string | Uint8Array): Buffer =>
  typeof payload === 'string'
    ? Buffer.from(payload)
    : Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength)

/** Whether it fits AMQP's short strings. The client would cut a longer one, and the message would reach another target. */
const isShort = (text: unknown): text is string => typeof text === 'string' && Buffer.byteLength(text) <= 255

function problemOf(request: RabbitmqRequest): string | undefined {
  const { exchange = '', routingKey, headers = {}, body = '' } = request
  if (!isShort(exchange)) return 'the exchange must be text of at most 255 bytes'
  if (!isShort(routingKey)) return 'the routingKey must be text of at most 255 bytes'
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) return 'the body must be text or bytes'
  if (typeof headers !== 'object' || headers === null) return 'the headers must be an object'
  const reserved = reservedName(Object.keys(headers))
  if (reserved) return reserved
  for (const [name, value] of Object.entries(headers)) {
    const lower = name.toLowerCase()
    if (name === '' || !isShort(name)) return 'a header name must have 1 to 255 bytes'
    // The broker reads these as additional routing keys, and closes the channel if the value is text.
    if (name === 'CC' || name === 'BCC') return `the header ${name} is not supported`
    if (typeof value !== 'string') return `the header ${lower} must be text`
  }
  return undefined
}

/** Bytes of all headers. They share one frame of at most 8,192 bytes with the other properties. */
const headersMost = 7_000

function messageOf(
  { exchange = '', routingKey, headers = {}, body }: RabbitmqRequest,
  context: SendContext
): Message | string {
  const payload = body ?? context.raw ?? ''
  const all: Record<string, string> = {}
  let contentType = 'application/json'
  for (const [name, value] of Object.entries(headers)) {
    if (name.toLowerCase() === 'content-type') contentType = value
    else all[name] = value
  }
  if (!isShort(contentType)) return 'the content-type must have at most 255 bytes'
  for (const [name, value] of Object.entries(context.headers(payload))) all[name] ??= value
  const bytes = Object.entries(all).reduce(
    (sum, [name, value]) => sum + 6 + Buffer.byteLength(name) + Buffer.byteLength(value),
    0
  )
  if (bytes > headersMost) return `the headers take ${bytes} bytes, at most ${headersMost} fit`
  const envelope = {
    exchange,
    routingKey,
    headers: all,
    contentType,
    messageId: all['webhook-id'] ?? randomUUID(),
    durable: true,
    mandatory: true
  }
  return { envelope, body: bytesOf(payload) }
}
