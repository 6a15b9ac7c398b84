// Kafka's answers to a client, each of them changed. The broker is a double that parses the requests.
import fc from 'fast-check'
import { doubleReader } from './double.ts'
import { answerTo, apis, framed, kafkaDouble, recordsOf, fetched, type Answer } from './kafka-double.ts'
import { flood } from './hostile-server.ts'
import { bytes, mutated, rubbish, text } from './mutate.ts'
import type { Reader } from './reader.ts'

type Api = keyof typeof apis

/** A change of the answers to one API, from the `from`th request on. Texts are latin1, one character a byte. */
interface Change {
  api: Api
  from: number
  /** body: framed, with the id of the request. frame: unchanged except for the id. flood: repeated without end, up to 160 MB. */
  as: 'body' | 'frame' | 'flood' | 'announced'
  bytes: string
  end: 'hang' | 'close'
}

export interface KafkaInput {
  changes: Change[]
}

export interface KafkaReader {
  name: string
  module: URL
  options: unknown
  topic: string
  /** The APIs whose answers are changed. */
  requests: Api[]
  /** Checks the result of a conversation without changes. */
  isSound(result: unknown): boolean
  judge?(result: unknown): void
}

/** In a recorded answer these four bytes stand for the port, which differs each time. */
const port = 0x7a_7b_7c
const portBytes = text(Buffer.from([0, 0x7a, 0x7b, 0x7c]))
const floodMb = 160

export function kafkaReader(options: KafkaReader): Reader {
  return doubleReader<KafkaInput>({
    ...options,
    inputs: inputs(options),
    sound: { changes: [] },
    serve: input => kafkaDouble(options.topic, answersOf(input)),
    isAlone: ({ changes }) => changes.some(each => each.as === 'flood')
  })
}

function inputs({ topic, requests }: KafkaReader): fc.Arbitrary<KafkaInput> {
  const bodies = (api: Api): string[] => {
    const sound = text(answerTo(apis[api], topic, port, 0))
    if (api !== 'fetch') return [sound]
    const packed = (['gzip', 'lz4', 'snappy'] as const).map(how =>
      text(fetched(recordsOf(topic, how, 'receipt '.repeat(100))))
    )
    return [sound, sound, ...packed]
  }
  const id = Buffer.from('idid')
  const change = fc.constantFrom(...requests).chain(api => {
    const common = {
      api: fc.constant(api),
      from: fc.nat(2),
      end: fc.constantFrom('hang' as const, 'close' as const)
    }
    const frames = bodies(api).map(body => text(framed(id, bytes(body))))
    return fc.oneof(
      {
        weight: 30,
        arbitrary: fc.record({ ...common, as: fc.constant('body' as const), bytes: mutated(...bodies(api)) })
      },
      {
        weight: 10,
        arbitrary: fc.record({ ...common, as: fc.constant('frame' as const), bytes: mutated(...frames) })
      },
      {
        // Many small parts, which the client may read as anything.
        weight: 4,
        arbitrary: fc
          .tuple(fc.constantFrom(...bodies(api)), fc.nat(), rubbish(12), fc.nat(400_000))
          .map(([body, at, part, times]) => {
            const place = at % (body.length + 1)
            const filler = part.repeat(Math.min(times, 1_000_000 / (part.length + 1)))
            return body.slice(0, place) + filler + body.slice(place)
          })
          .chain(grown =>
            fc.record({ ...common, as: fc.constant('body' as const), bytes: fc.constant(grown) })
          )
      },
      {
        weight: 1,
        arbitrary: fc.record({
          ...common,
          as: fc.constantFrom('flood' as const, 'announced' as const),
          bytes: rubbish(64).filter(each => each.length > 0)
        })
      }
    )
  })
  return fc.array(change, { minLength: 1, maxLength: 2 }).map(changes => ({ changes }))
}

/** The answers of one double, as the input changes them. */
function answersOf({ changes }: KafkaInput): Answer {
  const counts = new Map<number, number>()
  return (request, _sound, socket) => {
    const nth = counts.get(request.api) ?? 0
    counts.set(request.api, nth + 1)
    const change = changes.find(each => apis[each.api] === request.api && nth >= each.from)
    if (!change) return undefined
    const raw = bytes(change.bytes.replaceAll(portBytes, text(portOf(socket.localPort ?? 0))))
    if (change.end === 'close') setImmediate(() => socket.end())
    if (change.as === 'body') return framed(request.id, raw)
    if (change.as === 'frame') {
      request.id.copy(raw, Math.min(4, raw.length))
      return raw
    }
    setImmediate(() => flood(socket, { flood: change.bytes, mb: floodMb }))
    // The frame has a length that is allowed, or a length that is not.
    const head = Buffer.from(change.as === 'flood' ? [0, 0x0f, 0xff, 0xff] : [0x7f, 0xff, 0xff, 0xff])
    return Buffer.concat([head, request.id])
  }
}

function portOf(port: number): Buffer {
  const four = Buffer.alloc(4)
  four.writeInt32BE(port)
  return four
}
