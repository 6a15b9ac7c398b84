import { type Broker, chosen } from '../broker.ts'
import { Failure } from '../egress/guard.ts'
import { ended } from '../failure.ts'
import { openSends, reservedName } from '../sends.ts'
import { writer, type Item, type Writer } from './writer.ts'
import type { SendContext, Transport, TransportDeps } from '../types.ts'

/** What a handler's `request` returns for Kafka. */
export interface KafkaRequest {
  /** Which broker; default: the one called `kafka`. */
  broker?: string
  topic: string
  /** The same key, the same partition: the one that Java's default partitioner takes. The task's orderingKey by default. */
  key?: string | Uint8Array
  headers?: Record<string, string>
  /** The text of messageBody by default. */
  value?: string | Uint8Array
}

const topicName = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/

export function kafkaTransport(deps: TransportDeps): Transport<KafkaRequest> {
  const sends = openSends()
  const writers = new Map<string, Writer>()
  let closed = false

  function writerOf(broker: Broker): Writer {
    const known = writers.get(broker.name)
    if (known) return known
    const made = writer(broker, deps)
    writers.set(broker.name, made)
    return made
  }

  return {
    name: 'kafka',

    send(request, context) {
      if (closed) return ended('shutdown')
      const problem = problemOf(request)
      if (problem !== undefined) return ended(`bad_request: ${problem}`)
      let broker: Broker
      try {
        broker = chosen(deps.brokers, 'kafka', request.broker)
      } catch (error) {
        if (error instanceof Failure) return Promise.resolve(error.outcome)
        throw error
      }
      const message = messageOf(request, context)
      return sends.fly(context, flight => new Promise(end => writerOf(broker).add({ message, flight, end })))
    },

    async close() {
      closed = true
      sends.close()
      await Promise.all([...writers.values()].map(each => each.close()))
    }
  }
}

function problemOf(request: KafkaRequest): string | undefined {
  if (typeof request !== 'object' || request === null) return 'the handler returned no request'
  const { broker, topic, key, headers, value } = request
  if (broker !== undefined && typeof broker !== 'string') return 'the broker must be a name'
  if (typeof topic !== 'string' || !topicName.test(topic)) return 'the topic is not a valid name'
  if (key !== undefined && !isPayload(key)) return 'the key must be text or bytes'
  if (value !== undefined && !isPayload(value)) return 'the value must be text or bytes'
  if (headers === undefined) return undefined
  if (typeof headers !== 'object' || headers === null) return 'the headers must be an object'
  const reserved = reservedName(Object.keys(headers))
  if (reserved) return reserved
  for (const [name, text] of Object.entries(headers)) {
    if (typeof text !== 'string') return `the header ${name.toLowerCase()} must be text`
  }
  return undefined
}

const isPayload = (value: unknown): value is string | Uint8Array =>
  typeof value === 'string' || value instanceof Uint8Array

function messageOf(request: KafkaRequest, context: SendContext): Item['message'] {
  const value = request.value ?? context.raw ?? ''
  const key = request.key ?? context.orderingKey
  const headers = new Map<Buffer, Buffer>()
  const ours = context.headers(value)
  // A CloudEvent in binary mode says there what its data is.
  const type = 'ce_specversion' in ours ? { 'content-type': 'application/json' } : {}
  for (const [name, text] of Object.entries({ ...type, ...request.headers, ...ours }))
    headers.set(Buffer.from(name), Buffer.from(text))
  return {
    topic: request.topic,
    value: bytes(value),
    headers,
    ...(key !== undefined && { key: bytes(key) })
  }
}

const bytes = (value: string | Uint8Array): Buffer =>
  typeof value === 'string' ? Buffer.from(value) : Buffer.from(value.buffer, value.byteOffset, value.length)
