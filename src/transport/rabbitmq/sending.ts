import type { Envelope } from 'rabbitmq-client'
import type { Outcome } from '../../domain/types.ts'
import type { Due } from '../deadlines.ts'
import type { SendContext } from '../types.ts'
import type { Suspect } from './failure.ts'

/** One message on its way, from the handler's request to its outcome. */
export class Sending implements Due, Suspect {
  readonly due: number
  index = -1
  readonly signal: AbortSignal
  readonly envelope: Envelope & { messageId: string }
  readonly body: Buffer
  /** Of the broker, once there is a connection. */
  address: string | undefined
  /** The server gave it back: no queue took it. */
  returned = false
  /** Called when it ends while the server may still confirm it. */
  leave: (() => void) | undefined
  #end: ((outcome: Outcome) => void) | undefined

  constructor(
    context: SendContext,
    envelope: Envelope & { messageId: string },
    body: Buffer,
    end: (outcome: Outcome) => void
  ) {
    this.due = performance.now() + context.timeoutMs
    this.signal = context.signal
    this.envelope = envelope
    this.body = body
    this.#end = end
  }

  get ended(): boolean {
    return this.#end === undefined
  }
  get exchange(): string {
    return this.envelope.exchange ?? ''
  }
  get routingKey(): string {
    return this.envelope.routingKey ?? ''
  }
  get bytes(): number {
    return this.body.length
  }

  expire(): void {
    this.fail(this.signal.aborted ? 'shutdown' : this.address ? 'timeout' : 'connect_timeout')
  }

  fail(reason: string): void {
    this.settle({ kind: 'failed', reason })
  }

  settle(outcome: Outcome): void {
    const end = this.#end
    if (!end) return
    this.#end = undefined
    this.leave?.()
    end(this.address ? { ...outcome, address: this.address } : outcome)
  }
}
