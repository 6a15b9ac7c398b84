import { buildConnector, Client, Pool, type Dispatcher } from 'undici'
import { isIP, type Socket } from 'node:net'
import type { Guard } from '../egress/guard.ts'
import { Failure } from '../failure.ts'
import { tlsName } from '../../runtime/tls.ts'
import { tolerate } from './parser.ts'
import { PipelinedConnection } from './pipeline.ts'
import type { SendContext } from '../types.ts'

export interface PoolLimits {
  connectMs: number
  /** Number of pools, see Lane. Beyond it, the pool with the longest idle time is closed. */
  origins: number
  /** Sockets of one pool; further sends wait while their deadlines run. Fewer if requests share a connection. */
  connections: number
  /** A pool without a send for this time is closed. */
  idleMs: number
  /** Certificates to trust in addition to the system's. */
  ca?: string | undefined
}

/** A dispatch handler that gets its connection. */
export interface Carried extends Dispatcher.DispatchHandler {
  connection: PipelinedConnection | undefined
}

/** The pool of one origin, or of one downstream and its origin. */
export interface Lane {
  dispatch(options: Omit<Dispatcher.DispatchOptions, 'origin'>, handler: Carried): void
  /** A send has ended. */
  done(): void
}

export interface Pools {
  /** `limit` of the downstream. With pipelining the downstream has its own pool, so that other downstreams cannot delay it. */
  lane(url: URL, downstream: string, limit: SendContext['limit']): Lane
  close(): Promise<void>
}

const unlimited = { concurrency: Infinity }

class Held implements Lane {
  readonly pool: Pool
  readonly isShared: boolean
  readonly connections: number
  inFlight = 0
  usedAt = 0
  /** Called when no send is in flight any more. */
  onIdle = (): void => {}

  /** `isShared`: requests may be written to a connection while earlier ones wait for their answers. */
  constructor(pool: Pool, isShared: boolean, connections: number) {
    this.pool = pool
    this.isShared = isShared
    this.connections = connections
  }

  dispatch(options: Omit<Dispatcher.DispatchOptions, 'origin'>, handler: Carried): void {
    this.inFlight++
    // Allows undici to write other requests behind this one. A request sent twice has the same webhook-id, whatever its method.
    options.idempotent = this.isShared
    options.blocking = !this.isShared
    this.pool.dispatch(options, handler)
  }

  done(): void {
    if (--this.inFlight === 0) this.onIdle()
  }
}

export function pools(guard: Guard, limits: PoolLimits): Pools {
  const held = new Map<string, Held>()
  /** Replaced ones, until their last send has ended. */
  const replaced = new Set<Held>()
  let sweptAt = performance.now()

  /** Undefined while all pools have sends in flight. The limit may then be exceeded: sends in flight are bounded elsewhere. */
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

  /** A pool keeps its number of connections, and `concurrency` may be raised at run time: a new pool takes the further sends. */
  function replace(name: string, busy: Held): void {
    held.delete(name)
    replaced.add(busy)
    busy.onIdle = () => {
      replaced.delete(busy)
      // Not within the callback of its last answer.
      setImmediate(() => void busy.pool.destroy().catch(() => {}))
    }
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
      const needed = isShared ? Math.ceil(concurrency / pipelining) : Infinity
      const connections = Math.min(limits.connections, needed)
      let lane = held.get(name)
      if (lane && lane.connections < connections) {
        if (lane.inFlight === 0) drop(name)
        else replace(name, lane)
        lane = undefined
      }
      if (!lane) {
        if (held.size >= limits.origins) drop(longestIdle())
        lane = new Held(open(url, guard, { ...limits, connections }, pipelining), isShared, connections)
        held.set(name, lane)
      }
      lane.usedAt = now
      return lane
    },
    async close() {
      const all = [...held.values(), ...replaced]
      held.clear()
      replaced.clear()
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
    // Node's default of 250 ms is too short for distant hosts with several addresses.
    autoSelectFamilyAttemptTimeout: 600,
    ...(limits.ca && { ca: limits.ca })
  })
  return new Pool(url.origin, {
    connections: limits.connections,
    pipelining,
    // Our own deadline covers all phases together.
    headersTimeout: 0,
    bodyTimeout: 0,
    // Shorter than the idle time of common servers, so that we rarely write to a connection that the server closes.
    keepAliveTimeout: 1_800,
    keepAliveMaxTimeout: 60_000,
    // For all headers together; a single header has a lower limit (Exchange).
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

/** A client that gives each send its connection: undici itself does not expose it. */
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
    // By default undici takes the name of the Host header, with the dot that may end it.
    const named = isIP(host) ? options : { ...options, servername: tlsName(host) }

    function start(): void {
      const refused = isIP(host) ? guard.judge(host, port, host) : undefined
      if (refused) {
        callback(new Failure(refused), null)
        return
      }
      // `connect` returns the socket, which its types hide.
      const socket = connect(named, (...made: Parameters<buildConnector.Callback>) => {
        if (made[1]) watch(made[1], connection)
        callback(...made)
        if (made[1]) tolerate(made[1])
      }) as unknown as Socket
      // The first of all listeners: it runs before TLS or HTTP writes a byte.
      socket.prependOnceListener('connect', () => {
        const late = guard.judge(host, port, socket.remoteAddress ?? '')
        if (late) socket.destroy(new Failure(late))
        else connection.address = addressOf(socket)
      })
    }

    connection.address = undefined
    // net.connect does not call `lookup` for a literal address, so our own endpoints are resolved here. Always a tick later:
    // undici does not expect a synchronous callback.
    if (isIP(host)) void guard.ready(port).then(start)
    else queueMicrotask(start)
  }
}

/** Counts the bytes of an answer. Some bytes reach no handler: an endless status line, chunk extensions, empty lines. */
function watch(socket: Socket, connection: PipelinedConnection): void {
  connection.opened(socket)
  // Added before the listener of the parser, so it runs first.
  socket.on('readable', () => connection.onBytes(socket.bytesRead))
}

function addressOf(socket: Socket): string {
  const { remoteAddress = '', remotePort = 0 } = socket
  return remoteAddress.includes(':') ? `[${remoteAddress}]:${remotePort}` : `${remoteAddress}:${remotePort}`
}
