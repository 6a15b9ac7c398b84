// What a proxy of RocketMQ answers: HTTP/2, gRPC and Protobuf, each changed at any byte.
import fc from 'fast-check'
import { doubleReader } from '../double.ts'
import { flood } from '../hostile-server.ts'
import { bytes, mutated, rubbish, text } from '../mutate.ts'
import { answerOf, frame, greeting, messageOf, rocketmqDouble, type Asked } from '../rocketmq-double.ts'
import { judgeOutcomes, type TransportOptions } from '../subjects/transport.ts'
import type { Outcome } from '../../src/domain/types.ts'

/** Texts are latin1, one character a byte. */
interface Change {
  asked: Asked
  /** message: the Protobuf, framed soundly. frames: bytes as they are, but for the stream. flood: the same without end. */
  as: 'message' | 'frames' | 'flood'
  bytes: string
  end: 'hang' | 'close'
}

interface Input {
  changes: Change[]
}

const body = '{"n":1}'
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

const soundOf = (asked: Asked): string =>
  asked === 'greeting' ? text(greeting) : text(answerOf(stream, messageOf(asked, port)))

const change = fc.constantFrom<Asked>('greeting', 'route', 'route', 'send').chain(asked => {
  const common = { asked: fc.constant(asked), end: fc.constantFrom('hang' as const, 'close' as const) }
  const sound = soundOf(asked)
  const raw = fc.record({ ...common, as: fc.constant('frames' as const), bytes: mutated(sound) })
  const pour = fc.record({
    ...common,
    as: fc.constant('flood' as const),
    bytes: fc.oneof(
      fc.constantFrom(...endless),
      rubbish(64).filter(each => each.length > 0)
    )
  })
  if (asked === 'greeting') return fc.oneof({ weight: 20, arbitrary: raw }, { weight: 1, arbitrary: pour })
  const message = text(messageOf(asked, port))
  const changed = fc.record({ ...common, as: fc.constant('message' as const), bytes: mutated(message) })
  // Many small things, whatever they are taken for.
  const grown = fc
    .tuple(fc.nat(message.length), fc.oneof(fc.constant('\x12\0'), rubbish(12)), fc.nat(400_000))
    .map(([at, part, times]) => {
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

function serve({ changes }: Input): ReturnType<typeof rocketmqDouble> {
  return rocketmqDouble(body, (asked, nth, at, socket) => {
    const change = changes.find(each => each.asked === asked)
    if (!change) return undefined
    if (change.end === 'close') setImmediate(() => socket.end())
    const id = Buffer.alloc(4)
    id.writeUInt32BE(nth)
    const said = change.bytes.replaceAll(portBytes, text(varint(at))).replaceAll(streamBytes, text(id))
    if (change.as === 'message') return answerOf(nth, bytes(said))
    if (change.as === 'frames') return bytes(said)
    setImmediate(() => flood(socket, { flood: said, mb: floodMb }))
    return asked === 'greeting' ? greeting : Buffer.alloc(0)
  })
}

const options: TransportOptions = {
  name: 'rocketmq',
  url: 'rocketmq://127.0.0.1:{port}',
  request: { broker: 'fuzzed', topic: 'orders' }
}

export const reader = doubleReader<Input>({
  name: 'rocketmq',
  module: new URL('../subjects/transport.js', import.meta.url),
  options,
  inputs: fc.array(change, { minLength: 1, maxLength: 2 }).map(changes => ({ changes })),
  serve,
  sound: { changes: [] },
  isSound: outcomes => (outcomes as Outcome[]).some(({ kind }) => kind === 'delivered'),
  judge: outcomes => judgeOutcomes(outcomes as Outcome[]),
  isAlone: ({ changes }) => changes.some(each => each.as === 'flood')
})
