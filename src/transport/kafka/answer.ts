import {
  compressionsAlgorithms,
  GenericError,
  NetworkError,
  Reader,
  type ResponseParser
} from '@platformatic/kafka'
import { Failure } from '../failure.ts'
import { decompress, type Compression } from './decompress.ts'
import { protocolFailure } from '../judged.ts'
import { isError } from '../../runtime/text-of.ts'

/** Values in one answer. The limit bounds the time to read it. A receipt with two headers has eleven values. */
const mostFetched = 200_000
const mostValues = 60_000
const mostUnpacked = 8 << 20
const mostPartitions = 100_000
/** SCRAM iterations. They run on one of four threads, which DNS and files also need. */
const mostIterations = 1_000_000
const [minuteMs, dayMs] = [60_000n, 86_400_000n]

const apis = {
  fetch: 1,
  listOffsets: 2,
  metadata: 3,
  offsetFetch: 9,
  joinGroup: 11,
  syncGroup: 14,
  apiVersions: 18,
  auth: 36
}

/** The remaining limits of the answer that is being read. */
interface Budget {
  values: number
  unpacked: number
}

/** The budget of the answer that is being read, synchronously. Undefined: the client's own decompression is used. */
let reading: Budget | undefined

/**
 * The client's parser, over bytes with bounds checks. It throws only errors of the client's own kind: the client reads members
 * that other errors, such as a TypeError, do not have, and then throws where no code catches it.
 */
export function strictly<Answer>(
  parser: ResponseParser<Answer>,
  use: 'sends' | 'reads'
): ResponseParser<Answer> {
  return (id, api, version, reader) => {
    const budget = { values: api === apis.fetch ? mostFetched : mostValues, unpacked: mostUnpacked }
    reading = budget
    try {
      const answer = parser(id, api, version, readerOf(reader.buffer.slice(reader.position), budget))
      judge(api, answer, budget)
      return answer
    } catch (error) {
      const { response } = error as { response?: Answer }
      if (use === 'sends' && api === apis.metadata && response && hasTopics(response)) {
        return response
      }
      if (isError(error) && GenericError.isGenericError(error)) throw error
      throw expected(error instanceof Failure ? error : protocolFailure('not an answer of Kafka'))
    } finally {
      reading = undefined
    }
  }
}

/** The client takes the error of one partition, as one without a leader, for that of its topic. A reader needs all partitions. */
function hasTopics(response: unknown): boolean {
  const { topics } = response as { topics: { errorCode: number; partitions: { partitionIndex: number }[] }[] }
  return topics.every(
    ({ errorCode, partitions }) =>
      errorCode === 0 && partitions.every(({ partitionIndex: index }) => index >= 0 && index < mostPartitions)
  )
}

/** Wraps a failure in the client's own kind of error. `outcomeOf` finds it again. */
export const expected = (failure: Error): NetworkError =>
  new NetworkError(failure.message, { cause: failure })

/** The part of the client's DynamicBuffer that its Reader uses. No read leaves the bytes, moves backwards or is endless. */
class Bytes {
  readonly #bytes: Buffer
  readonly #budget: Budget

  constructor(bytes: Buffer, budget: Budget) {
    this.#bytes = bytes
    this.#budget = budget
  }

  get length(): number {
    return this.#bytes.length
  }

  #count(): Buffer {
    if (--this.#budget.values < 0) throw protocolFailure('an answer of too many values')
    return this.#bytes
  }

  readUInt8 = (at: number): number => this.#count().readUInt8(at)
  readInt8 = (at: number): number => this.#count().readInt8(at)
  readUInt16BE = (at: number): number => this.#count().readUInt16BE(at)
  readInt16BE = (at: number): number => this.#count().readInt16BE(at)
  readUInt32BE = (at: number): number => this.#count().readUInt32BE(at)
  readInt32BE = (at: number): number => this.#count().readInt32BE(at)
  readBigUInt64BE = (at: number): bigint => this.#count().readBigUInt64BE(at)
  readBigInt64BE = (at: number): bigint => this.#count().readBigInt64BE(at)
  readDoubleBE = (at: number): number => this.#count().readDoubleBE(at)

  slice(start = 0, end = this.length): Buffer {
    const bytes = this.#count()
    if (start < 0 || end < start || end > bytes.length) throw protocolFailure('a length that is not there')
    return bytes.subarray(start, end)
  }

  subarray(start?: number, end?: number): Bytes {
    return new Bytes(this.slice(start, end), this.#budget)
  }

  toString(encoding?: BufferEncoding, start?: number, end?: number): string {
    return this.slice(start, end).toString(encoding)
  }

  readUnsignedVarInt(start: number): [value: number, read: number] {
    const bytes = this.#count()
    let value = 0
    for (let read = 0; read < 5;) {
      const byte = bytes.readUInt8(start + read)
      value |= (byte & 127) << (7 * read++)
      if (byte < 128) return [value >>> 0, read]
    }
    throw protocolFailure('a number without end')
  }

  readUnsignedVarInt64(start: number): [value: bigint, read: number] {
    const bytes = this.#count()
    let value = 0n
    for (let read = 0; read < 10;) {
      const byte = bytes.readUInt8(start + read)
      value += BigInt(byte & 127) << BigInt(7 * read++)
      if (byte < 128) return [value, read]
    }
    throw protocolFailure('a number without end')
  }

  readVarInt(start: number): [value: number, read: number] {
    const [value, read] = this.readUnsignedVarInt(start)
    return [(value >>> 1) ^ -(value & 1), read]
  }

  readVarInt64(start: number): [value: bigint, read: number] {
    const [value, read] = this.readUnsignedVarInt64(start)
    return [(value >> 1n) ^ -(value & 1n), read]
  }
}

const like = (bytes: Buffer, budget: Budget): Reader['buffer'] =>
  new Bytes(bytes, budget) as unknown as Reader['buffer']
const readerOf = (bytes: Buffer, budget: Budget): Reader => new Reader(like(bytes, budget))

/** Checks values that the client uses unchecked, and that would make it hang or fail. */
function judge(api: number, answer: unknown, budget: Budget): void {
  const of = answer as Record<string, unknown> & { members: Record<string, unknown>[] }
  // The client would repeat the request at once, for ever.
  if (api === apis.apiVersions && (of['apiKeys'] as unknown[]).length === 0)
    throw protocolFailure('the broker knows no API')
  // The client makes lists as long as the largest partition number.
  if (api === apis.listOffsets || api === apis.offsetFetch || api === apis.metadata) judgePartitions(answer)
  // The client reads these bytes later, with its own unchecked buffer.
  if (api === apis.syncGroup) of['assignment'] = like(of['assignment'] as Buffer, budget)
  if (api === apis.joinGroup)
    for (const each of of.members)
      if (Buffer.isBuffer(each['metadata'])) each['metadata'] = like(each['metadata'], budget)
  if (api !== apis.auth) return
  const [, iterations = '0'] = /(?:^|,)i=(\d+)/.exec(Buffer.from(of['authBytes'] as Buffer).toString()) ?? []
  if (Number(iterations) > mostIterations)
    throw protocolFailure(`a password of ${mostIterations} rounds and more`)
  const lifetime = of['sessionLifetimeMs'] as bigint
  // A timer of more than 24 days fires at once.
  if (lifetime > 0n)
    of['sessionLifetimeMs'] = lifetime < minuteMs ? minuteMs : lifetime > dayMs ? dayMs : lifetime
}

function judgePartitions(answer: unknown): void {
  type Topics = { topics: { partitions: { partitionIndex: number }[] }[] }
  const { groups, topics } = answer as Partial<Topics> & { groups?: Topics[] }
  let sum = 0
  for (const topic of topics ?? groups?.flatMap(each => each.topics) ?? []) {
    let largest = 0
    for (const { partitionIndex } of topic.partitions) {
      if (partitionIndex < 0) throw protocolFailure('a negative partition number')
      largest = Math.max(largest, partitionIndex + 1)
    }
    sum += largest
  }
  if (sum > mostPartitions) throw protocolFailure('too many partitions')
}

for (const name of ['gzip', 'snappy', 'lz4', 'zstd'] satisfies Compression[]) {
  const algorithm = compressionsAlgorithms[name] as { decompressSync(data: unknown): unknown }
  const original = algorithm.decompressSync
  algorithm.decompressSync = data => {
    if (!reading) return original(data)
    const bytes = decompress(name, data as Buffer, reading.unpacked)
    reading.unpacked -= bytes.length
    return like(bytes, reading)
  }
}
