import type { Socket } from 'node:net'

/** What was written to a connection and has no whole answer yet. */
export interface Awaiting {
  /** Somebody still wants its answer. */
  readonly isWanted: boolean
  /** More has been read for it than any answer may have. */
  flooded(): void
  /** Its connection, to this address, is gone, and it may have been read. */
  lost(address: string | undefined): void
  /** Ends the connection. */
  cut(): void
}

/** Of everything on the wire that belongs to one answer: the body, all headers and what lies between them. */
const wireLimit = 262_144

/**
 * One connection and what is under way on it: one request, or several where the downstream allows it (pipelining, RFC 9112
 * section 9.3.2). Answers come in the order of the requests and name none of them.
 */
export class PipelinedConnection {
  /** Where its present or last socket went, `ip:port`. */
  address: string | undefined
  readonly #mayShare: boolean
  #awaiting: Awaiting[] = []
  /** Bytes that its socket has read so far, and had when the answer that is awaited could begin. */
  #read = 0
  #began = 0
  #isClosing = false
  #socket: Socket | undefined
  #isHeld = false

  /** `mayShare`: requests are written to it while others wait for their answers. */
  constructor(mayShare: boolean) {
    this.#mayShare = mayShare
  }

  /** It has a new socket, and nothing is under way on that. */
  opened(socket: Socket): void {
    this.#socket = socket
    this.#read = this.#began = 0
    this.#isClosing = false
    socket.once('close', () => this.#closed())
  }

  /**
   * What stood behind an answer with `connection: close` was not to be read (RFC 9112 section 9.6): undici writes it to the next
   * socket. The rest it would write again too, and may have been handled: an attempt is one send.
   */
  #closed(): void {
    const left = this.#awaiting
    this.#awaiting = []
    if (this.#isClosing) return
    const { address } = this
    // By then undici has said what became of the first; unless a whole answer ended it, one of HTTP/1.0, say: then it says nothing.
    process.nextTick(() => {
      for (const one of left) one.lost(address)
    })
  }

  /** Is about to be. What is written in one go of the process leaves in one system call: 8 % more tasks a second. */
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

  /** `bytes` have come in all, and no parser has seen the last of them yet. */
  onBytes(bytes: number): void {
    this.#read = bytes
    if (bytes - this.#began > wireLimit) this.#awaiting[0]?.flooded()
  }

  /** The answer that is being read is the last of this socket. */
  closing(): void {
    this.#isClosing = true
  }

  /** An answer is whole. If only those are left whose answers nobody waits for, no deadline would ever end them. */
  answered(): void {
    this.#awaiting.shift()
    this.#began = this.#read
    if (this.#awaiting.length > 0 && !this.#awaiting.some(({ isWanted }) => isWanted))
      this.#awaiting[0]?.cut()
  }

  /** Whether more than one answer is owed. */
  get isShared(): boolean {
    return this.#awaiting.length > 1
  }

  /** Whether another is answered first, and wanted: then the connection is none of this one's business. */
  isBehind(request: Awaiting): boolean {
    const first = this.#awaiting.find(each => each === request || each.isWanted)
    return first !== undefined && first !== request
  }
}
