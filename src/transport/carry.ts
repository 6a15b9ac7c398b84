import type { Outcome } from '../task/task.ts'
import type { Broker } from './broker.ts'
import { chosen } from './choose.ts'
import { deadlines, type Due } from './deadlines.ts'
import { failureOf } from './failure.ts'
import type { Parcel, Transport, TransportDeps } from './transport.ts'

/** What is particular to one kind of queue; the rest is below, once for all. */
export interface Carrier<Request, Message> {
  name: string
  /** What is to be sent, its headers included; or what is wrong with the request, as a sentence. */
  prepare(request: Request, parcel: Parcel): Message | string
  /** Resolves with what came of it once the broker has confirmed or refused it; rejects with what `broken` understands. */
  publish(broker: Broker, message: Message, sending: Sending): Promise<Outcome>
  /** The outcome of a rejection. `failureOf` where it is not said. */
  broken?(error: unknown): Outcome
  close(): Promise<unknown>
}

/** One message on its way. */
export class Sending implements Due {
  readonly due: number
  readonly signal: AbortSignal
  /** Of the broker, once there is a connection. */
  address: string | undefined
  #end: ((outcome: Outcome) => void) | undefined

  constructor(parcel: Parcel, end: (outcome: Outcome) => void) {
    this.due = performance.now() + parcel.timeoutMs
    this.signal = parcel.signal
    this.#end = end
  }

  get ended(): boolean {
    return this.#end === undefined
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
    end(this.address ? { ...outcome, address: this.address } : outcome)
  }
}

/** A transport to queues: validation, the deadline, the shutdown and the end of all that is in flight. */
export function carry<Request extends { broker?: string }, Message>(
  deps: TransportDeps,
  carrier: Carrier<Request, Message>
): Transport<Request> {
  const clock = deadlines()
  const underway = new Set<Sending>()
  let closed = false

  return {
    name: carrier.name,

    send(request, parcel) {
      if (closed || parcel.signal.aborted) return failed('shutdown')
      if (parcel.timeoutMs <= 0) return failed('timeout')
      if (typeof request !== 'object' || request === null)
        return failed('bad_request: the handler gave no request')
      let broker: Broker
      try {
        broker = chosen(deps.brokers, carrier.name, request.broker)
      } catch (error) {
        return Promise.resolve(failureOf(error))
      }
      const message = carrier.prepare(request, parcel)
      if (typeof message === 'string') return failed(`bad_request: ${message}`)
      return new Promise(resolve => {
        const sending = new Sending(parcel, outcome => {
          clock.delete(sending)
          underway.delete(sending)
          resolve(outcome)
        })
        clock.add(sending)
        underway.add(sending)
        carrier.publish(broker, message, sending).then(
          outcome => sending.settle(outcome),
          (error: unknown) => sending.settle((carrier.broken ?? failureOf)(error))
        )
      })
    },

    async close() {
      closed = true
      for (const sending of underway) sending.fail('shutdown')
      await carrier.close()
    }
  }
}

const failed = (reason: string): Promise<Outcome> => Promise.resolve({ kind: 'failed', reason })

/** The text or bytes to send, by default the posted text; or what is wrong with it. */
export function payloadOf(own: unknown, parcel: Parcel): string | Uint8Array | undefined {
  const payload = own ?? parcel.raw ?? ''
  return typeof payload === 'string' || payload instanceof Uint8Array ? payload : undefined
}

/** The handler's headers and ours, ours last; or what is wrong with the handler's. */
export function headersOf(
  own: unknown,
  parcel: Parcel,
  payload: string | Uint8Array
): Record<string, string> | string {
  const headers: Record<string, string> = {}
  if (own !== undefined && (typeof own !== 'object' || own === null)) return 'the headers must be an object'
  for (const [name, value] of Object.entries(own ?? {})) {
    if (/^(?:webhook-|ackbox-)/i.test(name)) return `the header ${name} is not the handler's to set`
    if (typeof value !== 'string') return `the header ${name} must be a text`
    headers[name] = value
  }
  return Object.assign(headers, parcel.headers(payload))
}
