import { buildConnector, Client, Pool, type Dispatcher } from 'undici'
import { isIP, type Socket } from 'node:net'
import type { Guard } from '../egress/guard.ts'
import { Failure } from '../failure.ts'
import { PipelinedConnection } from './pipeline.ts'
import type { SendContext } from '../types.ts'

export interface PoolLimits {
  connectMs: number
  /** Number of pools, see Lane. Beyond it the pool that was idle longest is closed. */
  origins: number
  /** Sockets of one pool; further sends wait while their deadlines run. Fewer where requests share a connection. */
  connections: number
  /** A pool without a send for so long is closed. */
  idleMs: number
  /** Certificates to trust beside the system's. */
  ca?: string | undefined
}

/** What a pool dispatches to, told which connection it was given. */
export interface Carried extends Dispatcher.DispatchHandler {
  connection: PipelinedConnection | undefined
}

/** The pool of one origin, or of one downstream and its origin. */
export interface Lane {
  dispatch(options: Omit<Dispatcher.DispatchOptions, 'origin'>, handler: Carried): void
  /** One send less in flight. */
  done(): void
}

export interface Pools {
  /** `limit` of the downstream: one whose requests share connections has its own, which others cannot hold up. */
  lane(url: URL, downstream: string, limit: SendContext['limit']): Lane
  close(): Promise<void>
}

const unlimited = { concurrency: Infinity }

class Held implements Lane {
  readonly pool: Pool
  readonly isShared: boolean
  inFlight = 0
  usedAt = 0

  /** `isShared`: requests are written to a connection while others on it wait for their answers. */
  constructor(pool: Pool, isShared: boolean) {
    this.pool = pool
    this.isShared = isShared
  }

  dispatch(options: Omit<Dispatcher.DispatchOptions, 'origin'>, handler: Carried): void {
    this.inFlight++
    // undici's leave for others behind it. What is sent twice carries the same webhook-id, whatever its method.
    options.idempotent = this.isShared
    options.blocking = !this.isShared
    this.pool.dispatch(options, handler)
  }

  done(): void {
    this.inFlight--
  }
}

export function pools(guard: Guard, limits: PoolLimits): Pools {
  const held = new Map<string, Held>()
  let sweptAt = performance.now()

  /** undefined while all are at work: sends in flight are bounded elsewhere, and so is what goes beyond the limit. */
  function longestIdle(): string | undefined {
    let oldest: [string, Held] | undefined
    for (const entry of held) {
      if (entry[1].inFlight === 0 && (!oldest || entry[1].usedAt < oldest[1].usedAt)) oldest = entry
    }
    return oldest?.[0]
  }

  function drop(name: string | undefined): void {
    const gone = name === undefined ? undefined : held.get(name)
    if (!gone || name === undefined) return
    held.delete(name)
    gone.pool.destroy().catch(() => {})
  }

  function sweep(now: number): void {
    sweptAt = now
    for (const [name, each] of held) {
      if (each.inFlight === 0 && now - each.usedAt > limits.idleMs) drop(name)
    }
  }

  return {
    lane(url, downstream, { concurrency, pipelining = 1 } = unlimited) {
      const now = performance.now()
      if (now - sweptAt > limits.idleMs) sweep(now)
      const isShared = pipelining > 1
      const name = isShared ? `${url.origin} ${downstream}` : url.origin
      let lane = held.get(name)
      if (!lane) {
        if (held.size >= limits.origins) drop(longestIdle())
        const needed = isShared ? Math.ceil(concurrency / pipelining) : Infinity
        const connections = Math.min(limits.connections, needed)
        lane = new Held(open(url, guard, { ...limits, connections }, pipelining), isShared)
        held.set(name, lane)
      }
      lane.usedAt = now
      return lane
    },
    async close() {
      const all = [...held.values()]
      held.clear()
      await Promise.all(all.map(each => each.pool.destroy()))
    }
  }
}

function open(url: URL, guard: Guard, limits: PoolLimits, pipelining: number): Pool {
  const port = Number(url.port) || (url.protocol === 'https:' ? 443 : 80)
  const connect = buildConnector({
    timeout: limits.connectMs,
    lookup: guard.lookup(port),
    minVersion: 'TLSv1.2',
    autoSelectFamily: true,
    // Node's 250 ms gives up on far hosts that have several addresses.
    autoSelectFamilyAttemptTimeout: 600,
    ...(limits.ca && { ca: limits.ca })
  })
  return new Pool(url.origin, {
    connections: limits.connections,
    pipelining,
    // Deadlines are ours, for all phases together.
    headersTimeout: 0,
    bodyTimeout: 0,
    // Shorter than the idle time of common servers, so that we rarely write into a connection about to be closed.
    keepAliveTimeout: 1_800,
    keepAliveMaxTimeout: 60_000,
    // Over all headers together; a single one is held to less when it is read.
    maxHeaderSize: 65_536,
    factory: (origin, options) => {
      const connection = new PipelinedConnection(pipelining > 1)
      return new PipelinedClient(
        origin,
        { ...(options as Client.Options), connect: guarded(connect, guard, port, connection) },
        connection
      )
    }
  })
}

/** A client that tells each send which connection it travels on: undici itself says so nowhere. */
class PipelinedClient extends Client {
  readonly #connection: PipelinedConnection

  constructor(origin: URL, options: Client.Options, connection: PipelinedConnection) {
    super(origin, options)
    this.#connection = connection
  }

  override dispatch(options: Dispatcher.DispatchOptions, handler: Carried): boolean {
    handler.connection = this.#connection
    return super.dispatch(options, handler)
  }
}

function guarded(
  connect: buildConnector.connector,
  guard: Guard,
  port: number,
  connection: PipelinedConnection
): buildConnector.connector {
  return (options, callback) => {
    const host = options.hostname

    function start(): void {
      const refused = isIP(host) ? guard.judge(host, port, host) : undefined
      if (refused) {
        callback(new Failure(refused), null)
        return
      }
      // Its types hide that it returns the socket.
      const socket = connect(options, (...made: Parameters<buildConnector.Callback>) => {
        if (made[1]) watch(made[1], connection)
        callback(...made)
      }) as unknown as Socket
      // First of all listeners, before TLS or HTTP writes a byte.
      socket.prependOnceListener('connect', () => {
        const late = guard.judge(host, port, socket.remoteAddress ?? '')
        if (late) socket.destroy(new Failure(late))
        else connection.address = addressOf(socket)
      })
    }

    connection.address = undefined
    // net.connect never asks `lookup` about a literal, so our own endpoints are looked up here. Always a tick later:
    // undici does not expect to be called back at once.
    if (isIP(host)) void guard.ready(port).then(start)
    else queueMicrotask(start)
  }
}

/** Much of what a downstream may send reaches no handler: a status line, chunk extensions, empty lines, without end. */
function watch(socket: Socket, connection: PipelinedConnection): void {
  connection.opened(socket)
  // Before the parser's own, which is added next.
  socket.on('readable', () => connection.onBytes(socket.bytesRead))
}

function addressOf(socket: Socket): string {
  const { remoteAddress = '', remotePort = 0 } = socket
  return remoteAddress.includes(':') ? `[${remoteAddress}]:${remotePort}` : `${remoteAddress}:${remotePort}`
}
