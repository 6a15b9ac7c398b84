import { isIP } from 'node:net'
import { Connection } from 'rabbitmq-client'
import { at, allowedAddress, type Broker } from '../broker.ts'
import { untilAborted } from '../../runtime/with-timeout.ts'
import { failed, Failure, failure, type Failed, failureOf } from '../failure.ts'
import type { Guard } from '../egress/guard.ts'
import { tlsName } from '../../runtime/tls.ts'
import { bounded, type MayCome } from './bounded.ts'
import { codeOf as nodeCode, isError } from '../../runtime/text-of.ts'

export interface Dialed {
  connection: Connection
  /** The remote address, `ip:port`. */
  address: string
  /** The index of the host in the broker's hosts. */
  host: number
}

const connectMs = 5_000
/** Seconds. The client ends a connection after two heartbeat intervals without a byte. */
const heartbeat = 10

/**
 * Connects to the broker's hosts in turn, beginning with number `first`, until one accepts. Throws the Failure of the last one.
 * A broken connection never reconnects by itself: the guard judges each new connection.
 */
export async function dial(
  guard: Guard,
  broker: Broker,
  first: number,
  mayCome: MayCome,
  signal: AbortSignal
): Promise<Dialed> {
  let cause = failure('shutdown')
  for (let i = 0; i < broker.hosts.length && !signal.aborted; i++) {
    const host = (first + i) % broker.hosts.length
    try {
      return { ...(await connect(guard, broker, host, mayCome, signal)), host }
    } catch (error) {
      if (!signal.aborted) cause = new Failure(brokenBy(error))
    }
  }
  throw cause
}

async function connect(
  guard: Guard,
  broker: Broker,
  number: number,
  mayCome: MayCome,
  signal: AbortSignal
): Promise<Omit<Dialed, 'host'>> {
  const { host, port } = broker.hosts[number] ?? { host: '', port: 0 }
  const ip = await allowedAddress(guard, { host, port })
  if (signal.aborted) throw failure('shutdown')
  const connection = bounded(
    new Connection({
      hostname: ip,
      port,
      username: broker.username ?? 'guest',
      password: broker.password ?? 'guest',
      vhost: broker.path || '/',
      tls: broker.tls && (isIP(host) ? {} : { servername: tlsName(host) }),
      connectionTimeout: connectMs,
      heartbeat,
      noDelay: true,
      connectionName: 'ackbox'
    }),
    mayCome
  )
  const open = new Promise<void>((resolve, reject) => {
    connection.once('connection', resolve)
    // This listener stays: an 'error' without a listener ends the process.
    connection.on('error', reject)
  })
  try {
    await untilAborted(signal, open)
    if (signal.aborted) throw failure('shutdown')
    return { connection, address: at({ host: ip, port }) }
  } catch (error) {
    // The client would reconnect by itself, to an address that the guard has not judged again.
    connection.unsafeDestroy()
    throw error
  }
}

/** The outcome of a connection's error. The server's own text is not shown, because it may name users. */
export function brokenBy(error: unknown): Failed {
  if (error instanceof Failure) return error.outcome
  const code = codeOf(error)
  const text = isError(error) ? error.message : ''
  // NOT_ALLOWED: the virtual host does not exist, or this user has no access to it.
  if (code === 'NOT_ALLOWED' && text.includes('not found'))
    return failed('target_missing: the virtual host does not exist')
  const reason = words[code]
  return reason === undefined ? failureOf(error) : failed(reason)
}

const words: Readonly<Record<string, string>> = {
  ACCESS_REFUSED: 'credentials: the broker does not know this user and password',
  NOT_ALLOWED: 'credentials: the broker does not let this user in',
  CONNECTION_TIMEOUT: 'connect_timeout',
  CONNECTION_FORCED: 'connection_closed: the broker was stopped',
  CONN_CLOSE: 'connection_closed',
  CLOSING: 'connection_closed',
  SOCKET_TIMEOUT: 'connection_closed: no heartbeat',
  VERSION_MISMATCH: 'protocol: not AMQP 0-9-1',
  FRAME_ERROR: 'protocol: not AMQP 0-9-1',
  COMMAND_INVALID: 'protocol: not AMQP 0-9-1'
}

export const codeOf = (error: unknown): string => nodeCode(error) ?? 'unknown'
