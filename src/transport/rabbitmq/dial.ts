import { isIP } from 'node:net'
import { Connection } from 'rabbitmq-client'
import { at, reach, type Broker } from '../broker.ts'
import { untilAborted } from '../../runtime/with-timeout.ts'
import { failed, Failure, failure, type Failed, failureOf } from '../failure.ts'
import type { Guard } from '../egress/guard.ts'
import { bounded, type MayCome } from './bounded.ts'

export interface Dialed {
  connection: Connection
  /** What was talked to, `ip:port`. */
  address: string
  /** Which of the broker's hosts it was. */
  host: number
}

const connectMs = 5_000
/** Seconds. The client gives a connection up after two of these without a byte. */
const heartbeat = 10

/**
 * The first of the broker's hosts that takes us, asked in turn from the one with that number. Throws a Failure: the last
 * one's. A connection serves until it breaks and never opens itself again: each new one is judged by the guard anew.
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
  const ip = await reach(guard, { host, port })
  if (signal.aborted) throw failure('shutdown')
  const connection = bounded(
    new Connection({
      hostname: ip,
      port,
      username: broker.username ?? 'guest',
      password: broker.password ?? 'guest',
      vhost: broker.path || '/',
      tls: broker.tls && (isIP(host) ? {} : { servername: host }),
      connectionTimeout: connectMs,
      heartbeat,
      noDelay: true,
      connectionName: 'ackbox'
    }),
    mayCome
  )
  const open = new Promise<void>((resolve, reject) => {
    connection.once('connection', resolve)
    // Stays for good: an 'error' that nobody listens to ends the process.
    connection.on('error', reject)
  })
  try {
    await untilAborted(signal, open)
    if (signal.aborted) throw failure('shutdown')
    return { connection, address: at({ host: ip, port }) }
  } catch (error) {
    // It would connect again by itself, to an address that nobody judged.
    connection.unsafeDestroy()
    throw error
  }
}

/** What an error of a connection came to; the server's own text is not shown, it may name users. */
export function brokenBy(error: unknown): Failed {
  if (error instanceof Failure) return error.outcome
  const code = codeOf(error)
  const text = error instanceof Error ? error.message : ''
  // The virtual host is not there, or this user may not enter it.
  if (code === 'NOT_ALLOWED' && text.includes('not found'))
    return failed('target_missing: the virtual host does not exist')
  const said = words[code]
  return said === undefined ? failureOf(error) : failed(said)
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

export const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error ? String(error.code) : 'unknown'
