import { createRequire } from 'node:module'
import type { Socket } from 'node:net'
import type { AbstractConnector, RedisOptions } from 'ioredis'
import { Failure } from './failure.ts'
import { judged, unfit, type Judge } from './judged.ts'

// What a Redis may answer. RESP2 and RESP3: https://redis.io/docs/latest/develop/reference/protocol-spec/

/** Of one reply. */
export interface ReplyLimits {
  bytes: number
  /** Of all lists in it together. */
  items: number
}

const depthMost = 16
/** Of what is read up to its end: a status, an error, a number, a length. */
const lineMost = 65_536
/** Each piece that a reply arrives in is held by itself. */
const piecesMost = 16_384
const cr = 13
const lf = 10
const code = (character: string): number => character.charCodeAt(0)
/** By the byte that a value begins with. A push is none of them: nobody here subscribes to anything. */
const kinds = new Uint8Array(256)
const [simple, blob, list, map, nothing, truth] = [1, 2, 3, 4, 5, 6]
for (const [characters, kind] of [
  ['+-:,(', simple],
  ['$=!', blob],
  ['*~', list],
  ['%', map],
  ['_', nothing],
  ['#', truth]
] as const) {
  for (const each of characters) kinds[code(each)] = kind ?? 0
}

/**
 * Follows the replies by their headers, and skips what these say that comes. Stricter than the client: what it takes, both
 * read alike.
 */
function replyJudge({ bytes: bytesMost, items: itemsMost }: ReplyLimits): Judge {
  /** Items still to come of each list that is open. */
  const open: number[] = []
  /** Of the value that began; 0 between two. */
  let kind = 0
  let type = 0
  /** Of the line that began, without its end. */
  let length = 0
  let first = 0
  let value = 0
  let afterCr = false
  /** Bytes of a blob still to come, with the two behind it. */
  let skip = 0
  let bytes = 0
  let items = 0
  let pieces = 0

  /** A value is whole, and with it perhaps the lists that it closes. */
  function ended(): void {
    kind = 0
    while (open.length > 0) {
      const left = (open.pop() ?? 0) - 1
      if (left > 0) return void open.push(left)
    }
    bytes = items = pieces = 0
  }

  function began(byte: number): void {
    kind = kinds[byte] ?? 0
    if (kind === 0) throw unfit('not a reply of Redis')
    type = byte
    length = value = first = 0
    afterCr = false
  }

  /** Its line is whole. */
  function line(): void {
    if (kind === simple) return ended()
    if (kind === nothing || kind === truth) {
      if (length !== (kind === truth ? 1 : 0)) throw unfit('not a reply of Redis')
      return ended()
    }
    const isNull = first === code('-') && length === 2 && value === 1
    if (isNull && (type === code('$') || type === code('*'))) return ended()
    if (length === 0 || first === code('-')) throw unfit('a length that is none')
    if (kind === blob) {
      if (type === code('=') && value < 4) throw unfit('not a reply of Redis')
      if (bytes + value > bytesMost) throw unfit(`a reply of more than ${bytesMost} bytes`)
      skip = value + 2
      return
    }
    const count = kind === map ? 2 * value : value
    items += count
    if (items > itemsMost) throw unfit(`a reply of more than ${itemsMost} items`)
    if (count === 0) return ended()
    if (open.length === depthMost) throw unfit(`lists within one another, more than ${depthMost}`)
    open.push(count)
    kind = 0
  }

  function lineByte(byte: number): void {
    if (afterCr) {
      if (byte !== lf) throw unfit('a line that does not end')
      return line()
    }
    if (byte === cr) {
      afterCr = true
      return
    }
    if (byte === lf) throw unfit('a line that does not end')
    if (++length > lineMost) throw unfit(`a line of more than ${lineMost} bytes`)
    if (length === 1) first = byte
    if (kind !== blob && kind !== list && kind !== map) return
    if (byte >= 48 && byte <= 57 && length <= 12) value = 10 * value + byte - 48
    else if (byte !== code('-') || length > 1) throw unfit('a length that is none')
  }

  return chunk => {
    if (++pieces > piecesMost) throw unfit(`a reply in more than ${piecesMost} pieces`)
    for (let at = 0; at < chunk.length;) {
      if (skip > 0) {
        const taken = Math.min(skip, chunk.length - at)
        // The two bytes behind a blob are its end, or the client and we read on at different places.
        for (let i = Math.max(0, skip - 2); i < taken; i++) {
          if (chunk[at + i] !== (skip - i === 2 ? cr : lf)) throw unfit('a blob that does not end')
        }
        skip -= taken
        at += taken
        bytes += taken
        if (skip === 0) ended()
      } else {
        const byte = chunk[at++] ?? 0
        bytes++
        if (kind === 0) began(byte)
        else lineByte(byte)
      }
      if (bytes > bytesMost) throw unfit(`a reply of more than ${bytesMost} bytes`)
    }
  }
}

interface Handler {
  redis: { stream: Socket; commandQueue: { length: number } }
  dispatch(work: () => void): void
  shiftCommand(reply: unknown): unknown
}
type Emit = Parameters<AbstractConnector['connect']>[0]
interface Dialer extends AbstractConnector {
  connect(emit: Emit): Promise<Socket>
}
type ConnectorClass = new (options: unknown) => Dialer
const inside = createRequire(import.meta.resolve('ioredis'))
const { default: Connector } = inside('./connectors/StandaloneConnector.js') as { default?: ConnectorClass }
const { default: SentinelConnector } = inside('./connectors/SentinelConnector/index.js') as {
  default?: ConnectorClass
}
const { default: DataHandler } = inside('./DataHandler.js') as { default?: { prototype: Handler } }
const shift = DataHandler?.prototype.shiftCommand
if (!Connector || !SentinelConnector || !DataHandler || !shift || !('dispatch' in DataHandler.prototype))
  throw new Error('ioredis has changed: a reply could end the process')

// What the client throws over a reply it throws again in the next tick, where nobody catches: a null that nobody asked for
// ends the process. It is the connection's.
DataHandler.prototype.dispatch = function (work) {
  const { stream } = this.redis
  if (stream.destroyed) return
  try {
    work()
  } catch (error) {
    stream.destroy(error instanceof Failure ? error : unfit('the client cannot read it'))
  }
}
DataHandler.prototype.shiftCommand = function (reply) {
  if (this.redis.commandQueue.length === 0) throw unfit('a reply that nobody asked for')
  return shift.call(this, reply)
}

/** For the options of a client: its connections, and those of its copies, are held to these limits. */
export const withinLimits = (
  limits: ReplyLimits,
  kind: 'server' | 'sentinel' = 'server'
): Pick<RedisOptions, 'Connector'> => ({
  Connector: class extends (kind === 'sentinel' ? SentinelConnector : Connector) {
    override async connect(emit: Emit) {
      return judged(await super.connect(emit), replyJudge(limits))
    }
  }
})
