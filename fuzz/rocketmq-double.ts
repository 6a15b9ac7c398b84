// A small RocketMQ proxy. It writes HTTP/2 by hand, so that every byte can be changed.
import type { Socket } from 'node:net'
import { gzipSync } from 'node:zlib'
import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js'
import service from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_pb.js'
import { doubleServer, type Double } from './double.ts'

const frames = { data: 0, headers: 1, settings: 4, ping: 6 }
const [ack, endStream, endHeaders] = [1, 1, 4]
const prefaceBytes = 24

export type Asked = 'greeting' | 'route' | 'send' | 'session' | 'receive' | 'acknowledge'

export function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head.writeUInt8(type, 3)
  head.writeUInt8(flags, 4)
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, payload])
}

/** Literals without Huffman and without an index: https://www.rfc-editor.org/rfc/rfc7541#section-6.2.2 */
const header = (name: string, value: string): Buffer =>
  Buffer.concat([
    Buffer.from([0, name.length]),
    Buffer.from(name),
    Buffer.from([value.length]),
    Buffer.from(value)
  ])

/** The frame of one message of Protobuf. */
export function messageFrame(stream: number, message: Buffer): Buffer {
  const length = Buffer.alloc(5)
  length.writeUInt32BE(message.length, 1)
  return frame(frames.data, 0, stream, Buffer.concat([length, message]))
}

/** An answer that does not end yet. */
export function begunOf(stream: number, messages: readonly Buffer[]): Buffer {
  const head = Buffer.concat([header(':status', '200'), header('content-type', 'application/grpc')])
  return Buffer.concat([
    frame(frames.headers, endHeaders, stream, head),
    ...messages.map(message => messageFrame(stream, message))
  ])
}

/** An answer as a sound proxy gives it, around these bytes of Protobuf. */
export function answerOf(stream: number, ...messages: Buffer[]): Buffer {
  const end = frame(frames.headers, endHeaders | endStream, stream, header('grpc-status', '0'))
  return Buffer.concat([begunOf(stream, messages), end])
}

export const greeting = frame(frames.settings, 0, 0, Buffer.alloc(0))

const ok = (): InstanceType<typeof definition.Status> =>
  new definition.Status().setCode(definition.Code.OK).setMessage('OK')

/** The Protobuf of an answer, one for each of its messages. */
export function messagesOf(asked: Exclude<Asked, 'greeting'>, port: number): Buffer[] {
  return protobufOf(asked, port).map(each => Buffer.from(each.serializeBinary()))
}

function protobufOf(asked: Exclude<Asked, 'greeting'>, port: number): { serializeBinary(): Uint8Array }[] {
  switch (asked) {
    case 'route':
      return [route(port)]
    case 'send': {
      const entry = new service.SendResultEntry().setStatus(ok()).setMessageId('01A').setOffset(7)
      return [new service.SendMessageResponse().setStatus(ok()).setEntriesList([entry])]
    }
    case 'session':
      return [new service.TelemetryCommand().setStatus(ok()).setSettings(new definition.Settings())]
    case 'receive':
      return [
        new service.ReceiveMessageResponse().setStatus(ok()),
        received(Buffer.from(receipt)),
        received(gzipSync(receipt), true)
      ]
    case 'acknowledge':
      return [new service.AckMessageResponse().setStatus(ok())]
  }
}

const receipt = '{"taskNo":"t-1","messageCode":"order.paid","result":"HANDLED"}'

function received(body: Buffer, isGzip = false): InstanceType<typeof service.ReceiveMessageResponse> {
  const system = new definition.SystemProperties()
    .setMessageId('01A')
    .setReceiptHandle('handle')
    .setBodyEncoding(definition.Encoding[isGzip ? 'GZIP' : 'IDENTITY'])
  const message = new definition.Message()
    .setTopic(new definition.Resource().setName('ackbox-receipts'))
    .setSystemProperties(system)
    .setBody(body)
  message.getUserPropertiesMap().set('ackbox-callback-token', 'v1.a.b')
  return new service.ReceiveMessageResponse().setMessage(message)
}

/** The Protobuf with which a proxy delivers a message with this body. */
export const receivedOf = (body: Buffer, isGzip = false): Buffer =>
  Buffer.from(received(body, isGzip).serializeBinary())

function route(port: number): InstanceType<typeof service.QueryRouteResponse> {
  const address = new definition.Address().setHost('127.0.0.1').setPort(port)
  const endpoints = new definition.Endpoints()
    .setScheme(definition.AddressScheme.IPV4)
    .setAddressesList([address])
  const queue = new definition.MessageQueue()
    .setTopic(new definition.Resource().setName('orders'))
    .setPermission(definition.Permission.READ_WRITE)
    .setBroker(new definition.Broker().setName('b').setEndpoints(endpoints))
    .setAcceptMessageTypesList([definition.MessageType.NORMAL])
  return new service.QueryRouteResponse().setStatus(ok()).setMessageQueuesList([queue])
}

/** The kind of a request follows from a text in it. A request without any of these texts is for the route. */
const marks = [
  ['send', '{"n":1}'],
  // The version of the client, among its settings
  ['session', '\x12\x055.0.0'],
  // The filter
  ['receive', '\x12\x01*'],
  // The consumer group
  ['acknowledge', '\x12\x06ackbox']
] as const

const askedBy = (request: Buffer): Exclude<Asked, 'greeting'> =>
  marks.find(([, text]) => request.includes(text, 0, 'latin1'))?.[0] ?? 'route'

/** The answers of a proxy that delivers its receipts once, and then has none. */
function soundAnswer(asked: Exclude<Asked, 'greeting'>, stream: number, port: number, nth: number): Buffer {
  if (asked === 'session') return begunOf(stream, messagesOf(asked, port))
  if (asked !== 'receive' || nth === 1) return answerOf(stream, ...messagesOf(asked, port))
  const none = new definition.Status().setCode(definition.Code.MESSAGE_NOT_FOUND)
  const answer = new service.ReceiveMessageResponse().setStatus(none)
  return answerOf(stream, Buffer.from(answer.serializeBinary()))
}

/** The bytes to send instead of the sound answer. Undefined sends the sound answer. */
export type Answer = (asked: Asked, stream: number, port: number, socket: Socket) => Buffer | undefined

/** For a sender whose body is `{"n":1}`, and for the reader of receipts. */
export async function rocketmqDouble(answer: Answer): Promise<Double> {
  return await doubleServer((socket, port) => {
    let rest: Buffer = Buffer.alloc(0)
    let receives = 0
    let isGreeted = false
    socket.write(answer('greeting', 0, port, socket) ?? greeting)
    socket.on('data', data => {
      rest = Buffer.concat([rest, data])
      if (!isGreeted) {
        if (rest.length < prefaceBytes) return
        rest = rest.subarray(prefaceBytes)
        isGreeted = true
      }
      while (rest.length >= 9 && rest.length >= 9 + rest.readUIntBE(0, 3)) {
        const end = 9 + rest.readUIntBE(0, 3)
        takeFrame(rest.readUInt8(3), rest.readUInt8(4), rest.readUInt32BE(5), rest.subarray(9, end))
        rest = rest.subarray(end)
      }
    })
    function takeFrame(type: number, flags: number, stream: number, payload: Buffer): void {
      const isAck = (flags & ack) !== 0
      if (type === frames.settings && !isAck) socket.write(frame(type, ack, 0, Buffer.alloc(0)))
      if (type === frames.ping && !isAck) socket.write(frame(type, ack, 0, payload))
      if (type !== frames.data || payload.length === 0) return
      const asked = askedBy(payload)
      if (asked === 'receive') receives++
      const given = answer(asked, stream, port, socket) ?? soundAnswer(asked, stream, port, receives)
      if (given.length > 0) socket.write(given)
    }
  })
}
