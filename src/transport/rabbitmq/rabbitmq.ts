import { randomUUID } from 'node:crypto'
import { type Broker, chosen } from '../broker.ts'
import { deadlines } from '../deadlines.ts'
import { ended, failureOf } from '../failure.ts'
import { reservedName } from '../sends.ts'
import { rabbitmqLink, type RabbitmqLink } from './connection.ts'
import { Sending } from './sending.ts'
import type { SendContext, Transport, TransportDeps } from '../types.ts'

/** What a handler's `request` returns for rabbitmq. */
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
 * Publishes persistent messages and waits for the broker's confirmation. What no queue takes comes back and is a failure; so
 * is what a full queue rejects. The same delivery sent again has the same `message-id`, its webhook-id.
 */
export function rabbitmqTransport(deps: TransportDeps): Transport<RabbitmqRequest> {
  const clock = deadlines<Sending>()
  const links = new Map<string, RabbitmqLink>()
  let closed = false

  function linkTo(broker: Broker): RabbitmqLink {
    let known = links.get(broker.name)
    if (!known) links.set(broker.name, (known = rabbitmqLink(deps, broker)))
    return known
  }

  async function carry(sending: Sending, broker: Broker): Promise<void> {
    try {
      const pool = await linkTo(broker).pool()
      sending.address = pool.address
      if (!sending.ended) sending.settle(await pool.publish(sending))
    } catch (error) {
      sending.settle(failureOf(error))
    }
  }

  return {
    name: 'rabbitmq',

    send(request, context) {
      if (closed || context.signal.aborted) return ended('shutdown')
      if (context.timeoutMs <= 0) return ended('timeout')
      const problem = problemOf(request)
      if (problem) return ended(`bad_request: ${problem}`)
      let broker: Broker
      try {
        broker = chosen(deps.brokers, 'rabbitmq', request.broker)
      } catch (error) {
        return Promise.resolve(failureOf(error))
      }
      const payload = request.body ?? context.raw ?? ''
      const message = messageOf(request, context, payload)
      if (typeof message === 'string') return ended(`bad_request: ${message}`)
      return new Promise(resolve => {
        const sending: Sending = new Sending(context, message, bytesOf(payload), outcome => {
          clock.delete(sending)
          resolve(outcome)
        })
        clock.add(sending)
        void carry(sending, broker)
      })
    },

    async close() {
      closed = true
      for (const sending of clock.all()) sending.fail('shutdown')
      await Promise.all(Array.from(links.values(), each => each.close()))
    }
  }
}

/** As a Buffer: the client accepts no other bytes, and would mark text as text/plain. */
const bytesOf = (payload: string | Uint8Array): Buffer =>
  typeof payload === 'string'
    ? Buffer.from(payload)
    : Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength)

/** AMQP's short strings; the client would cut a longer one, and the message would go elsewhere. */
const isShort = (text: unknown): text is string => typeof text === 'string' && Buffer.byteLength(text) <= 255

function problemOf(request: RabbitmqRequest): string | undefined {
  if (typeof request !== 'object' || request === null) return 'the handler returned no request'
  const { broker, exchange = '', routingKey, headers = {}, body = '' } = request
  if (broker !== undefined && typeof broker !== 'string') return 'the broker must be a name'
  if (!isShort(exchange)) return 'the exchange must be text of at most 255 bytes'
  if (!isShort(routingKey)) return 'the routingKey must be text of at most 255 bytes'
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) return 'the body must be text or bytes'
  if (typeof headers !== 'object' || headers === null) return 'the headers must be an object'
  const reserved = reservedName(Object.keys(headers))
  if (reserved) return reserved
  for (const [name, value] of Object.entries(headers)) {
    const lower = name.toLowerCase()
    if (name === '' || !isShort(name)) return 'a header name must have 1 to 255 bytes'
    // The broker takes these for more routing keys, and closes the channel over a text.
    if (name === 'CC' || name === 'BCC') return `the header ${name} is not supported`
    if (typeof value !== 'string') return `the header ${lower} must be text`
  }
  return undefined
}

/** All of them are in one frame, of at most 8,192 bytes with the other properties. */
const headersMost = 7_000

function messageOf(
  { exchange = '', routingKey, headers = {} }: RabbitmqRequest,
  context: SendContext,
  payload: string | Uint8Array
): Sending['envelope'] | string {
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
  return {
    exchange,
    routingKey,
    headers: all,
    contentType,
    messageId: all['webhook-id'] ?? randomUUID(),
    durable: true,
    mandatory: true
  }
}
