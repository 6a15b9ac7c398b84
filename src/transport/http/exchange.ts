import type { Evidence, Outcome } from '../../domain/types.ts'
import { bytesKept, bytesRead, judgedBy, ReadAnswer } from './answer.ts'
import type { ContentDecoder } from './content-coding.ts'
import { cleaned, hasLongHeader, header, listed, storedHeaders, type RawHeaders } from './headers.ts'
import { retryAfter } from './retry-after.ts'
import type { Due } from '../deadlines.ts'
import { failed, failure, failureOf, type Failed } from '../failure.ts'
import type { Awaiting, PipelinedConnection } from './pipeline.ts'
import type { Carried } from './pools.ts'
import type { Accepted, SendContext } from '../types.ts'

const headerLimit = 16_384
const informationalLimit = 10

export interface ExchangeLimits {
  /** Time for the body, after the headers. */
  bodyMs: number
}

/**
 * One request and its answer, as a handler of undici. It uses the older handler interface on purpose: undici would wrap the newer
 * one in it, and parse headers that are rarely used.
 */
export class Exchange implements Carried, Due, Awaiting {
  connection: PipelinedConnection | undefined
  due: number
  index = -1
  readonly signal: AbortSignal
  readonly #downstream: string
  readonly #accepted: Accepted | undefined
  readonly #limits: ExchangeLimits
  readonly #decoder: ContentDecoder
  #end: ((outcome: Outcome) => void) | undefined
  #abort: ((error?: Error) => void) | undefined
  #isRepeated = false
  #lost: Failed | undefined
  #informational = 0
  #status = 0
  #headers: RawHeaders = []
  #chunks: Buffer[] = []
  /** The body has arrived, and its content codings are not decoded yet. */
  #isDecoding = false
  #read = 0

  constructor(
    context: SendContext,
    accepted: Accepted | undefined,
    limits: ExchangeLimits,
    decoder: ContentDecoder,
    end: (outcome: Outcome) => void
  ) {
    this.due = performance.now() + context.timeoutMs
    this.signal = context.signal
    this.#downstream = context.downstream
    this.#accepted = accepted
    this.#limits = limits
    this.#decoder = decoder
    this.#end = end
  }

  expire(): void {
    const why = this.signal.aborted ? 'shutdown' : this.#abort ? 'timeout' : 'connect_timeout'
    if (this.#isDecoding) this.#finish(this.#judge(Buffer.alloc(0), why), false)
    else if (this.#status) this.#settle(why)
    else if (this.#lost && why === 'timeout') this.#fail(this.#lost)
    else this.#finish(failed(why), why !== 'timeout' || !this.connection?.isBehind(this))
  }

  /**
   * Called before the request is written. An ended request must not be written: it may have ended while it waited for a
   * connection. A request behind an answer with `connection: close` is written again, but only once, since some servers have read
   * it. A throw refuses the write, and the connection stays usable for other requests.
   */
  onConnect(abort: (error?: Error) => void): void {
    if (!this.#end || this.#lost || this.#isRepeated) throw failure('connection_closed')
    this.#isRepeated = this.#abort !== undefined
    this.#abort = abort
    this.connection?.written(this)
  }

  /** undici connects again before it reports the loss. The result of that connect is not the outcome of this request. */
  lost(failure: Failed): void {
    this.#lost = failure
  }

  get isWanted(): boolean {
    return this.#end !== undefined && !this.#isDecoding
  }

  flooded(): void {
    if (this.#status) this.#settle('answer_too_long')
    else this.#fail(failed('headers_too_long'))
    this.cut()
  }

  cut(): void {
    this.#abort?.()
  }

  onHeaders(status: number, raw: RawHeaders): boolean {
    if (status >= 200 && this.connection?.isShared && listed(raw, 'connection').includes('close'))
      this.connection.closing()
    if (!this.#end) return true
    if (status < 200) {
      // Nobody requested another protocol.
      if (status === 101) this.#fail(failed('protocol: 101'))
      if (++this.#informational > informationalLimit) this.#fail(failed('protocol: endless 1xx'))
      return true
    }
    if (hasLongHeader(raw, headerLimit)) {
      this.#fail(failed('headers_too_long'))
      return true
    }
    const headers = cleaned(raw)
    if (!headers) {
      this.#fail(failed('protocol: a control character in a header'))
      return true
    }
    this.#status = status
    this.#headers = headers
    this.due = Math.min(this.due, performance.now() + this.#limits.bodyMs)
    return true
  }

  onData(chunk: Buffer): boolean {
    if (!this.isWanted) return true
    const room = bytesRead - this.#read
    this.#read += chunk.length
    this.#chunks.push(chunk.length > room ? chunk.subarray(0, room) : chunk)
    // On a shared connection the rest is discarded, up to the limit of an answer, since other requests wait for their answers behind it.
    if (this.#read > bytesRead) this.#settle('answer_too_long', !this.connection?.isShared)
    return true
  }

  onComplete(): void {
    this.#settle(undefined)
    this.connection?.answered()
  }

  onError(error: Error): void {
    if (!this.isWanted) return
    const outcome = this.connection?.refusal ?? failureOf(error)
    if (this.#status) this.#settle(outcome.reason)
    else if (this.#lost) this.#fail(this.#lost)
    else this.#fail(this.connection?.address ? { ...outcome, address: this.connection.address } : outcome)
  }

  /** The headers are complete. `broken`: the reason why the body is cut short. */
  #settle(broken: string | undefined, destroy = broken !== undefined): void {
    if (!this.isWanted) return
    const [first = Buffer.alloc(0), ...others] = this.#chunks
    const body = others.length === 0 ? first : Buffer.concat(this.#chunks)
    const codings = body.length === 0 ? [] : listed(this.#headers, 'content-encoding')
    if (codings.length === 0) this.#finish(this.#judge(body, broken), destroy)
    else this.#decode(body, codings, broken, destroy)
  }

  #decode(body: Buffer, codings: string[], broken: string | undefined, destroy: boolean): void {
    this.#isDecoding = true
    this.#chunks = []
    if (destroy) this.cut()
    const by = { downstream: this.#downstream, isWanted: () => this.#end !== undefined }
    void this.#decoder(body, codings, by).then(decoded =>
      this.#finish(this.#judge(decoded.body, broken ?? decoded.broken), false)
    )
  }

  #fail(outcome: Outcome): void {
    this.#finish(outcome, true)
  }

  #finish(outcome: Outcome, destroy: boolean): void {
    const end = this.#end
    if (!end) return
    this.#end = undefined
    this.#chunks = []
    // Destroys the socket: its unread bytes must not be read as the next answer.
    if (destroy) this.cut()
    end(outcome)
  }

  #judge(body: Buffer, broken: string | undefined): Outcome {
    const evidence = this.#evidence(body, broken)
    const is2xx = this.#status < 300
    const answer = this.#accepted && new ReadAnswer(this.#status, this.#headers, body)
    const verdict = this.#accepted && answer ? judgedBy(this.#accepted, answer) : is2xx
    if (typeof verdict === 'object') return this.#failed(verdict.wrong, evidence)
    if (verdict === 'refused')
      return { kind: 'refused', reason: is2xx ? 'not_accepted' : `http_${this.#status}`, ...evidence }
    if (this.#status === 410) return { kind: 'refused', reason: 'http_410', ...evidence }
    // A handler that forgets the status must not turn a 500 into a success.
    if (!is2xx) return this.#failed(`http_${this.#status}`, evidence)
    if (broken && answer?.bodyUsed) return this.#failed(broken, evidence)
    if (verdict !== true) return this.#failed('not_accepted', evidence)
    return header(this.#headers, 'ackbox-result') === 'HANDLED'
      ? { kind: 'delivered', handled: true, ...evidence }
      : { kind: 'delivered', ...evidence }
  }

  #failed(reason: string, evidence: Evidence): Outcome {
    const ms = retryAfter(header(this.#headers, 'retry-after'), header(this.#headers, 'date'), Date.now())
    return ms === undefined
      ? { kind: 'failed', reason, ...evidence }
      : { kind: 'failed', reason, retryAfterMs: ms, ...evidence }
  }

  #evidence(body: Buffer, broken: string | undefined): Evidence {
    const evidence: Evidence = { status: this.#status, headers: storedHeaders(this.#headers) }
    if (body.length > 0) evidence.answer = body.subarray(0, bytesKept)
    if (this.connection?.address) evidence.address = this.connection.address
    if (broken) evidence.warning = broken
    return evidence
  }
}
