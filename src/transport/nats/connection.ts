import type { Logger } from '../../runtime/logger.ts'
import {
  connect,
  errors,
  tokenAuthenticator,
  usernamePasswordAuthenticator,
  type NatsConnection,
  type TlsOptions
} from '@nats-io/transport-node'
import { at, type Broker } from '../broker.ts'
import { failed, Failure, failureOf } from '../failure.ts'
import type { Guard } from '../egress/guard.ts'
import { link, type Link } from '../connection.ts'
import { tlsName } from '../../runtime/tls.ts'
import { ownDial, type Dial } from './dial.ts'
import { isError } from '../../runtime/text-of.ts'

const pingEveryMs = 10_000

ownDial()

/** The connection to a NATS broker, for sends and for receipts. It ends when two pings, `pingMs` apart, are not answered. */
export function natsLink(
  broker: Broker,
  deps: { guard: Guard; log: Pick<Logger, 'info' | 'warn'> },
  messageMost: number,
  pingMs = pingEveryMs
): Link<NatsConnection> {
  return link(broker, deps, async (place, signal) => {
    // The client passes this to node:tls, although its types do not show it.
    const tls: TlsOptions & { servername: string } = { servername: tlsName(place.host) }
    const givenUp = new AbortController()
    const dialing: { dialing: Dial } = { dialing: { signal: givenUp.signal, messageMost } }
    const giveUp = () => givenUp.abort()
    signal.addEventListener('abort', giveUp, { once: true })
    try {
      const client = await connect({
        ...dialing,
        servers: at({ host: place.address, port: place.port }),
        // The guard has not judged the addresses that a server advertises.
        ignoreClusterUpdates: true,
        reconnect: false,
        timeout: 5_000,
        pingInterval: pingMs,
        maxPingOut: 2,
        noAsyncTraces: true,
        name: 'ackbox',
        tls: broker.tls ? tls : null,
        ...login(broker)
      })
      return { client, gone: client.closed(), end: () => void client.close().catch(() => {}) }
    } catch (error) {
      givenUp.abort()
      throw new Failure({ ...natsFailure(error), address: at({ host: place.address, port: place.port }) })
    } finally {
      signal.removeEventListener('abort', giveUp)
    }
  })
}

function login({ username, password }: Broker) {
  if (username === undefined) return undefined
  return {
    authenticator:
      password === undefined
        ? tokenAuthenticator(username)
        : usernamePasswordAuthenticator(username, password)
  }
}

export function natsFailure(error: unknown): Failure['outcome'] {
  if (error instanceof Failure) return error.outcome
  if (error instanceof errors.AuthorizationError || error instanceof errors.UserAuthenticationExpiredError)
    return failed('credentials: the broker refused the login')
  if (error instanceof errors.PermissionViolationError)
    return failed('credentials: the login lacks the permission')
  if (error instanceof errors.TimeoutError) return failed('timeout')
  if (error instanceof errors.ClosedConnectionError || error instanceof errors.DrainingConnectionError)
    return failed('connection_closed')
  if (isError(error) && error.message.includes("'tls'")) return failed('tls: the broker does not offer TLS')
  if (isError(error) && error.cause !== undefined) return natsFailure(error.cause)
  if (error instanceof errors.ConnectionError || error instanceof errors.RequestError || error === undefined)
    return failed('connection_closed')
  return failureOf(error)
}
