import type { Logger } from '../runtime/logger.ts'
import { at, allowedAddress, rotated, type Broker } from './broker.ts'
import { failure, Failure, failureOf } from './failure.ts'
import { untilAborted, withTimeout } from '../runtime/with-timeout.ts'
import type { Guard } from './egress/guard.ts'

/** An open connection. */
export interface Live<Client> {
  client: Client
  /** Resolves once the connection has ended, on either side. Never rejects. */
  gone: Promise<unknown>
  end(): void
}

/** Opens one connection to a checked address; `host` is the name for TLS. Rejects with the error. */
export type Open<Client> = (
  place: { host: string; port: number; address: string },
  signal: AbortSignal
) => Promise<Live<Client>>

export interface Link<Client> {
  /** The one connection, opened when it is needed. Rejects with a Failure; at once if the last connect failed a moment ago. */
  client(): Promise<Client>
  readonly current: Client | undefined
  /** Ends the connection; the next `client` makes a new one. */
  drop(client: Client): void
  close(): void
}

const connectMs = 5_000
const restMs = 500
/** A connection that ends sooner is brief: a load balancer without a backend accepts, and closes at once. */
const briefMs = 1_000

/**
 * One connection to a broker, shared by all sends. The first send after its loss opens it again, without a limit of tries. A rest
 * follows each failure, and each brief connection after more in a row than there are hosts. The clients' own reconnect is off: it
 * would keep an address that the guard judged long ago, and some clients write after the reconnect messages that were already
 * reported as failed.
 */
export function link<Client>(
  broker: Broker,
  deps: { guard: Guard; log: Pick<Logger, 'info' | 'warn'> },
  open: Open<Client>
): Link<Client> {
  const closing = new AbortController()
  let live: Live<Client> | undefined
  let opening: Promise<Client> | undefined
  let failed: { failure: Failure; until: number } | undefined
  /** The host that the next connect begins with. */
  let host = 0
  let away = false
  let openedAt = 0
  /** The brief connections in a row. Up to one for each host is no failure: a host may be about to stop. */
  let briefs = 0
  let lasting: NodeJS.Timeout | undefined

  async function connect(): Promise<Client> {
    try {
      const opened = await firstOf()
      if (closing.signal.aborted) {
        opened.end()
        throw shutdown()
      }
      failed = undefined
      live = opened
      openedAt = performance.now()
      void opened.gone.then(() => lost(opened))
      if (areAllBrief()) lasting = setTimeout(available, briefMs)
      else available()
      return opened.client
    } catch (error) {
      const failure = error instanceof Failure ? error : new Failure(failureOf(error))
      failed = { failure, until: performance.now() + restMs }
      if (!closing.signal.aborted) trouble(failure.outcome.reason)
      throw failure
    } finally {
      opening = undefined
    }
  }

  function lost(ended: Live<Client>): void {
    if (live !== ended) return
    live = undefined
    clearTimeout(lasting)
    const now = performance.now()
    briefs = now - openedAt < briefMs ? briefs + 1 : 0
    if (areAllBrief()) failed = { failure: failure('connection_closed'), until: now + restMs }
    // The host may be about to stop, or may answer nothing: another one is used as long as it works.
    host++
    if (!closing.signal.aborted) trouble('connection_closed')
  }

  const areAllBrief = (): boolean => briefs > broker.hosts.length

  function available(): void {
    if (away) deps.log.info({ broker: broker.name }, 'broker.available')
    away = false
  }

  function trouble(reason: string): void {
    if (!away) deps.log.warn({ broker: broker.name, reason }, 'broker.unavailable')
    away = true
  }

  async function firstOf(): Promise<Live<Client>> {
    let first: unknown
    for (const [index, place] of rotated(broker.hosts, host).entries()) {
      try {
        const opened = await within(place)
        host += index
        return opened
      } catch (error) {
        first ??= error
        if (closing.signal.aborted) throw shutdown()
      }
    }
    throw first
  }

  async function within(place: { host: string; port: number }): Promise<Live<Client>> {
    const over = new AbortController()
    const cut = (): void => over.abort()
    // Not AbortSignal.any: what it adds to `closing` stays there, try for try, as long as the process lives.
    closing.signal.addEventListener('abort', cut)
    const opened = allowedAddress(deps.guard, place).then(address => open({ ...place, address }, over.signal))
    // A connection that opens too late must not stay open.
    opened.then(made => over.signal.aborted && made.end()).catch(() => {})
    try {
      const made = await withTimeout(untilAborted(closing.signal, opened), connectMs, () => {
        throw new Failure({ kind: 'failed', reason: 'connect_timeout', address: at(place) })
      })
      if (!made) throw shutdown()
      void made.gone.then(() => closing.signal.removeEventListener('abort', cut))
      return made
    } catch (error) {
      closing.signal.removeEventListener('abort', cut)
      over.abort()
      throw error
    }
  }

  return {
    get current() {
      return live?.client
    },

    client() {
      if (closing.signal.aborted) return Promise.reject(shutdown())
      if (live) return Promise.resolve(live.client)
      if (failed && performance.now() < failed.until) return Promise.reject(failed.failure)
      opening ??= connect()
      return opening
    },

    drop(client) {
      if (live?.client !== client) return
      // The end of a silent socket can take seconds. The next send must not get it.
      live.end()
      lost(live)
    },

    close() {
      closing.abort()
      clearTimeout(lasting)
      live?.end()
    }
  }
}

const shutdown = (): Failure => failure('shutdown')
