import { MultipleErrors, murmur2, ProduceAcks, Producer, type SASLMechanismValue } from '@platformatic/kafka'
import { reach, type Broker } from './broker.ts'
import { carry, headersOf, payloadOf } from './carry.ts'
import { failureOf } from './failure.ts'
import { Failure, type Blocked, type Guard } from './guard.ts'
import { links, type Dial, type Line } from './link.ts'
import type { Outcome } from '../task/task.ts'
import type { Transport, TransportDeps } from './transport.ts'

/** What a handler's `request` returns for kafka. */
export interface KafkaRequest {
  /** The name of a broker in the settings, `kafka` by default. */
  broker?: string
  topic: string
  /** Records of one key keep their order and their partition. */
  key?: string | Uint8Array
  headers?: Record<string, string>
  /** The text of messageBody by default. */
  value?: string | Uint8Array
}

interface Message {
  topic: string
  key?: Buffer
  value: Buffer
  headers: Map<Buffer, Buffer>
}

interface KafkaLine extends Line {
  send(message: Message): Promise<unknown>
}

/**
 * Each record is a produce request of its own with acks=all, and not idempotent: the client's idempotent producer stores one
 * of twenty concurrent records and acknowledges all of them.
 */
export function kafkaTransport(deps: TransportDeps): Transport<KafkaRequest> {
  const open = links<KafkaLine>(deps, dialer(deps.guard), blockedBy)
  return carry<KafkaRequest, Message>(deps, {
    name: 'kafka',

    prepare({ topic, key, headers, value: own }, parcel) {
      // https://github.com/apache/kafka/blob/trunk/clients/src/main/java/org/apache/kafka/common/internals/Topic.java
      if (typeof topic !== 'string' || !/^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/.test(topic))
        return "the topic must be 1 to 249 letters, digits, '.', '_' or '-'"
      const value = payloadOf(own, parcel)
      if (value === undefined) return 'the value must be text or bytes'
      if (key !== undefined && typeof key !== 'string' && !(key instanceof Uint8Array))
        return 'the key must be text or bytes'
      const all = headersOf(headers, parcel, value)
      if (typeof all === 'string') return all
      return {
        topic,
        ...(key === undefined ? {} : { key: Buffer.from(key) }),
        value: Buffer.from(value),
        headers: new Map(Object.entries(all).map(([name, text]) => [Buffer.from(name), Buffer.from(text)]))
      }
    },

    async publish(broker, message, sending) {
      const { line, address } = await open.line(broker)
      sending.address = address
      if (sending.ended) return { kind: 'failed', reason: 'timeout' }
      await line.send(message)
      return { kind: 'delivered' }
    },

    broken,
    close: () => open.close()
  })
}

const connectMs = 5_000
/** A request without an answer for so long: the network swallowed it, and the connection is given up. */
const silentMs = 15_000

/** As Java's producer does it, so that both put a key into the same partition. Without a key: in turns. */
function partitioner(): (_: unknown, key: Buffer | undefined) => number {
  let turn = 0
  return (_, key) => (key === undefined ? (turn = (turn + 1) & 0x7fffffff) : murmur2(key) & 0x7fffffff)
}

/** SASL by the login in the URL: `?sasl=plain`, `scram-sha-256` (the default) or `scram-sha-512`. */
export function credentials({ username, password, options }: Broker) {
  if (username === undefined) return {}
  const mechanism = (options['sasl'] ?? 'scram-sha-256').toUpperCase() as SASLMechanismValue
  return { sasl: { mechanism, username, password: password ?? '' } }
}

/** The hosts that the guard lets us reach; the first one's refusal when there is none. */
export async function bootstrap(
  guard: Guard,
  { hosts, tls }: Broker
): Promise<{ host: string; port: number }[]> {
  const asked = await Promise.allSettled(
    // A certificate is for a name; without one the checked address itself is connected to.
    hosts.map(async each => ({
      host: await reach(guard, each).then(ip => (tls ? each.host : ip)),
      port: each.port
    }))
  )
  const good = asked.flatMap(each => (each.status === 'fulfilled' ? [each.value] : []))
  if (good.length > 0) return good
  throw asked.find(each => each.status === 'rejected')?.reason
}

function dialer(guard: Guard): Dial<KafkaLine> {
  return async (broker, place, broke, signal) => {
    const others = await bootstrap(guard, broker)
    const first = { host: broker.tls ? place.host : place.ip, port: place.port }
    const producer = new Producer<Buffer, Buffer, Buffer, Buffer>({
      clientId: 'ackbox',
      bootstrapBrokers: [
        first,
        ...others.filter(each => each.host !== first.host || each.port !== first.port)
      ],
      connectTimeout: connectMs,
      requestTimeout: silentMs,
      timeout: silentMs,
      // The retry rule is ours.
      retries: 0,
      autocreateTopics: false,
      partitioner: partitioner(),
      ...credentials(broker),
      ...(broker.tls ? { tls: {}, tlsServerName: true } : {})
    })
    // One that nobody listens to ends the process.
    producer.on('error' as never, () => {})
    const close = async (): Promise<void> => {
      const closed = new Promise<void>(resolve => producer.close(true, () => resolve()))
      await Promise.race([closed, after(1_000)])
    }
    const abort = (): void => void close()
    signal.addEventListener('abort', abort, { once: true })
    let judged = -1
    /** The brokers that this cluster names; its client resolves their names by itself, right after this. */
    async function judge(topics: string[]): Promise<void> {
      const metadata = await producer.metadata({ topics })
      if (metadata.lastUpdate === judged) return
      for (const each of metadata.brokers.values()) await reach(guard, each)
      judged = metadata.lastUpdate
    }
    try {
      await judge([])
    } catch (error) {
      void close()
      throw error
    } finally {
      signal.removeEventListener('abort', abort)
    }
    return {
      async send(message) {
        try {
          await judge([message.topic])
          await producer.send({ messages: [message], acks: ProduceAcks.ALL })
        } catch (error) {
          if (isSilent(error)) {
            broke(error)
            void close()
          }
          throw error
        }
      },
      close
    }
  }
}

const after = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms).unref())

/** Errors of the client nest: causes and lists of errors, the reason somewhere in the middle. */
function* within(error: unknown): Generator<Error & { apiId?: string; code?: string }> {
  if (!(error instanceof Error)) return
  yield error
  if (error instanceof AggregateError) for (const each of error.errors) yield* within(each)
  if (error.cause !== undefined) yield* within(error.cause)
}

const isSilent = (error: unknown): boolean => [...within(error)].some(each => each.code === 'PLT_KFK_TIMEOUT')

/** By the names of https://kafka.apache.org/protocol#protocol_error_codes */
const words: Readonly<Record<string, string>> = {
  UNKNOWN_TOPIC_OR_PARTITION: 'target_missing: there is no such topic',
  INVALID_TOPIC_EXCEPTION: 'bad_request: the broker takes no topic of that name',
  TOPIC_AUTHORIZATION_FAILED: 'credentials: this user may not write to the topic',
  CLUSTER_AUTHORIZATION_FAILED: 'credentials: this user may not do that',
  SASL_AUTHENTICATION_FAILED: 'credentials: the broker does not know this user and password',
  UNSUPPORTED_SASL_MECHANISM: 'credentials: the broker does not know this SASL mechanism, see ?sasl=',
  NOT_ENOUGH_REPLICAS: 'not_enough_replicas',
  NOT_ENOUGH_REPLICAS_AFTER_APPEND: 'not_enough_replicas: it may be stored'
}

function broken(error: unknown): Outcome {
  for (const each of within(error)) {
    if (each.apiId === 'MESSAGE_TOO_LARGE' || each.apiId === 'RECORD_LIST_TOO_LARGE')
      return { kind: 'refused', reason: 'too_large: larger than the topic takes' }
  }
  return blockedBy(error)
}

function blockedBy(error: unknown): Blocked {
  if (error instanceof Failure) return error.outcome
  const all = [...within(error)]
  for (const each of all) {
    if (each instanceof Failure) return each.outcome
    const said = words[each.apiId ?? '']
    if (said !== undefined) return failed(said)
    if (/^Unknown topic/.test(each.message)) return failed(words['UNKNOWN_TOPIC_OR_PARTITION'] ?? '')
    if (each.code === 'PLT_KFK_AUTHENTICATION') return failed(words['SASL_AUTHENTICATION_FAILED'] ?? '')
  }
  for (const each of all) if (each.apiId !== undefined) return failed(`broker_refused: ${each.apiId}`)
  if (isSilent(error)) return failed('timeout')
  // The system's own errors are the innermost.
  for (const each of all.toReversed()) {
    const known = failureOf(each)
    if (!known.reason.startsWith('error: ')) return known
  }
  return all.some(each => each.code === 'PLT_KFK_NETWORK' || each instanceof MultipleErrors)
    ? failed('connection_closed')
    : failureOf(error)
}

const failed = (reason: string): Blocked => ({ kind: 'failed', reason })
