// The calls of a consumer to a RocketMQ proxy: receive messages, acknowledge them, and extend their invisible time.
import { createRequire } from 'node:module'
import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js'
import service from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_pb.js'
import type { Broker } from '../broker.ts'
import { failure } from '../failure.ts'
import { protocolFailure } from '../judged.ts'
import { resource } from './message.ts'
import { call, clientId, listen, metadata, type ProxyAddress, type Proxies, type Proxy } from './proxy.ts'
import { verdictOf } from './status.ts'

const { Code, FilterType } = definition
const { Duration } = createRequire(import.meta.resolve('rocketmq-client-nodejs'))(
  'google-protobuf/google/protobuf/duration_pb.js'
) as { Duration: new () => { setSeconds(seconds: number): Span } }
type Span = Parameters<InstanceType<typeof service.ReceiveMessageRequest>['setInvisibleDuration']>[0]

/**
 * A received message comes again after this time. Proxies also give messages to a receive that was cancelled, so a stop may
 * delay such messages by this time. Proxies refuse less than ten seconds.
 */
export const invisibleMs = 15_000
/** The same for a message that is kept. */
const keptMs = 60_000
/** The time that a proxy keeps a receive open. Proxies raise smaller values to five seconds. */
export const pollMs = 5_000
export const callMs = 3_000
/** Parts of an answer that are not messages: it has a status and a time. */
const answersMost = 10
/** Characters of a message's id, and of the handle for its acknowledgement. The handle of a proxy has some hundred. */
const handleMost = 8_192

export type MessageOfTopic = InstanceType<typeof definition.Message>
/** A message in hand. */
export interface TakenMessage {
  acknowledge(): Promise<void>
  /** Keeps the message invisible to others for another minute. */
  keep(): Promise<void>
}

/** A broker that holds queues of the topic, reached through a proxy. */
export interface QueueHolder {
  /** Resolves when the answer is complete; each message is handed over as it comes. */
  receive(most: number, signal: AbortSignal, take: Take): Promise<void>
}

/** May throw, which ends the answer. */
export type Take = (message: MessageOfTopic, taken: TakenMessage) => void

export interface Subscription {
  broker: Broker
  proxies: Proxies
  topic: string
  group: string
}

export interface Way extends Subscription {
  place: ProxyAddress
  proxy: Proxy
}

export type MessageQueue = InstanceType<typeof definition.MessageQueue>
export const readerId = `${clientId}-receipts`

type Answer = InstanceType<typeof service.ReceiveMessageResponse>

export async function receive(
  way: Way,
  queue: MessageQueue,
  most: number,
  signal: AbortSignal,
  take: Take
): Promise<void> {
  const { broker, proxy, topic, group } = way
  const request = new service.ReceiveMessageRequest()
    .setGroup(resource(group, broker.path))
    .setMessageQueue(queue)
    .setFilterExpression(everything())
    .setBatchSize(most)
    .setInvisibleDuration(span(invisibleMs))
    .setLongPollingTimeout(span(pollMs))
  let left = most
  let others = 0
  const line = listen<Answer>(
    proxy,
    client => client.receiveMessage(request, metadata(broker, readerId), deadline(pollMs + callMs)),
    answer => {
      const message = answer.getMessage()
      const status = answer.getStatus()?.getCode()
      // MESSAGE_NOT_FOUND: no message arrived while the receive was open.
      if (status !== Code.MESSAGE_NOT_FOUND) check(status, topic)
      if (message ? left-- === 0 : others++ > answersMost)
        throw protocolFailure('more answers than requested')
      if (message) take(message, taken(way, message))
    }
  )
  signal.addEventListener('abort', line.cancel, { once: true })
  if (signal.aborted) line.cancel()
  try {
    await line.ended
  } finally {
    signal.removeEventListener('abort', line.cancel)
  }
}

function taken({ broker, proxy, topic, group }: Way, message: MessageOfTopic): TakenMessage {
  const [ofGroup, ofTopic] = [resource(group, broker.path), resource(topic, broker.path)]
  const id = handleOf(message.getSystemProperties()?.getMessageId())
  let receipt = handleOf(message.getSystemProperties()?.getReceiptHandle())
  return {
    async acknowledge() {
      const entry = new service.AckMessageEntry().setMessageId(id).setReceiptHandle(receipt)
      const request = new service.AckMessageRequest()
        .setGroup(ofGroup)
        .setTopic(ofTopic)
        .setEntriesList([entry])
      await call(proxy, (client, done) =>
        client.ackMessage(request, metadata(broker, readerId), deadline(callMs), done)
      )
    },
    async keep() {
      const request = new service.ChangeInvisibleDurationRequest()
        .setGroup(ofGroup)
        .setTopic(ofTopic)
        .setMessageId(id)
        .setReceiptHandle(receipt)
        .setInvisibleDuration(span(keptMs))
      const answer = await call<InstanceType<typeof service.ChangeInvisibleDurationResponse>>(
        proxy,
        (client, done) =>
          client.changeInvisibleDuration(request, metadata(broker, readerId), deadline(callMs), done)
      )
      receipt = handleOf(answer.getReceiptHandle()) || receipt
    }
  }
}

function handleOf(text = ''): string {
  if (text.length > handleMost) throw protocolFailure(`a handle of ${text.length} characters`)
  return text
}

export const everything = (): InstanceType<typeof definition.FilterExpression> =>
  new definition.FilterExpression().setType(FilterType.TAG).setExpression('*')
export const span = (ms: number): Span => new Duration().setSeconds(ms / 1_000)
export const deadline = (ms: number): { deadline: number } => ({ deadline: Date.now() + ms })

/** Throws on a status that is an error. Parts of an answer without a status pass. */
export function check(code: number | undefined, topic: string): void {
  if (code === undefined || code === Code.OK) return
  if (code === Code.TOPIC_NOT_FOUND || code === Code.NOT_FOUND)
    throw failure(`target_missing: there is no topic ${topic}`)
  if (code === Code.CONSUMER_GROUP_NOT_FOUND)
    throw failure('target_missing: the consumer group is not there, and the broker makes none')
  if (code === Code.FORBIDDEN) throw failure('credentials: may not read this topic')
  throw failure(verdictOf(code)?.reason ?? `broker: ${code}`)
}
