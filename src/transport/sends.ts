import type { Outcome } from '../domain/types.ts'
import { chosen, type Broker, type BrokerTransport } from './broker.ts'
import { deadlines, type Due } from './deadlines.ts'
import { failed, Failure } from './failure.ts'
import type { Accepted, SendContext, Transport, TransportDeps } from './types.ts'

type Writable<T> = { -readonly [Name in keyof T]: T[Name] }
type Early = 'timeout' | 'shutdown'

/** One send, for the code that writes it. */
export interface Flight {
  /** The send has ended: it must not be written any more. */
  readonly over: boolean
  /** The deadline, as a time of `performance.now()`. */
  readonly due: number
  /** Called when the send ends before its answer. May return the outcome; by default it is a failure with that reason. */
  cut: ((why: Early) => Outcome | void) | undefined
}

/** The sends of one transport. Each ends once: by its answer, its deadline, the shutdown of the process or `close`. */
export function openSends(): {
  fly(context: SendContext, send: (flight: Flight) => Promise<Outcome>): Promise<Outcome>
  close(): void
} {
  const clock = deadlines<Due & { stop: (why: Early) => void }>()
  let closed = false
  return {
    async fly(context, send) {
      if (closed || context.signal.aborted) return failed('shutdown')
      if (context.timeoutMs <= 0) return failed('timeout')
      return new Promise((resolve, reject) => {
        const deadline = performance.now() + context.timeoutMs
        const flight: Writable<Flight> = { over: false, due: deadline, cut: undefined }
        const stop = (why: Early): void => {
          if (settle()) resolve(flight.cut?.(why) ?? failed(why))
        }
        const due = {
          due: deadline,
          signal: context.signal,
          index: -1,
          expire: () => stop(context.signal.aborted ? 'shutdown' : 'timeout'),
          stop
        }
        const settle = (): boolean => {
          if (flight.over) return false
          flight.over = true
          clock.delete(due)
          return true
        }
        clock.add(due)
        send(flight).then(
          outcome => settle() && resolve(outcome),
          (error: unknown) => settle() && reject(error as Error)
        )
      })
    },
    close() {
      closed = true
      for (const { stop } of clock.all()) stop('shutdown')
    }
  }
}

/** The functions that a broker transport must supply. */
export interface BrokerSends<Request, Way, Message> {
  /** The link to one broker, shared by all sends. It connects by itself when it is needed. */
  open(broker: Broker): Way
  /** The message of a request, or the error in the request: handlers in plain JavaScript may return anything. */
  read(request: Request, context: SendContext, broker: Broker): Message | string
  send(way: Way, message: Message, flight: Flight, accepted?: Accepted): Promise<Outcome>
}

/** A transport whose requests name a broker of the settings. */
export function brokerTransport<
  Request extends { broker?: string },
  Way extends { close(): void | Promise<void> },
  Message extends object
>(
  name: BrokerTransport,
  { brokers }: TransportDeps,
  { open, read, send }: BrokerSends<Request, Way, Message>
): Transport<Request> {
  const sends = openSends()
  const ways = new Map<Broker, Way>()

  function wayTo(broker: Broker): Way {
    const known = ways.get(broker)
    if (known) return known
    const way = open(broker)
    ways.set(broker, way)
    return way
  }

  return {
    name,

    async send(request, context, accepted) {
      if (typeof request !== 'object' || request === null)
        return failed('bad_request: the handler returned no request')
      try {
        const broker = chosen(brokers, name, request.broker)
        const message = read(request, context, broker)
        if (typeof message === 'string') return failed(`bad_request: ${message}`)
        const way = wayTo(broker)
        return await sends.fly(context, flight => send(way, message, flight, accepted))
      } catch (error) {
        if (error instanceof Failure) return error.outcome
        throw error
      }
    },

    async close() {
      sends.close()
      await Promise.all(Array.from(ways.values(), async way => way.close()))
    }
  }
}

/** The error if one of these names looks like a header of Ackbox; otherwise undefined. */
export function reservedName(
  names: Iterable<string>,
  kind: 'header' | 'property' = 'header'
): string | undefined {
  for (const name of names) {
    if (/^(?:webhook-|ackbox-)/i.test(name)) return `a handler must not set the ${kind} ${name.toLowerCase()}`
  }
  return undefined
}
