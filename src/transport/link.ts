import { at, reach, type Broker } from './broker.ts'
import { failureOf } from './failure.ts'
import { Failure, type Blocked } from './guard.ts'
import type { TransportDeps } from './transport.ts'

/** An open connection. */
export interface Line {
  /** Resolves in time, whatever the server does. */
  close(): Promise<unknown>
}

/** One host of a broker, judged by the guard. */
export interface Place {
  /** To connect to. */
  ip: string
  port: number
  /** As the settings have it, for certificates. */
  host: string
  /** `ip:port`. */
  address: string
}

/**
 * Opens a connection that serves until it breaks and never opens itself again, so that each new one is judged by the guard
 * anew. `broke` is called once when it does. Rejects with what `broken` understands.
 */
export type Dial<L extends Line> = (
  broker: Broker,
  place: Place,
  broke: (error: unknown) => void,
  signal: AbortSignal
) => Promise<L>

/** The ways to all brokers of one transport: one open line each, opened when it is needed and after it broke. */
export interface Links<L extends Line> {
  /** Rejects with a Failure. */
  line(broker: Broker): Promise<{ line: L; address: string }>
  close(): Promise<unknown>
}

/** After a failure nobody knocks for so long: of a thousand sends at a broker that is down, few connect. */
const pauseMs = 100

export function links<L extends Line>(
  deps: TransportDeps,
  dial: Dial<L>,
  broken: (error: unknown) => Blocked = failureOf
): Links<L> {
  const all = new Map<string, Link<L>>()
  return {
    line(broker) {
      let link = all.get(broker.name)
      if (!link) all.set(broker.name, (link = linkTo(deps, broker, dial, broken)))
      return link.line()
    },
    close: () => Promise.all(Array.from(all.values(), link => link.close()))
  }
}

interface Link<L extends Line> {
  line(): Promise<{ line: L; address: string }>
  close(): Promise<unknown>
}

function linkTo<L extends Line>(
  { guard, log }: TransportDeps,
  broker: Broker,
  dial: Dial<L>,
  broken: (error: unknown) => Blocked
): Link<L> {
  const stop = new AbortController()
  let current: Promise<{ line: L; address: string }> | undefined
  let first = 0
  let knockedAt = -Infinity
  let isAway = false

  function away(error: unknown): Failure {
    const outcome = broken(error)
    if (!isAway && !stop.signal.aborted)
      log.warn({ broker: broker.name, reason: outcome.reason }, 'broker.away')
    isAway = true
    return new Failure(outcome)
  }

  /** The first of the broker's hosts that takes us, in turn from the one that served last. */
  async function open(): Promise<{ line: L; address: string }> {
    let failure: unknown = new Failure({ kind: 'failed', reason: 'shutdown' })
    for (let i = 0; i < broker.hosts.length && !stop.signal.aborted; i++) {
      const number = (first + i) % broker.hosts.length
      const { host = '', port = 0 } = broker.hosts[number] ?? {}
      try {
        const ip = await reach(guard, { host, port })
        const place = { ip, port, host, address: at({ host: ip, port }) }
        const mine = current
        const line = await dial(
          broker,
          place,
          error => {
            if (current === mine) current = undefined
            away(error)
          },
          stop.signal
        )
        first = number
        if (isAway) log.info({ broker: broker.name, address: place.address }, 'broker.back')
        isAway = false
        return { line, address: place.address }
      } catch (error) {
        failure = error
      }
    }
    knockedAt = performance.now()
    throw away(failure)
  }

  return {
    line() {
      if (performance.now() - knockedAt > pauseMs && knockedAt > 0) {
        knockedAt = -Infinity
        current = undefined
      }
      // A tick later, so that `current` is set while it opens.
      current ??= Promise.resolve().then(open)
      return current
    },
    async close() {
      stop.abort()
      const opened = await current?.catch(() => undefined)
      await opened?.line.close()
    }
  }
}
