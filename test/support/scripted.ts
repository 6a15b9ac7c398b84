// A downstream whose answers the test sets. It records the requests that it received.
import { EventEmitter, once } from 'node:events'
import type { Outcome } from '../../src/domain/types.ts'
import type { Accepted, SendContext, Transport } from '../../src/transport/types.ts'

/** A request as it reached the downstream. */
interface Reached {
  taskNo: string
  attempt: number
  token: string
  raw: string
  request: unknown
  headers: { [name: string]: string }
  at: Date
}

export const delivered: Outcome = { kind: 'delivered', status: 200 }
export const failed: Outcome = { kind: 'failed', reason: 'http_503', status: 503 }

/** By default it accepts every request. */
export class ScriptedDownstream implements Transport {
  readonly name = 'http'
  readonly requests: Reached[] = []
  /** Its answer when `next` has set no other. */
  usual: Outcome = delivered
  /** True: it holds every request until `answer`. */
  holds = false
  readonly #script: Outcome[] = []
  readonly #held: ((outcome: Outcome) => void)[] = []
  readonly #events = new EventEmitter()

  /** The next answers, in order. */
  next(...outcomes: Outcome[]): void {
    this.#script.push(...outcomes)
  }

  /** Resolves when this many requests have arrived in all. */
  async received(count: number): Promise<Reached[]> {
    while (this.requests.length < count) await once(this.#events, 'request')
    return this.requests
  }

  /** Requests that wait for an answer. */
  get open(): number {
    return this.#held.length
  }

  /** Answers the oldest request that waits for one, or the nth of them. */
  answer(outcome: Outcome = delivered, nth = 0): void {
    const [held] = this.#held.splice(nth, 1)
    if (!held) throw new Error('nobody waits for an answer')
    held(outcome)
  }

  async send(request: unknown, context: SendContext, accepted?: Accepted): Promise<Outcome> {
    const raw = context.raw ?? ''
    const headers = context.headers(raw)
    this.requests.push({
      taskNo: headers['ackbox-task-no'] ?? '',
      attempt: Number(headers['ackbox-attempt']),
      token: headers['ackbox-callback-token'] ?? '',
      raw,
      request,
      headers,
      at: new Date()
    })
    this.#events.emit('request')
    const outcome = this.#script.shift() ?? (this.holds ? await this.#hold(context) : this.usual)
    if (outcome.kind !== 'delivered' || !accepted) return outcome
    const taken = accepted({ status: outcome.status ?? 200, headers: {}, json: undefined, text: '' })
    if (taken === true) return outcome
    return taken === false
      ? { kind: 'failed', reason: 'not_accepted' }
      : { kind: 'refused', reason: 'refused' }
  }

  #hold({ signal, timeoutMs }: SendContext): Promise<Outcome> {
    return new Promise(resolve => {
      const timer = setTimeout(() => end({ kind: 'failed', reason: 'timeout' }), timeoutMs)
      const cut = (): void => end({ kind: 'failed', reason: 'shutdown' })
      const end = (outcome: Outcome): void => {
        clearTimeout(timer)
        signal.removeEventListener('abort', cut)
        resolve(outcome)
      }
      signal.addEventListener('abort', cut)
      this.#held.push(end)
    })
  }

  async close(): Promise<void> {}
}
