import { brokerTransport, reservedName } from '../sends.ts'
import { writer, type Item, type Writer } from './writer.ts'
import type { SendContext, Transport, TransportDeps } from '../types.ts'

/** The result of a handler's `request` for Kafka. */
export interface KafkaRequest {
  /** The name of a broker in the settings, `kafka` by default. */
  broker?: string
  topic: string
  /** Chooses the partition, as Java's default partitioner does. The task's orderingKey by default. */
  key?: string | Uint8Array
  headers?: Record<string, string>
  /** The text of messageBody by default. */
  value?: string | Uint8Array
}

const topicName = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/

export function kafkaTransport(deps: TransportDeps): Transport<KafkaRequest> {
  return brokerTransport<KafkaRequest, Writer, Item['message']>('kafka', deps, {
    open: broker => writer(broker, deps),
    read: (request, context) => problemOf(request) ?? messageOf(request, context),
    send: (to, message, flight) => new Promise(end => to.add({ message, flight, end }))
  })
}

function problemOf(request: KafkaRequest): string | undefined {
  const { topic, key, headers, value } = request
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
  // A CloudEvent in binary mode has the type of its data in `content-type`.
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
