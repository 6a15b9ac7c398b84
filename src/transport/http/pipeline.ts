import type { Socket } from 'node:net'
import { isHandshakeAlert } from '../../runtime/tls.ts'
import { failed, failureOf, type Failed } from '../failure.ts'

/** A request that is written to a connection and has no complete answer yet. */
export interface Awaiting {
  /** False once the request has ended, so that its answer is no longer needed. */
  readonly isWanted: boolean
  /** More bytes were read for it than an answer may have. */
  flooded(): void
  /** Its connection is lost. The server may have read the request. */
  lost(failure: Failed): void
  /** Ends the connection. */
  cut(): void
}

/** Bytes on the wire for one answer: the body, all headers and everything between them. */
const wireLimit = 262_144

/**
 * One connection and its open requests: one, or several if the downstream allows pipelining (RFC 9112 section 9.3.2). Answers come
 * in the order of the requests and do not identify them.
 */
export class PipelinedConnection {
  /** The remote address of its current or last socket, `ip:port`. */
  address: string | undefined
  readonly #mayShare: boolean
  #awaiting: Awaiting[] = []
  /** `read`: bytes that its socket has read so far. `began`: the same at the start of the current answer. */
  #read = 0
  #began = 0
  #isClosing = false
  #refusal: Failed | undefined
  #socket: Socket | undefined
  #isHeld = false

  /** `mayShare`: requests may be written while earlier ones wait for their answers. */
  constructor(mayShare: boolean) {
    this.#mayShare = mayShare
  }

  /** The connection has a new socket, without open requests. */
  opened(socket: Socket): void {
    this.#socket = socket
    this.#read = this.#began = 0
    this.#isClosing = false
    this.#refusal = undefined
    socket.on('error', (error: NodeJS.ErrnoException) => {
      // undici reports only the last error of a socket: that the other side closed it.
      if (isHandshakeAlert(error.code ?? '')) this.#refusal ??= failureOf(error)
    })
    socket.once('close', () => this.#closed())
  }

  /**
   * A server must not read requests behind an answer with `connection: close` (RFC 9112 section 9.6). undici writes those to the next
   * socket. It would also rewrite other requests, which may have been handled: those count as lost, because an attempt is one send.
   */
  #closed(): void {
    const left = this.#awaiting
    this.#awaiting = []
    if (this.#isClosing) return
    const failure: Failed = this.#refusal ?? failed('connection_closed')
    const lost = this.address === undefined ? failure : { ...failure, address: this.address }
    // One tick later, undici has reported the error of the first request. It reports none if a complete answer ended it (HTTP/1.0, say).
    process.nextTick(() => {
      for (const each of left) each.lost(lost)
    })
  }

  /** The server has refused the TLS handshake of its socket, and read no request of it. */
  get refusal(): Failed | undefined {
    return this.#refusal
  }

  /** Called before a write. All writes of one turn of the event loop leave in one system call: 8 % more tasks a second. */
  written(request: Awaiting): void {
    if (this.#awaiting.push(request) === 1) this.#began = this.#read
    const socket = this.#socket
    if (!this.#mayShare || this.#isHeld || !socket) return
    this.#isHeld = true
    socket.cork()
    process.nextTick(() => {
      this.#isHeld = false
      socket.uncork()
    })
  }

  /** `bytes`: the total read so far. The parser has not seen the last of them yet. */
  onBytes(bytes: number): void {
    this.#read = bytes
    if (bytes - this.#began > wireLimit) this.#awaiting[0]?.flooded()
  }

  /** The current answer is the last one of this socket. */
  closing(): void {
    this.#isClosing = true
  }

  /** An answer is complete. If all remaining requests have ended, the connection is cut: no deadline would ever end it. */
  answered(): void {
    this.#awaiting.shift()
    this.#began = this.#read
    if (this.#awaiting.length > 0 && !this.#awaiting.some(({ isWanted }) => isWanted))
      this.#awaiting[0]?.cut()
  }

  /** Whether more than one answer is still to come. */
  get isShared(): boolean {
    return this.#awaiting.length > 1
  }

  /** Whether the answer of another open request comes first. Then this request must not cut the connection. */
  isBehind(request: Awaiting): boolean {
    const first = this.#awaiting.find(each => each === request || each.isWanted)
    return first !== undefined && first !== request
  }
}
