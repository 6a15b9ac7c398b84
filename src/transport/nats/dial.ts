import { createRequire } from 'node:module'
import type { Socket } from 'node:net'
import { Failure } from '../failure.ts'
import { judged, patience, protocolFailure, type Judge } from '../judged.ts'

interface Dialing {
  socket?: Socket
  options: Options
  done: boolean
  dial(place: unknown): Promise<Socket>
  tlsFirst(place: unknown): Promise<Socket>
  startTLS(): Promise<Socket>
  disconnect(): void
}
/** One connection attempt. It ends later than that of the client's transport: with the server's first PONG. */
export interface Dial {
  signal: AbortSignal
  /** Bytes of one message, including its headers. */
  messageMost: number
}
interface Options {
  /** Our own option. The client passes on every option that it does not know. */
  dialing?: Dial
}
interface Parser {
  dispatcher: { transport: { isClosed: boolean; close(error: unknown): Promise<void> } }
  parse(bytes: Uint8Array): void
}

/** Bytes of a line. INFO is the longest, with the addresses of a cluster; a server limits other lines to 4,096. */
const lineMost = 65_536
/** PINGs and errors in a row: each costs an answer or an Error. A thousand sends may be denied at once. */
const costlyMost = 1_500
const isControl = /^(?:(?:INFO|-ERR)[ \t]|(?:PING|PONG|\+OK)[ \t]*$)/i
/** `MSG subject sid [reply] bytes` and `HMSG subject sid [reply] bytes-of-headers bytes`. */
const isMessage =
  /^(?:MSG[ \t]+\S+[ \t]+\d+(?:[ \t]+\S+)?|HMSG[ \t]+\S+[ \t]+\d+(?:[ \t]+\S+)?[ \t]+\d+)[ \t]+(\d{1,10})[ \t]*$/i

/** Follows the lines of https://docs.nats.io/reference/reference-protocols/nats-protocol, and skips the announced messages. */
function natsJudge(socket: Socket, messageMost: number): Judge {
  const asks = patience()
  /** The bytes of a line that is not complete yet. */
  let held = Buffer.alloc(0)
  /** Bytes of a message still to come, including the CR LF behind it. */
  let skip = 0
  let costly = 0

  function line(text: string): void {
    const bytes = isMessage.exec(text)?.[1]
    if (bytes === undefined && !isControl.test(text)) throw protocolFailure('not NATS')
    const costs = bytes === undefined && /^(?:PING|-ERR)/i.test(text)
    costly = costs ? costly + 1 : 0
    if (costly > costlyMost) throw protocolFailure('nothing but PING and -ERR')
    if (/^PING/i.test(text)) asks(socket)
    if (bytes === undefined) return
    if (Number(bytes) > messageMost)
      throw protocolFailure(`a message of ${bytes} bytes, at most ${messageMost} are read`)
    skip = Number(bytes) + 2
  }

  return chunk => {
    for (let at = 0; at < chunk.length;) {
      if (skip > 0) {
        const taken = Math.min(skip, chunk.length - at)
        skip -= taken
        at += taken
        // The client would continue behind the next line feed, wherever that is.
        if (skip === 0 && chunk[at - 1] !== 10) throw protocolFailure('a message that is longer than it says')
        continue
      }
      const end = chunk.indexOf(10, at)
      const part = chunk.subarray(at, end < 0 ? chunk.length : end)
      if (held.length + part.length > lineMost) throw protocolFailure(`a line of more than ${lineMost} bytes`)
      if (held.length === 0 && end >= 0) line(trimmed(part))
      else if (end < 0) held = Buffer.concat([held, part])
      else {
        line(trimmed(Buffer.concat([held, part])))
        held = Buffer.alloc(0)
      }
      at = end < 0 ? chunk.length : end + 1
    }
  }
}

const trimmed = (line: Buffer): string =>
  line.toString('latin1', 0, line[line.length - 1] === 13 ? line.length - 1 : line.length)

/**
 * Patches three cases for which the client has no options. A server accepts a connection and sends nothing: the client forgets the
 * socket after its timeout, and each try leaves one more socket open for as long as the server keeps it. A server speaks another
 * protocol: the client prints the bytes that it cannot read, and holds everything that follows. A server hangs: after its last
 * unanswered ping the client waits until everything is written, so for ever, and its connection never ends.
 */
export function ownDial(): void {
  const inside = createRequire(import.meta.resolve('@nats-io/transport-node'))
  const { NodeTransport } = inside('./lib/node_transport.js') as { NodeTransport?: { prototype: Connecting } }
  const { Parser } = inside('@nats-io/nats-core/internal') as { Parser?: { prototype: Parser } }
  const { connect, dial, tlsFirst, startTLS, disconnect } = NodeTransport?.prototype ?? {}
  const parse = Parser?.prototype.parse
  if (!NodeTransport || !Parser || !connect || !dial || !tlsFirst || !startTLS || !disconnect || !parse)
    throw new Error('@nats-io/transport-node has changed: sockets could be left open')

  const watched = (socket: Socket, { dialing }: Options): Socket =>
    dialing ? judged(socket, natsJudge(socket, dialing.messageMost)) : socket
  NodeTransport.prototype.dial = async function (place) {
    return watched(await dial.call(this, place), this.options)
  }
  NodeTransport.prototype.tlsFirst = async function (place) {
    return watched(await tlsFirst.call(this, place), this.options)
  }
  NodeTransport.prototype.startTLS = async function () {
    return watched(await startTLS.call(this), this.options)
  }
  NodeTransport.prototype.connect = async function (place, options) {
    const giveUp = (): void => {
      this.done = true
      this.socket?.destroy()
    }
    options.dialing?.signal.addEventListener('abort', giveUp, { once: true })
    await connect.call(this, place, options)
  }
  NodeTransport.prototype.disconnect = function () {
    this.socket?.destroy()
  }
  Parser.prototype.parse = function (bytes) {
    const { transport } = this.dispatcher
    if (transport.isClosed) return
    try {
      parse.call(this, bytes)
    } catch (error) {
      void transport.close(error instanceof Failure ? error : protocolFailure('the client cannot read it'))
    }
  }
}

type Connecting = Dialing & { connect(this: Dialing, place: unknown, options: Options): Promise<void> }
