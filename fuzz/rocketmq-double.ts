// A proxy of RocketMQ in a few lines: HTTP/2 by hand, so that every byte of it can be changed.
import type { Socket } from 'node:net'
import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js'
import service from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_pb.js'
import { doubleServer, type Double } from './double.ts'

const frames = { data: 0, headers: 1, settings: 4, ping: 6 }
const [ack, endStream, endHeaders] = [1, 1, 4]
const prefaceBytes = 24

export type Asked = 'greeting' | 'route' | 'send'

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

/** An answer as a sound proxy gives it, around these bytes of Protobuf. */
export function answerOf(stream: number, message: Buffer): Buffer {
  const length = Buffer.alloc(5)
  length.writeUInt32BE(message.length, 1)
  const head = Buffer.concat([header(':status', '200'), header('content-type', 'application/grpc')])
  return Buffer.concat([
    frame(frames.headers, endHeaders, stream, head),
    frame(frames.data, 0, stream, Buffer.concat([length, message])),
    frame(frames.headers, endHeaders | endStream, stream, header('grpc-status', '0'))
  ])
}

export const greeting = frame(frames.settings, 0, 0, Buffer.alloc(0))

const ok = (): InstanceType<typeof definition.Status> =>
  new definition.Status().setCode(definition.Code.OK).setMessage('OK')

/** The Protobuf of an answer. */
export function messageOf(asked: 'route' | 'send', port: number): Buffer {
  if (asked === 'send') {
    const entry = new service.SendResultEntry().setStatus(ok()).setMessageId('01A').setOffset(7)
    return Buffer.from(
      new service.SendMessageResponse().setStatus(ok()).setEntriesList([entry]).serializeBinary()
    )
  }
  const address = new definition.Address().setHost('127.0.0.1').setPort(port)
  const endpoints = new definition.Endpoints()
    .setScheme(definition.AddressScheme.IPV4)
    .setAddressesList([address])
  const queue = new definition.MessageQueue()
    .setTopic(new definition.Resource().setName('orders'))
    .setPermission(definition.Permission.READ_WRITE)
    .setBroker(new definition.Broker().setName('b').setEndpoints(endpoints))
    .setAcceptMessageTypesList([definition.MessageType.NORMAL])
  const answer = new service.QueryRouteResponse().setStatus(ok()).setMessageQueuesList([queue])
  return Buffer.from(answer.serializeBinary())
}

/** What takes the place of the sound answer; undefined for the sound one. */
export type Answer = (asked: Asked, stream: number, port: number, socket: Socket) => Buffer | undefined

/** What is asked is told by the body of the message, which holds this text. */
export async function rocketmqDouble(body: string, answer: Answer): Promise<Double> {
  return await doubleServer((socket, port) => {
    let rest: Buffer = Buffer.alloc(0)
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
        heard(rest.readUInt8(3), rest.readUInt8(4), rest.readUInt32BE(5), rest.subarray(9, end))
        rest = rest.subarray(end)
      }
    })
    function heard(type: number, flags: number, stream: number, payload: Buffer): void {
      const isAck = (flags & ack) !== 0
      if (type === frames.settings && !isAck) socket.write(frame(type, ack, 0, Buffer.alloc(0)))
      if (type === frames.ping && !isAck) socket.write(frame(type, ack, 0, payload))
      if (type !== frames.data || payload.length === 0) return
      const asked = payload.includes(body) ? 'send' : 'route'
      const given = answer(asked, stream, port, socket) ?? answerOf(stream, messageOf(asked, port))
      if (given.length > 0) socket.write(given)
    }
  })
}
