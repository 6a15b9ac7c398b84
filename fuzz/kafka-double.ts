// A small Kafka broker. It answers the first requests of a client correctly, so that any later answer can be rubbish.
import type { Socket } from 'node:net'
import { createRecordsBatch, Reader, Writer } from '@platformatic/kafka'
import { doubleServer, type Double } from './double.ts'

/** The API of a request, by its number in the protocol. */
export const apis = {
  produce: 0,
  fetch: 1,
  listOffsets: 2,
  metadata: 3,
  offsetCommit: 8,
  offsetFetch: 9,
  findCoordinator: 10,
  joinGroup: 11,
  heartbeat: 12,
  leaveGroup: 13,
  syncGroup: 14,
  apiVersions: 18
} as const

const versions: [api: number, version: number][] = [
  [apis.produce, 9],
  [apis.fetch, 17],
  [apis.listOffsets, 9],
  [apis.metadata, 12],
  [apis.offsetCommit, 9],
  [apis.offsetFetch, 9],
  [apis.findCoordinator, 6],
  [apis.joinGroup, 9],
  [apis.heartbeat, 4],
  [apis.leaveGroup, 5],
  [apis.syncGroup, 5],
  [apis.apiVersions, 3]
]

export const topicId = '11111111-2222-3333-4444-555555555555'
const group = 'ackbox'
const member = 'member-1'

/**
 * The answer of a sound broker, without the length and the id of the request. `fetches` counts the fetches of a connection from 0.
 * `partitions`: those of
 * the topic, or those that a Produce writes to.
 */
export function answerTo(
  api: number,
  topic: string,
  port: number,
  fetches: number,
  partitions: number[] = [0]
): Buffer {
  const writer = Writer.create()
  if (api !== apis.apiVersions) writer.appendTaggedFields()
  switch (api) {
    case apis.apiVersions:
      writer
        .appendInt16(0)
        .appendArray(versions, (w, [key, version]) =>
          w.appendInt16(key).appendInt16(version).appendInt16(version)
        )
        .appendInt32(0)
      break
    case apis.metadata:
      writer
        .appendInt32(0)
        .appendArray([1], w =>
          w.appendInt32(1).appendString('127.0.0.1').appendInt32(port).appendString(null)
        )
        .appendString('cluster')
        .appendInt32(1)
        .appendArray([topic], (w, name) => {
          w.appendInt16(0).appendString(name).appendUUID(topicId).appendBoolean(false)
          w.appendArray(partitions, (w, index) => {
            w.appendInt16(0).appendInt32(index).appendInt32(1).appendInt32(0)
            for (const nodes of [[1], [1], []])
              w.appendArray(nodes, (w, node) => w.appendInt32(node), true, false)
          }).appendInt32(0)
        })
      break
    case apis.produce:
      return produced(
        topic,
        partitions.map(index => [index, 0])
      )
    case apis.findCoordinator:
      writer.appendInt32(0).appendArray([group], (w, key) => {
        w.appendString(key).appendInt32(1).appendString('127.0.0.1').appendInt32(port)
        w.appendInt16(0).appendString(null)
      })
      break
    case apis.joinGroup:
      writer.appendInt32(0).appendInt16(0).appendInt32(1).appendString('consumer').appendString('roundrobin')
      writer.appendString(member).appendBoolean(false).appendString(member)
      writer.appendArray([member], (w, id) => {
        w.appendString(id).appendString(null)
        w.appendBytes(
          Writer.create()
            .appendInt16(0)
            .appendArray([topic], (w, name) => w.appendString(name, false), false, false)
            .appendInt32(0).buffer
        )
      })
      break
    case apis.syncGroup:
      writer
        .appendInt32(0)
        .appendInt16(0)
        .appendString('consumer')
        .appendString('roundrobin')
        .appendBytes(
          Writer.create()
            .appendInt16(0)
            .appendArray(
              [topic],
              (w, name) => {
                w.appendString(name, false).appendArray([0], (w, each) => w.appendInt32(each), false, false)
              },
              false,
              false
            )
            .appendInt32(0).buffer
        )
      break
    case apis.listOffsets:
      writer.appendInt32(0).appendArray([topic], (w, name) =>
        w.appendString(name).appendArray([0], w => {
          w.appendInt32(0).appendInt16(0).appendInt64(-1n).appendInt64(0n).appendInt32(0)
        })
      )
      break
    case apis.offsetFetch:
      writer.appendInt32(0).appendArray([group], (w, id) => {
        w.appendString(id).appendArray([topic], (w, name) =>
          w.appendString(name).appendArray([0], w => {
            w.appendInt32(0).appendInt64(-1n).appendInt32(-1).appendString(null).appendInt16(0)
          })
        )
        w.appendInt16(0)
      })
      break
    case apis.offsetCommit:
      writer
        .appendInt32(0)
        .appendArray([topic], (w, name) =>
          w.appendString(name).appendArray([0], w => w.appendInt32(0).appendInt16(0))
        )
      break
    case apis.fetch:
      return fetched(fetches === 0 ? recordsOf(topic) : undefined)
    case apis.heartbeat:
      writer.appendInt32(0).appendInt16(0)
      break
    case apis.leaveGroup:
      writer
        .appendInt32(0)
        .appendInt16(0)
        .appendArray([], () => {})
      break
  }
  return writer.appendTaggedFields().buffer
}

/** An answer to a Produce, with the error of each partition, or 0. */
export function produced(topic: string, errors: [partition: number, error: number][]): Buffer {
  const writer = Writer.create().appendTaggedFields()
  writer
    .appendArray([topic], (w, name) =>
      w.appendString(name).appendArray(errors, (w, [index, error]) => {
        w.appendInt32(index)
          .appendInt16(error)
          .appendInt64(error === 0 ? 5n : -1n)
        w.appendInt64(-1n).appendInt64(0n)
        w.appendArray([], () => {}).appendString(null)
      })
    )
    .appendInt32(0)
  return writer.appendTaggedFields().buffer
}

/** The partitions that a Produce writes to. */
export function partitionsOf(produce: Buffer): number[] {
  const reader = Reader.from(produce)
  reader.readInt16()
  reader.readInt16()
  reader.readInt32()
  reader.readNullableString(false)
  reader.readTaggedFields()
  reader.readNullableString()
  reader.readInt16()
  reader.readInt32()
  const topics = reader.readArray(r => {
    r.readString()
    return r.readArray(each => {
      const index = each.readInt32()
      each.readBytes()
      return index
    })
  })
  return topics.flat()
}

/** An answer to a Fetch that holds these batches, written as a broker would. */
export function fetched(records?: Buffer): Buffer {
  const writer = Writer.create().appendTaggedFields().appendInt32(0).appendInt16(0).appendInt32(0)
  writer.appendArray([topicId], (w, id) =>
    w.appendUUID(id).appendArray([0], w => {
      w.appendInt32(0).appendInt16(0).appendInt64(1n).appendInt64(1n).appendInt64(0n)
      w.appendArray([], () => {}).appendInt32(-1)
      w.appendUnsignedVarInt((records?.length ?? 0) + 1)
      if (records) w.appendFrom(Writer.create().append(records))
    })
  )
  return writer.appendTaggedFields().buffer
}

export function recordsOf(topic: string, compression?: 'gzip' | 'lz4' | 'snappy', value = '{}'): Buffer {
  const message = { topic, partition: 0, key: undefined, value: Buffer.from(value) }
  const headers = new Map([[Buffer.from('a'), Buffer.from('b')]])
  return createRecordsBatch([{ ...message, headers }] as never, compression ? { compression } : {}).buffer
}

export interface Request {
  api: number
  id: Buffer
  /** The number of the request on this connection, from 0. */
  turn: number
  /** All of it, without its length. */
  bytes: Buffer
}

export const framed = (id: Buffer, answer: Buffer): Buffer => {
  const length = Buffer.alloc(4)
  length.writeInt32BE(4 + answer.length)
  return Buffer.concat([length, id, answer])
}

/** The bytes to send instead of the sound answer. Undefined sends the sound answer. */
export type Answer = (request: Request, sound: Buffer, socket: Socket) => Buffer | undefined

/** Serves until it is closed. It splits requests that come in one packet. */
export async function kafkaDouble(topic: string, answer: Answer, partitions = 1): Promise<Double> {
  const all = Array.from({ length: partitions }, (_, index) => index)
  return await doubleServer((socket, port) => {
    let fetches = 0
    let rest: Buffer = Buffer.alloc(0)
    let turn = 0
    socket.on('data', data => {
      rest = Buffer.concat([rest, data])
      while (rest.length >= 12 && rest.length >= 4 + rest.readInt32BE(0)) {
        const bytes = Buffer.from(rest.subarray(4, 4 + rest.readInt32BE(0)))
        const request = { api: bytes.readInt16BE(0), id: bytes.subarray(4, 8), turn: turn++, bytes }
        rest = rest.subarray(4 + bytes.length)
        const isFetch = request.api === apis.fetch
        const written = request.api === apis.produce ? partitionsOf(bytes) : all
        const sound = framed(request.id, answerTo(request.api, topic, port, isFetch ? fetches++ : 0, written))
        const given = answer(request, sound, socket) ?? sound
        // An empty answer to a fetch comes late, as from a real broker.
        if (isFetch && fetches > 1 && given === sound) setTimeout(() => socket.write(given), 50).unref()
        else if (given.length > 0) socket.write(given)
      }
    })
  })
}
