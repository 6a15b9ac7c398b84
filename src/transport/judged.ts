import type { Socket } from 'node:net'
import { Failure, failure } from './failure.ts'

/** Checks every byte that a server sends, in order. Throws a Failure on bytes that no server may send. */
export type Judge = (bytes: Buffer) => void

/** The Failure that a judge throws: the connection cannot be trusted any more. */
export const protocolFailure = (what: string): Failure => failure(`protocol: ${what}`)

/** Chunks of at least this size are read one in each turn of the event loop: otherwise Node would read 2 MB in one turn. */
const turnMost = 16_384

/**
 * Judges the bytes of a socket before the client library gets them. Client libraries allocate any length that a server announces,
 * and throw where no code catches the error. An exception of the client while it reads these bytes is caught here too. Both end
 * only the connection, not the process.
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
      socket.destroy(error instanceof Failure ? error : protocolFailure('the client cannot read it'))
      return false
    }
  }

  function next(): void {
    give(waiting.shift() ?? null)
    if (waiting.length > 0) setImmediate(next)
  }

  socket.push = (bytes: Buffer | null): boolean => {
    if (waiting.length === 0 && (bytes === null || bytes.length < turnMost)) return give(bytes)
    // Node stops reading at this `false`, and continues when the chunk is pushed.
    if (waiting.push(bytes) === 1) setImmediate(next)
    return false
  }
  return socket
}

/** Bytes of our answers that may wait for a server that does not read them. */
const unreadMost = 65_536

/**
 * Throws when a server requests more answers (PONG, heartbeat) without reading the earlier ones: each waits in our memory.
 * Some requests are allowed, since the server may only be slow to read our own messages.
 */
export function patience(): (socket: Socket) => void {
  let unread = 0
  return socket => {
    if (socket.writableLength < unreadMost) unread = 0
    else if (++unread > 1_000) throw protocolFailure('requests without reading the answers')
  }
}
