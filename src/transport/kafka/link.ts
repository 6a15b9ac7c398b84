import { isIP, type LookupFunction } from 'node:net'
import { SASLMechanisms, type BaseOptions, type Connection, type ConnectionPool } from '@platformatic/kafka'
import { at, reach, type Broker } from '../broker.ts'
import { Failure, type Guard } from '../guard.ts'

/** What every client of ours to this broker is made with. Throws a Failure where the URL asks for what there is not. */
export function linkOptions(broker: Broker, link: Link): BaseOptions {
  const mechanism = (broker.options['mechanism'] ?? 'plain').toUpperCase()
  const known = [SASLMechanisms.PLAIN, SASLMechanisms.SCRAM_SHA_256, SASLMechanisms.SCRAM_SHA_512] as const
  const sasl = known.find(each => each === mechanism)
  if (!sasl) {
    throw new Failure({
      kind: 'failed',
      reason: `bad_request: the mechanism of the broker ${broker.name} must be plain, scram-sha-256 or scram-sha-512`
    })
  }
  return {
    clientId: 'ackbox',
    bootstrapBrokers: [...broker.hosts],
    // The client's own retries would outlive our deadline; a delivery has its own.
    retries: 0,
    autocreateTopics: false,
    requestTimeout: 10_000,
    ...(broker.tls && {
      tls: { lookup: link.lookup },
      tlsServerName: broker.hosts.some(({ host }) => isIP(host) === 0)
    }),
    ...(broker.username !== undefined && {
      sasl: { mechanism: sasl, username: broker.username, password: broker.password ?? '' }
    })
  }
}

export interface Link {
  lookup: LookupFunction
  /** From now on this pool connects to nothing that the guard did not judge, advertised hosts included. */
  guarded(pool: ConnectionPool): void
}

type Callback = (error: Error | null, connection?: Connection) => void
type Get = (broker: { host: string; port: number }, callback: Callback) => void

export function link(guard: Guard, tls: boolean): Link {
  const checked = new Map<string, string>()

  return {
    // TLS is dialled by name, for the certificate's sake, and lands at the address that was judged a moment ago.
    lookup: (host, options, callback) => {
      const address = checked.get(host)
      if (address === undefined) callback(new Error('not judged'), '')
      else if (options.all) callback(null, [{ address, family: isIP(address) }])
      else callback(null, address, isIP(address))
    },

    guarded(pool) {
      const original = pool.get.bind(pool)
      const get: Get = (broker, callback) => {
        original(broker, callback)
      }
      const open = new Map<string, { host: string; port: number }>()

      async function judge(broker: { host: string; port: number }, callback: Callback): Promise<void> {
        let address: string
        try {
          address = await reach(guard, broker)
        } catch (error) {
          callback(error as Error)
          return
        }
        checked.set(broker.host, address)
        const target = { host: tls ? broker.host : address, port: broker.port }
        open.set(at(broker), target)
        get(target, callback)
      }

      // The pool takes its own listener away after one error; a second one would end the process.
      pool.on('connecting', ({ connection }) => connection.on('error', () => {}))
      const judged: Get = (broker, callback) => {
        const known = open.get(at(broker))
        if (known && pool.has(known)) get(known, callback)
        else void judge(broker, callback)
      }
      pool.get = judged as ConnectionPool['get']
    }
  }
}
