import { createRequire } from 'node:module'
import type { Socket } from 'node:net'
import type { AbstractConnector, RedisOptions } from 'ioredis'
import { Failure } from './failure.ts'
import { judged, protocolFailure, type Judge } from './judged.ts'

// The replies that a Redis may send. RESP2 and RESP3: https://redis.io/docs/latest/develop/reference/protocol-spec/

/** The limits of one reply. */
export interface ReplyLimits {
  bytes: number
  /** In all its lists together. */
  items: number
}

const depthMost = 16
/** Bytes of a line: a status, an error, a number, a length. */
const lineMost = 65_536
/** Chunks of one reply: each chunk is held by itself. */
const piecesMost = 16_384
const cr = 13
const lf = 10
const code = (character: string): number => character.charCodeAt(0)
/** The kind of a value, by its first byte. A push has none: this process subscribes to nothing. */
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
 * Follows the replies by their headers, and skips the announced bytes. It is stricter than the client, so that both read an
 * accepted reply in the same way.
 */
function replyJudge({ bytes: bytesMost, items: itemsMost }: ReplyLimits): Judge {
  /** The number of items still to come, for each open list. */
  const open: number[] = []
  /** The kind of the current value; 0 between two values. */
  let kind = 0
  let type = 0
  /** Bytes of the current line so far, without its end. */
  let length = 0
  let first = 0
  let value = 0
  let afterCr = false
  /** Bytes of a blob still to come, including the CR LF behind it. */
  let skip = 0
  let bytes = 0
  let items = 0
  let pieces = 0

  /** A value is complete. It may also complete the lists around it. */
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
    if (kind === 0) throw protocolFailure('not a reply of Redis')
    type = byte
    length = value = first = 0
    afterCr = false
  }

  /** The line of the value is complete. */
  function line(): void {
    if (kind === simple) return ended()
    if (kind === nothing || kind === truth) {
      if (length !== (kind === truth ? 1 : 0)) throw protocolFailure('not a reply of Redis')
      return ended()
    }
    const isNull = first === code('-') && length === 2 && value === 1
    if (isNull && (type === code('$') || type === code('*'))) return ended()
    if (length === 0 || first === code('-')) throw protocolFailure('an invalid length')
    if (kind === blob) {
      if (type === code('=') && value < 4) throw protocolFailure('not a reply of Redis')
      if (bytes + value > bytesMost) throw protocolFailure(`a reply of more than ${bytesMost} bytes`)
      skip = value + 2
      return
    }
    const count = kind === map ? 2 * value : value
    items += count
    if (items > itemsMost) throw protocolFailure(`a reply of more than ${itemsMost} items`)
    if (count === 0) return ended()
    if (open.length === depthMost) throw protocolFailure(`lists within one another, more than ${depthMost}`)
    open.push(count)
    kind = 0
  }

  function lineByte(byte: number): void {
    if (afterCr) {
      if (byte !== lf) throw protocolFailure('a line that does not end')
      return line()
    }
    if (byte === cr) {
      afterCr = true
      return
    }
    if (byte === lf) throw protocolFailure('a line that does not end')
    if (++length > lineMost) throw protocolFailure(`a line of more than ${lineMost} bytes`)
    if (length === 1) first = byte
    if (kind !== blob && kind !== list && kind !== map) return
    if (byte >= 48 && byte <= 57 && length <= 12) value = 10 * value + byte - 48
    else if (byte !== code('-') || length > 1) throw protocolFailure('an invalid length')
  }

  return chunk => {
    if (++pieces > piecesMost) throw protocolFailure(`a reply in more than ${piecesMost} pieces`)
    for (let at = 0; at < chunk.length;) {
      if (skip > 0) {
        const taken = Math.min(skip, chunk.length - at)
        // A blob must end with CR LF, or the client and this judge would continue at different places.
        for (let i = Math.max(0, skip - 2); i < taken; i++) {
          if (chunk[at + i] !== (skip - i === 2 ? cr : lf)) throw protocolFailure('a blob that does not end')
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
      if (bytes > bytesMost) throw protocolFailure(`a reply of more than ${bytesMost} bytes`)
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

// The client throws an error about a reply again in the next tick, where no code catches it: a null without a request would end
// the process. Such an error ends only the connection.
DataHandler.prototype.dispatch = function (work) {
  const { stream } = this.redis
  if (stream.destroyed) return
  try {
    work()
  } catch (error) {
    stream.destroy(error instanceof Failure ? error : protocolFailure('the client cannot read it'))
  }
}
DataHandler.prototype.shiftCommand = function (reply) {
  if (this.redis.commandQueue.length === 0) throw protocolFailure('a reply without a request')
  return shift.call(this, reply)
}

/** Client options that hold its connections, and those of its copies, to these limits. */
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
