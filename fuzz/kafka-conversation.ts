// Kafka's answers to a client, each of them changed: the broker is a double that knows who asked for what.
import fc from 'fast-check'
import { doubleReader } from './double.ts'
import { answerTo, apis, framed, kafkaDouble, recordsOf, fetched, type Answer } from './kafka-double.ts'
import { flood } from './hostile-server.ts'
import { bytes, mutated, rubbish, text } from './mutate.ts'
import type { Reader } from './reader.ts'

type Api = keyof typeof apis

/** What the double says to one API, from the `from`th question on. Texts are latin1, one character a byte. */
interface Change {
  api: Api
  from: number
  /** body: framed, with the id of the question. frame: as it is, but for the id. flood: the same without end, up to 160 MB. */
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
  asked: Api[]
  /** Of a conversation in which nothing is changed. */
  isSound(result: unknown): boolean
  judge?(result: unknown): void
}

/** In a recorded answer these four bytes stand for the port, which is another every time. */
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

function inputs({ topic, asked }: KafkaReader): fc.Arbitrary<KafkaInput> {
  const bodies = (api: Api): string[] => {
    const sound = text(answerTo(apis[api], topic, port, 0))
    if (api !== 'fetch') return [sound]
    const packed = (['gzip', 'lz4', 'snappy'] as const).map(how =>
      text(fetched(recordsOf(topic, how, 'receipt '.repeat(100))))
    )
    return [sound, sound, ...packed]
  }
  const id = Buffer.from('idid')
  const change = fc.constantFrom(...asked).chain(api => {
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
        // Many small things, whatever they are taken for.
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

/** What the input makes of the answers of one double. */
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
    // With a length that is allowed, or with none that is.
    const head = Buffer.from(change.as === 'flood' ? [0, 0x0f, 0xff, 0xff] : [0x7f, 0xff, 0xff, 0xff])
    return Buffer.concat([head, request.id])
  }
}

function portOf(port: number): Buffer {
  const four = Buffer.alloc(4)
  four.writeInt32BE(port)
  return four
}
