import type { Socket } from 'node:net'
import { Failure, failure } from './failure.ts'

/** Looks at every byte that a server sends, in order. Throws a Failure on what no server may send. */
export type Judge = (bytes: Buffer) => void

/** What a judge throws: the connection cannot be trusted any more. */
export const unfit = (what: string): Failure => failure(`protocol: ${what}`)

/** Chunks from this size on are read one in each turn of the event loop: Node would read 2 MB in one. */
const turnMost = 16_384

/**
 * The socket, whose bytes are judged before any client sees them: client libraries hold what a length says, however much that
 * is, and throw where nobody catches. What a client throws over these bytes while it reads them is caught here too. Either
 * ends the connection and nothing else.
 */
export function judged<S extends Socket>(socket: S, judge: Judge): S {
  const push = socket.push.bind(socket)
  const waiting: (Buffer | null)[] = []

  function give(bytes: Buffer | null): boolean {
    if (socket.destroyed) return false
    try {
      if (bytes !== null) judge(bytes)
      return push(bytes)
    } catch (error) {
      // The client may have removed its listener just now: an 'error' without a listener ends the process.
      socket.on('error', () => {})
      socket.destroy(error instanceof Failure ? error : unfit('the client cannot read it'))
      return false
    }
  }

  function next(): void {
    give(waiting.shift() ?? null)
    if (waiting.length > 0) setImmediate(next)
  }

  socket.push = (bytes: Buffer | null): boolean => {
    if (waiting.length === 0 && (bytes === null || bytes.length < turnMost)) return give(bytes)
    // Node stops to read at this `false`, and reads on when the chunk is given
    if (waiting.push(bytes) === 1) setImmediate(next)
    return false
  }
  return socket
}

/** Answers of ours that wait for a server that asks on and does not read them. */
const unreadMost = 65_536

/**
 * Throws when a server asks for one more answer, a PONG or a heartbeat's, while it has not read those before: each waits in
 * our memory. A connection that is behind with what we send by ourselves may ask a few times.
 */
export function patience(): (socket: Socket) => void {
  let asked = 0
  return socket => {
    if (socket.writableLength < unreadMost) asked = 0
    else if (++asked > 1_000) throw unfit('asks on and reads no answer')
  }
}
