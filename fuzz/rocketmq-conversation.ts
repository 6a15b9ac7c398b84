// The answers of a RocketMQ proxy to a client: HTTP/2, gRPC and Protobuf, each changed at any byte.
import fc from 'fast-check'
import { doubleReader } from './double.ts'
import { flood } from './hostile-server.ts'
import { bytes, mutated, rubbish, text } from './mutate.ts'
import type { Reader } from './reader.ts'
import {
  answerOf,
  begunOf,
  frame,
  greeting,
  messageFrame,
  messagesOf,
  rocketmqDouble,
  type Asked
} from './rocketmq-double.ts'

/** Texts are latin1, one character a byte. */
interface Change {
  asked: Asked
  /** message: the Protobuf, framed correctly. frames: bytes, unchanged except for the stream. flood: repeated without end. */
  as: 'message' | 'frames' | 'flood'
  bytes: string
  end: 'hang' | 'close'
}

export interface RocketmqInput {
  changes: Change[]
}

export interface RocketmqReader {
  name: string
  module: URL
  options: unknown
  /** The requests whose answers are changed. A request that is listed twice is changed twice as often. */
  requests: Asked[]
  /** Protobuf messages that are repeated without end instead of an answer, in addition to the common floods. */
  floods?: Buffer[]
  /** Checks the result of a conversation without changes. */
  isSound(result: unknown): boolean
  judge?(result: unknown): void
}

const floodMb = 160
/** These stand for the port, as a varint of three bytes, and for the stream, which the client numbers. */
const port = 0x7a7b
const stream = 0x7a7b7c
const portBytes = text(varint(port))
const streamBytes = text(Buffer.from([0, 0x7a, 0x7b, 0x7c]))

function varint(value: number): Buffer {
  return Buffer.from([(value & 127) | 128, ((value >> 7) & 127) | 128, value >> 14])
}

const endless = [
  frame(6, 0, 0, Buffer.alloc(8)),
  frame(4, 0, 0, Buffer.alloc(0)),
  frame(4, 0, 0, Buffer.from([0, 1, 0, 0, 0, 0])),
  frame(0, 0, stream, Buffer.alloc(5)),
  frame(0, 0, stream, Buffer.alloc(0)),
  frame(0, 0, stream, Buffer.from([0, 0xff, 0xff, 0xff, 0xff])),
  frame(1, 4, stream, Buffer.from([0x88])),
  frame(1, 0, stream, Buffer.from([0, 1, 120, 1, 121])),
  frame(9, 0, stream, Buffer.from([0, 1, 120, 1, 121])),
  frame(3, 0, stream, Buffer.alloc(4)),
  frame(8, 0, 0, Buffer.from([0, 0, 0, 1])),
  frame(2, 0, stream, Buffer.alloc(5)),
  frame(5, 4, stream, Buffer.from([0, 0, 0, 2, 0x88])),
  frame(7, 0, 0, Buffer.alloc(8))
].map(text)

const soundOf = (asked: Asked): string => {
  if (asked === 'greeting') return text(greeting)
  const messages = messagesOf(asked, port)
  return text(asked === 'session' ? begunOf(stream, messages) : answerOf(stream, ...messages))
}

const changeOf = ({ requests, floods = [] }: RocketmqReader): fc.Arbitrary<Change> => {
  const poured = [...endless, ...floods.map(each => text(messageFrame(stream, each)))]
  return fc.constantFrom(...requests).chain(asked => {
    const common = { asked: fc.constant(asked), end: fc.constantFrom('hang' as const, 'close' as const) }
    const raw = fc.record({ ...common, as: fc.constant('frames' as const), bytes: mutated(soundOf(asked)) })
    const pour = fc.record({
      ...common,
      as: fc.constant('flood' as const),
      bytes: fc.oneof(
        fc.constantFrom(...poured),
        rubbish(64).filter(each => each.length > 0)
      )
    })
    if (asked === 'greeting') return fc.oneof({ weight: 20, arbitrary: raw }, { weight: 1, arbitrary: pour })
    const messages = messagesOf(asked, port).map(text)
    const changed = fc.record({
      ...common,
      as: fc.constant('message' as const),
      bytes: mutated(...messages)
    })
    // Many small parts, which the client may read as anything.
    const grown = fc
      .tuple(
        fc.constantFrom(...messages),
        fc.nat(1_000),
        fc.oneof(fc.constant('\x12\0'), rubbish(12)),
        fc.nat(400_000)
      )
      .map(([message, place, part, times]) => {
        const at = place % (message.length + 1)
        const filler = part.repeat(Math.min(times, 4_100_000 / (part.length + 1)))
        return message.slice(0, at) + filler + message.slice(at)
      })
      .chain(all => fc.record({ ...common, as: fc.constant('message' as const), bytes: fc.constant(all) }))
    return fc.oneof(
      { weight: 20, arbitrary: raw },
      { weight: 20, arbitrary: changed },
      { weight: 2, arbitrary: grown },
      { weight: 1, arbitrary: pour }
    )
  })
}

function serve({ changes }: RocketmqInput): ReturnType<typeof rocketmqDouble> {
  return rocketmqDouble((asked, nth, at, socket) => {
    const change = changes.find(each => each.asked === asked)
    if (!change) return undefined
    if (change.end === 'close') setImmediate(() => socket.end())
    const id = Buffer.alloc(4)
    id.writeUInt32BE(nth)
    const changed = change.bytes.replaceAll(portBytes, text(varint(at))).replaceAll(streamBytes, text(id))
    if (change.as === 'message')
      return asked === 'session' ? begunOf(nth, [bytes(changed)]) : answerOf(nth, bytes(changed))
    if (change.as === 'frames') return bytes(changed)
    setImmediate(() => flood(socket, { flood: changed, mb: floodMb }))
    return asked === 'greeting' ? greeting : begunOf(nth, [])
  })
}

export function rocketmqReader(options: RocketmqReader): Reader {
  return doubleReader<RocketmqInput>({
    ...options,
    inputs: fc.array(changeOf(options), { minLength: 1, maxLength: 2 }).map(changes => ({ changes })),
    serve,
    sound: { changes: [] },
    isAlone: ({ changes }) => changes.some(each => each.as === 'flood')
  })
}
