import type { Socket } from 'node:net'
import type { Connection } from 'rabbitmq-client'
import { judged, protocolFailure, type Judge } from '../judged.ts'

/** Bytes of a frame before the two sides have agreed on a limit: RabbitMQ's default frame_max. */
const firstMost = 131_072
/** The smallest frame_max that a server may set (AMQP 0-9-1, section 4.2.3). */
const agreedLeast = 4_096
/** Frames without content in one chunk: the client makes one or two promises for each. */
const costlyMost = 1_000

const headBytes = 7
const [method, header, body, heartbeat] = [1, 2, 3, 8]
const frameEnd = 206
const tune = 0x000a_001e
const channelClosed = new Set([0x0014_0028, 0x0014_0029])

/** Whether a message of `bytes` may come, in addition to `coming` bytes of messages that are still incomplete. */
export type MayCome = (bytes: number, coming: number) => boolean

/**
 * Follows the frames by their heads (AMQP 0-9-1, section 2.3). The client holds as many bytes as a frame announces, allocates
 * as many parts as a message announces, and accepts parts of any size.
 */
function frameJudge(agreedMost: number, mayCome: MayCome): Judge {
  /** The bytes that are checked: the head, and the first bytes of a method or of a message's header. */
  const head = Buffer.alloc(headBytes + 12)
  let held = 0
  /** Bytes of the frame still to come, including its end. */
  let left = 0
  let looked = false
  let frameMost = firstMost
  let costly = 0
  let isOther = false
  /** The incomplete message of each channel; `size` is the sum of all their bytes. */
  const coming = new Map<number, { left: number; size: number }>()
  let size = 0

  function began(): void {
    const type = head[0]
    left = head.readUInt32BE(3) + 1
    const isBare = type === heartbeat && left === 1
    const least = type === method ? 4 : type === header ? 14 : 0
    if ((!isBare && type !== method && type !== header && type !== body) || left <= least)
      throw protocolFailure('not AMQP 0-9-1')
    // The header of a message cannot be cut, and may be longer than agreed
    if (headBytes + left > (type === body ? frameMost : firstMost))
      throw protocolFailure(`a frame of ${left - 1} bytes`)
    if (left === 1 && ++costly > costlyMost) throw protocolFailure('frames without content')
    if (type === body) part(head.readUInt16BE(1), left - 1)
    looked = type === heartbeat || type === body
  }

  function part(channel: number, bytes: number): void {
    const message = coming.get(channel)
    if (!message || bytes > message.left) throw protocolFailure('a part of no message')
    message.left -= bytes
    if (message.left === 0) forget(channel)
  }

  function forget(channel: number): void {
    size -= coming.get(channel)?.size ?? 0
    coming.delete(channel)
  }

  /** The first bytes of a method's arguments, or of a message's header. */
  function look(): void {
    looked = true
    const channel = head.readUInt16BE(1)
    if (head[0] === method) {
      const id = head.readUInt32BE(headBytes)
      if (channelClosed.has(id)) forget(channel)
      if (id !== tune) return
      const proposed = head.readUInt32BE(headBytes + 6)
      if (proposed > 0 && proposed < agreedLeast) throw protocolFailure(`frames of at most ${proposed} bytes`)
      frameMost = agreedMost
      return
    }
    const bytes = Number(head.readBigUInt64BE(headBytes + 4))
    if (coming.has(channel)) throw protocolFailure('a message within another')
    if (!mayCome(bytes, size)) throw protocolFailure(`a message of ${bytes} bytes, more than may come`)
    size += bytes
    if (bytes > 0) coming.set(channel, { left: bytes, size: bytes })
  }

  return chunk => {
    costly = 0
    if (isOther) return
    for (let at = 0; at < chunk.length;) {
      if (held < headBytes) {
        head[held++] = chunk[at++] ?? 0
        // The answer of a server of another version. The client reports it.
        isOther = held === 4 && head.toString('latin1', 0, 4) === 'AMQP'
        if (isOther) return
        if (held === headBytes) began()
      } else if (!looked) {
        // A method may have fewer bytes than `head` holds.
        head[held++] = chunk[at++] ?? 0
        left--
        if (held === head.length || left === 1) look()
      } else {
        const taken = Math.min(left, chunk.length - at)
        at += taken
        left -= taken
        if (left > 0) continue
        if (chunk[at - 1] !== frameEnd) throw protocolFailure('a frame that does not end')
        held = 0
      }
    }
  }
}

/** The client has no options for these limits, so its socket is judged. */
export function bounded(connection: Connection, mayCome: MayCome): Connection {
  const { _socket: socket, _opt: options } = connection as unknown as {
    _socket?: Socket
    _opt?: { frameMax?: number }
  }
  if (!socket || !options?.frameMax)
    throw new Error('rabbitmq-client has changed: a frame could be of any size')
  judged(socket, frameJudge(options.frameMax, mayCome))
  return connection
}
