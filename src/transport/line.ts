import type { Socket } from 'node:net'

/** What was written to a connection and has no whole answer yet. */
export interface Awaiting {
  /** Somebody still wants its answer. */
  readonly isWanted: boolean
  /** More has been read for it than any answer may have. */
  flooded(): void
  /** Ends the connection. */
  cut(): void
}

/** Of everything on the wire that belongs to one answer: the body, all headers and what lies between them. */
const wireLimit = 262_144

/**
 * One connection and what is under way on it: one request, or several where the downstream allows it (pipelining, RFC 9112
 * section 9.3.2). Answers come in the order of the requests and name none of them.
 */
export class Line {
  /** Where its present or last socket went, `ip:port`. */
  address: string | undefined
  readonly #isShared: boolean
  readonly #awaiting: Awaiting[] = []
  /** Bytes that its socket has read so far, and had when the last answer was whole. */
  #read = 0
  #answeredAt = 0
  #isClosing = false
  #wasClosed = false
  #socket: Socket | undefined
  #isHeld = false

  /** `isShared`: requests are written to it while others wait for their answers. */
  constructor(isShared: boolean) {
    this.#isShared = isShared
  }

  /** It has a new socket, and nothing is under way on that. */
  opened(socket: Socket): void {
    this.#socket = socket
    this.#awaiting.length = 0
    this.#read = this.#answeredAt = 0
    this.#wasClosed = this.#isClosing
    this.#isClosing = false
  }

  /**
   * Whether what was written to its former socket without an answer may be written again: behind an answer with
   * `connection: close` nothing has been read (RFC 9112 section 9.6). Else it may have been, and an attempt is one send.
   */
  get mayRepeat(): boolean {
    return this.#wasClosed
  }

  /** Is about to be. What is written in one go of the process leaves in one system call: 8 % more tasks a second. */
  written(request: Awaiting): void {
    this.#awaiting.push(request)
    const socket = this.#socket
    if (!this.#isShared || this.#isHeld || !socket) return
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
    if (bytes - this.#answeredAt > wireLimit) this.#awaiting[0]?.flooded()
  }

  /** The answer that is being read is the last of this socket. */
  closing(): void {
    this.#isClosing = true
  }

  /** An answer is whole. If only those are left whose answers nobody waits for, no deadline would ever end them. */
  answered(): void {
    this.#awaiting.shift()
    this.#answeredAt = this.#read
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
