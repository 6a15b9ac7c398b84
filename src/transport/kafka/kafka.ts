import type { Outcome } from '../../domain/types.ts'
import { type Broker, chosen } from '../broker.ts'
import { deadlines, type Due } from '../deadlines.ts'
import { Failure } from '../egress/guard.ts'
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
const reserved = /^(?:webhook-|ackbox-)/i

export function kafkaTransport(deps: TransportDeps): Transport<KafkaRequest> {
  const clock = deadlines<Sent>()
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
      if (closed || context.signal.aborted) return ended('shutdown')
      if (context.timeoutMs <= 0) return ended('timeout')
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
      return new Promise(resolve => {
        const sent: Sent = {
          due: performance.now() + context.timeoutMs,
          signal: context.signal,
          index: -1,
          message,
          over: false,
          end(outcome) {
            if (sent.over) return
            sent.over = true
            clock.delete(sent)
            resolve(outcome)
          },
          expire: () => sent.end({ kind: 'failed', reason: context.signal.aborted ? 'shutdown' : 'timeout' })
        }
        clock.add(sent)
        writerOf(broker).add(sent)
      })
    },

    async close() {
      closed = true
      for (const sent of clock.all()) sent.end({ kind: 'failed', reason: 'shutdown' })
      await Promise.all([...writers.values()].map(each => each.close()))
    }
  }
}

type Sent = Due & Item

const ended = (reason: string): Promise<Outcome> => Promise.resolve({ kind: 'failed', reason })

function problemOf(request: KafkaRequest): string | undefined {
  if (typeof request !== 'object' || request === null) return 'the handler gave no request'
  const { broker, topic, key, headers, value } = request
  if (broker !== undefined && typeof broker !== 'string') return 'the broker must be a name'
  if (typeof topic !== 'string' || !topicName.test(topic)) return 'not a name of a topic'
  if (key !== undefined && !isPayload(key)) return 'the key must be text or bytes'
  if (value !== undefined && !isPayload(value)) return 'the value must be text or bytes'
  if (headers === undefined) return undefined
  if (typeof headers !== 'object' || headers === null) return 'the headers must be an object'
  for (const [name, text] of Object.entries(headers)) {
    if (reserved.test(name)) return `the header ${name.toLowerCase()} is not the handler's to set`
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
