import { randomBytes } from 'node:crypto'
import { createRequire } from 'node:module'
import { hostname } from 'node:os'
import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js'
import service from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_pb.js'
import { reservedName } from '../sends.ts'
import type { SendContext } from '../types.ts'

/** The result of a handler's `request` for RocketMQ. */
export interface RocketmqRequest {
  /** The name of a broker in the settings, `rocketmq` by default. */
  broker?: string
  topic: string
  tag?: string
  /** The task's orderingKey by default. */
  keys?: readonly string[]
  properties?: Record<string, string>
  /** FIFO: messages of one group keep their order. The topic's type must be FIFO. */
  group?: string
  /** Ms until consumers see it. The topic's type must be DELAY. */
  delayMs?: number
  /** The text of messageBody by default. */
  body?: string | Uint8Array
}

const { Timestamp } = createRequire(import.meta.resolve('rocketmq-client-nodejs'))(
  'google-protobuf/google/protobuf/timestamp_pb.js'
) as { Timestamp: { fromDate(date: Date): Stamp } }
type Stamp = Parameters<InstanceType<typeof definition.SystemProperties>['setBornTimestamp']>[0]

const { MessageType } = definition
export type MessageKind = 'NORMAL' | 'FIFO' | 'DELAY'

/** A message, built once and used for all tries of one attempt. */
export interface RocketMessage {
  topic: string
  kind: MessageKind
  request: InstanceType<typeof service.SendMessageRequest>
}

/** The message of a request, or the error in the request. */
export function messageOf(
  request: RocketmqRequest,
  context: SendContext,
  namespace: string
): RocketMessage | string {
  const { topic, tag, keys = keysOf(context), properties = {}, group, delayMs = 0 } = request
  if (typeof topic !== 'string' || topic === '') return 'the topic must be text'
  if (tag !== undefined && typeof tag !== 'string') return 'the tag must be text'
  if (!Array.isArray(keys) || !keys.every(key => typeof key === 'string'))
    return 'keys must be a list of texts'
  if (group !== undefined && (typeof group !== 'string' || group === '')) return 'the group must be text'
  if (!Number.isFinite(delayMs) || delayMs < 0) return 'delayMs must be a number, 0 or more'
  if (group !== undefined && delayMs > 0) return 'a message has a group or a delay, not both'
  if (typeof properties !== 'object' || properties === null)
    return 'properties must be an object of text members'
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value !== 'string') return `the property ${name} must be text`
  }
  const reserved = reservedName(Object.keys(properties), 'property')
  if (reserved) return reserved
  const payload = request.body ?? context.raw ?? ''
  if (typeof payload !== 'string' && !(payload instanceof Uint8Array)) return 'the body must be text or bytes'

  const kind = group !== undefined ? 'FIFO' : delayMs > 0 ? 'DELAY' : 'NORMAL'
  const system = new definition.SystemProperties()
    .setMessageId(messageId())
    .setKeysList([...keys])
    .setMessageType(MessageType[kind])
    .setBodyEncoding(definition.Encoding.IDENTITY)
    .setBornTimestamp(Timestamp.fromDate(new Date()))
    .setBornHost(hostname())
  if (tag !== undefined) system.setTag(tag)
  if (group !== undefined) system.setMessageGroup(group)
  if (delayMs > 0) system.setDeliveryTimestamp(Timestamp.fromDate(new Date(Date.now() + delayMs)))
  const message = new definition.Message()
    .setTopic(resource(topic, namespace))
    .setSystemProperties(system)
    .setBody(typeof payload === 'string' ? Buffer.from(payload) : payload)
  const user = message.getUserPropertiesMap()
  for (const [name, value] of Object.entries({ ...properties, ...context.headers(payload) }))
    user.set(name, value)
  return { topic, kind, request: new service.SendMessageRequest().setMessagesList([message]) }
}

const keysOf = ({ orderingKey }: SendContext): string[] => (orderingKey === undefined ? [] : [orderingKey])

export const resource = (name: string, namespace: string): InstanceType<typeof definition.Resource> =>
  new definition.Resource().setName(name).setResourceNamespace(namespace)

/** Version 1 of the protocol's message ids, 17 bytes. Clients put their machine's address in it; we use random bytes. */
const messageId = (): string => `01${randomBytes(16).toString('hex').toUpperCase()}`
