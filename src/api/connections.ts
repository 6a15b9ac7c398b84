import { readFileSync } from 'node:fs'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyRequest } from 'fastify'
import { addressGroup } from './address.ts'
import type { ApiLog } from './deps.ts'

/** How many connections may be open, and how long each may be silent. */
export interface ConnectionLimits {
  connections: number
  /** Limit of one address. Proxies of TRUST_PROXY are not counted. */
  perAddress: number
  /** Spare connections beyond `connections`: they get answers only about the health of the process. */
  spare: number
  /** Open requests of one connection. The next ones are read when these are answered. */
  pipelined: number
  /** Parsed requests that wait beyond `pipelined`, over all connections. */
  held: number
  /** When connections run out, a connection whose client has been silent for this long is closed. */
  graceMs: number
  /** A client that reads no byte of its answer for this long is cut off. */
  unreadMs: number
  /** A connection without an open request is closed after this time. Balancers must close theirs earlier. */
  idleMs: number
}

/** The limits of a normal process. A process with few descriptors keeps half of them for its other work. */
export function connectionLimits(descriptors = descriptorLimit()): ConnectionLimits {
  const connections = Math.max(16, Math.min(4_096, Math.floor(descriptors / 2)))
  return {
    connections,
    perAddress: Math.ceil(connections * 0.75),
    spare: Math.max(4, Math.min(64, Math.floor(connections / 8))),
    pipelined: 32,
    held: 16_384,
    graceMs: 1_000,
    unreadMs: 15_000,
    idleMs: 72_000
  }
}

function descriptorLimit(): number {
  try {
    const [, limit] = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1')) ?? []
    return limit === undefined ? Infinity : Number(limit)
  } catch {
    return Infinity // no Linux
  }
}

interface Address {
  name: string
  isProxy: boolean
  connections: Set<Connection>
  /** The last search found no connection to close. The next search starts at this time, ms. */
  lookAgainAt: number
}

/** One connection. */
interface Connection {
  socket: Socket
  address: Address
  isSpare: boolean
  /** Requests in progress. A single request may be over: `last` shows it. */
  open: number
  /** The latest answer. Only the body of its request may still be incomplete. */
  last: ServerResponse | null
  /** Several requests came at once. Each then gets a listener for its end, which costs too much for single requests. */
  isPipelined: boolean
  /** The functions that start the requests beyond the limit, in order. */
  held: (() => void)[]
  /** When a request last began, ms. */
  since: number
}

const lookEveryMs = 50
const mostAtOnce = 32
/** A connection may always hold so many requests, and more while all connections together are below their limit. */
const heldEach = 32

/** Limits the connections of a server. When no connection is free, the address with the most connections loses its silent ones. */
export function connectionLimiter(
  limits: ConnectionLimits,
  isProxy: (address: string) => boolean,
  log: Pick<ApiLog, 'warn'>
) {
  const connections = new Map<Socket, Connection>()
  const addresses = new Map<string, Address>()
  const spares = new Set<Connection>()
  const guarded = new WeakSet<Server>()
  let held = 0
  let lookAgainAt = 0
  let logAgainAt = 0

  function arrive(socket: Socket): void {
    const { remoteAddress } = socket
    if (remoteAddress === undefined || socket.destroyed) return void socket.destroy()
    const address = addressOf(remoteAddress)
    const isFull = () => connections.size - spares.size >= limits.connections
    const isOverShare = () => !address.isProxy && ordinary(address) >= limits.perAddress
    if (isOverShare()) makeRoom([address])
    else if (isFull() && performance.now() >= lookAgainAt) {
      const heaviestFirst = [...addresses.values()].toSorted(
        (a, b) => Number(a.isProxy) - Number(b.isProxy) || b.connections.size - a.connections.size
      )
      if (!makeRoom(heaviestFirst)) lookAgainAt = performance.now() + Math.min(lookEveryMs, limits.graceMs)
    }
    const isSpare = isFull() || isOverShare()
    if (isSpare && spares.size >= limits.spare) {
      const oldest = [...spares].find(isClientsTurn)
      if (oldest) sendAway(oldest)
      else return void socket.destroy()
    }
    const connection = {
      socket,
      address,
      isSpare,
      open: 0,
      last: null,
      isPipelined: false,
      held: [],
      since: performance.now()
    }
    connections.set(socket, connection)
    addresses.set(address.name, address)
    address.connections.add(connection)
    if (isSpare) spares.add(connection)
    socket.once('close', () => leave(connection))
    // Node resumes a socket that it paused itself, even if we paused it too.
    socket.on('resume', () => {
      if (connection.held.length > 0) socket.pause()
    })
  }

  function addressOf(remoteAddress: string): Address {
    const name = addressGroup(remoteAddress)
    return (
      addresses.get(name) ?? { name, isProxy: isProxy(remoteAddress), connections: new Set(), lookAgainAt: 0 }
    )
  }

  const ordinary = (address: Address) => {
    let count = address.connections.size
    for (const connection of spares) if (connection.address === address) count--
    return count
  }

  function leave(connection: Connection): void {
    if (!connections.delete(connection.socket)) return
    spares.delete(connection)
    connection.address.connections.delete(connection)
    if (connection.address.connections.size === 0) addresses.delete(connection.address.name)
    held -= connection.held.length
    connection.held = []
  }

  function sendAway(connection: Connection): void {
    leave(connection)
    connection.socket.destroy()
  }

  /**
   * Closes the connections that were silent longest, of the first address that has any and of others with as many connections.
   * It closes several at once, since a search costs more than a close.
   */
  function makeRoom(candidates: Address[]): boolean {
    const now = performance.now()
    let weight = 0
    let gone = 0
    for (const address of candidates) {
      const { size } = address.connections
      if (gone >= mostAtOnce || size < weight) break
      if (now < address.lookAgainAt) continue
      const silent = [...address.connections]
        .filter(
          connection =>
            !connection.isSpare && now - connection.since >= limits.graceMs && isClientsTurn(connection)
        )
        .toSorted((a, b) => a.since - b.since)
        .slice(0, Math.max(1, Math.min(mostAtOnce, Math.floor(size / 16))))
      for (const connection of silent) sendAway(connection)
      gone += silent.length
      if (silent.length > 0) weight = size
      else address.lookAgainAt = now + Math.min(lookEveryMs, limits.graceMs)
    }
    return gone > 0
  }

  /** The connection waits until its client sends or reads. */
  function isClientsTurn(connection: Connection): boolean {
    const { socket, open, last } = connection
    return (
      isIdle(connection) || socket.writableLength > 0 || (open === 1 && last !== null && !last.req.complete)
    )
  }
  const isIdle = ({ open, last, isPipelined }: Connection) =>
    open === 0 || (!isPipelined && last !== null && last.writableFinished)

  function start(connection: Connection, reply: ServerResponse): void {
    connection.last = reply
    connection.since = performance.now()
    if (connection.isPipelined) reply.once('finish', () => end(connection))
  }

  /** One of several requests is answered, to the last byte. */
  function end(connection: Connection): void {
    const next = connection.held.shift()
    if (!next) {
      connection.open--
      if (connection.open === 0) connection.isPipelined = false
      return
    }
    held--
    if (connection.held.length === 0) connection.socket.resume()
    next()
  }

  /** Also for the second server that Fastify makes for HOST=localhost. It becomes known here with its first request. */
  function guard(server: Server): void {
    if (guarded.has(server)) return
    guarded.add(server)
    server.keepAliveTimeout = limits.idleMs
    server.on('connection', arrive)
    // Closes a connection that is idle or took no byte for so long, but not a connection that waits for our answer.
    server.on('timeout', socket => {
      const connection = connections.get(socket)
      if (!connection || isIdle(connection) || socket.writableLength > 0) socket.destroy()
    })
    // Without a free descriptor an accept fails, which must not end the process. More will fail, so one log line is enough.
    server.on('error', err => {
      if (server.listening && performance.now() >= logAgainAt) {
        logAgainAt = performance.now() + 10_000
        log.warn({ err }, 'http.accept_failed')
      }
    })
  }

  /** Uses Node's own timer, which notices each byte that is taken. A timer on every socket would cost time at each request. */
  function watchUnread(): void {
    for (const { socket } of connections.values())
      if (socket.writableLength > 0 && !socket.timeout) socket.setTimeout(limits.unreadMs)
  }
  const watch = setInterval(watchUnread, limits.unreadMs / 4).unref()

  return {
    guard,
    stop: () => clearInterval(watch),
    /** A request begins. `go` is called at once, or later if too many earlier requests are unanswered. */
    begin({ socket }: IncomingMessage, reply: ServerResponse, go: (isSpare: boolean) => void): void {
      const connection = connections.get(socket)
      if (!connection) {
        const { server } = socket as Socket & { server?: Server }
        if (server && !guarded.has(server)) guard(server)
        // Requests that came before their connection was cut need no answer.
        return socket.destroyed ? undefined : go(false)
      }
      if (isIdle(connection)) {
        connection.open = 1
        start(connection, reply)
        return go(connection.isSpare)
      }
      if (!connection.isPipelined) {
        connection.isPipelined = true
        connection.last?.once('finish', () => end(connection))
      }
      if (connection.open < limits.pipelined) {
        connection.open++
        start(connection, reply)
        return go(connection.isSpare)
      }
      if (held >= limits.held && connection.held.length >= heldEach) return sendAway(connection)
      held++
      connection.held.push(() => {
        start(connection, reply)
        go(connection.isSpare)
      })
      if (connection.held.length === 1) socket.pause()
    }
  }
}

/** Awaits `wait`, whose signal aborts when the client closes its connection. */
export async function whileConnected<Result>(
  { raw: { socket } }: FastifyRequest,
  wait: (signal: AbortSignal) => Promise<Result>
): Promise<Result> {
  const leave = new AbortController()
  const gone = (): void => leave.abort()
  socket.once('close', gone)
  try {
    return await wait(leave.signal)
  } finally {
    socket.off('close', gone)
  }
}
