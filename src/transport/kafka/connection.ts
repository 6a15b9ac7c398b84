import { isIP, type LookupFunction } from 'node:net'
import {
  GenericError,
  SASLMechanisms,
  type BaseOptions,
  type Connection,
  type ConnectionPool,
  type SASLMechanismValue
} from '@platformatic/kafka'
import { at, allowedAddress, rotated, type Broker, type Mechanism } from '../broker.ts'
import type { Guard } from '../egress/guard.ts'
import { Failure, failure } from '../failure.ts'
import { expected, strictly } from './answer.ts'
import { protocolFailure } from '../judged.ts'
import { judgeFrames, room } from './frames.ts'

const mechanisms: Record<Mechanism, SASLMechanismValue> = {
  plain: SASLMechanisms.PLAIN,
  'scram-sha-256': SASLMechanisms.SCRAM_SHA_256,
  'scram-sha-512': SASLMechanisms.SCRAM_SHA_512
}

/**
 * The options of a client to this broker. The next `turn` begins with the next host: the client asks the first that takes its
 * connection, also if it never answers.
 */
export function linkOptions(broker: Broker, link: KafkaLink, turn: number): BaseOptions {
  return {
    clientId: 'ackbox',
    bootstrapBrokers: rotated(broker.hosts, turn),
    // The client's own retries would outlive our deadline; a delivery has its own retries.
    retries: 0,
    autocreateTopics: false,
    requestTimeout: 10_000,
    ...(broker.tls && {
      tls: { lookup: link.lookup },
      tlsServerName: broker.hosts.some(({ host }) => isIP(host) === 0)
    }),
    ...(broker.username !== undefined && {
      sasl: {
        mechanism: mechanisms[broker.mechanism],
        username: broker.username,
        password: broker.password ?? ''
      }
    })
  }
}

/** Bytes of one answer. Most answers are small; a Fetch may bring one batch that is larger than requested. */
const frameBytes = { sends: 1 << 20, reads: 4 << 20 }
const mostConnections = 500
/** Requests in ten seconds, without fetches. The client needs about a dozen for the group and the topic. */
const mostQuestions = 300
const questionsMs = 10_000
const fetchApi = 1

export interface KafkaLink {
  lookup: LookupFunction
  /** From now on this pool connects only to addresses that the guard has judged, also for advertised hosts. */
  guarded(pool: ConnectionPool): void
  /** Wraps a callback: an exception in it ends this link, not the process. */
  owned<Given extends unknown[]>(callback: (...given: Given) => void): (...given: Given) => void
  /** Settles as the callback of `start` does, or rejects once the link has ended or the time is over. */
  within<T>(ms: number, start: (callback: (error: Error | null, value?: T) => void) => void): Promise<T>
  /** Rejects once the link has ended. */
  lost(): Promise<never>
  /** Ends its connections at once. */
  end(): void
}

type Callback = (error: Error | null, connection?: Connection) => void
type Get = (broker: { host: string; port: number }, callback: Callback) => void
type Send = (...given: [...Parameters<Connection['send']>]) => void
type Connect = (host: string, port: number, callback: (error?: Error | null) => void) => void | Promise<void>

/**
 * Guards the connections of one client. The client trusts its broker: it allocates any announced length, and throws on
 * unexpected answers in callbacks of sockets and timers, where no code catches the error. So each answer is judged before the
 * client reads it, and its callbacks are wrapped here.
 */
export function kafkaLink(guard: Guard, tls: boolean, use: 'sends' | 'reads' = 'sends'): KafkaLink {
  const checked = new Map<string, string>()
  const kept = room(frameBytes[use])
  const connections = new Set<Connection>()
  const waiting = new Set<(failure: Failure) => void>()
  /** Why we ended a connection. */
  const reasons = new WeakMap<Connection, Failure>()
  let questions = { since: 0, count: 0 }
  let broken: Failure | undefined

  function fail(why: Failure): void {
    if (broken) return
    broken = why
    for (const connection of connections) connection.socket.destroy()
    for (const reject of waiting) reject(why)
    waiting.clear()
  }

  function owned<Given extends unknown[]>(callback: (...given: Given) => void): (...given: Given) => void {
    return (...given) => {
      // The link has ended and no code waits for this client: it stops here.
      if (broken) return
      try {
        callback(...given)
      } catch (thrown) {
        fail(
          thrown instanceof Failure ? thrown : protocolFailure('the client cannot make sense of the broker')
        )
      }
    }
  }

  function refuse(connection: Connection, why: Failure): void {
    reasons.set(connection, why)
    connection.socket.destroy(why)
  }

  function own(connection: Connection): void {
    // The pool removes its own listener after one error; a second error would end the process.
    connection.on('error', () => {})
    const connect: Connect = connection.connect.bind(connection)
    const connects: Connect = (host, port, callback) => {
      void connect(host, port, owned(callback))
      const { socket } = connection
      connections.add(connection)
      socket.once('close', () => connections.delete(connection))
      judgeFrames(socket, kept, thrown => {
        if (!(thrown instanceof Failure))
          return fail(protocolFailure('the client cannot make sense of the broker'))
        refuse(connection, thrown)
      })
      if (broken || connections.size > mostConnections) socket.destroy()
    }
    connection.connect = connects
    const send = connection.send.bind(connection) as Send
    connection.send = ((api, version, payload, parser, ...rest) => {
      const [requestTags, responseTags, callback] = rest
      const settle = owned((error: Error | null, answer?: unknown) => {
        const reason = reasons.get(connection)
        callback(error && reason ? expected(reason) : error && understood(error), answer)
      })
      if (use === 'reads' && api !== fetchApi && tooMany())
        return settle(expected(protocolFailure('too many requests')))
      const parsed = strictly(parser, use)
      const read: typeof parser = (...given) => {
        try {
          return parsed(...given)
        } catch (error) {
          // Nothing that follows on this connection can be trusted.
          const { cause } = error as Error
          if (cause instanceof Failure) refuse(connection, cause)
          throw error
        }
      }
      send(api, version, payload, read, requestTags, responseTags, settle)
    }) as Send as Connection['send']
    connection.reauthenticate = owned(connection.reauthenticate.bind(connection))
  }

  function tooMany(): boolean {
    const now = performance.now()
    if (now - questions.since > questionsMs) questions = { since: now, count: 0 }
    return ++questions.count > mostQuestions
  }

  return {
    owned,
    end: () => fail(failure('connection_closed')),

    lost: () =>
      new Promise((_, reject) => {
        if (broken) reject(broken)
        else waiting.add(reject)
      }),

    within: (ms, start) =>
      new Promise((resolve, reject) => {
        if (broken) return reject(broken)
        const timer = setTimeout(() => over(failure('timeout')), ms)
        const leave = (): void => {
          clearTimeout(timer)
          waiting.delete(over)
        }
        const over = (why: Failure): void => {
          leave()
          reject(why)
        }
        waiting.add(over)
        const settle = (error: Error | null, value?: unknown): void => {
          leave()
          if (error) reject(error)
          else resolve(value as never)
        }
        owned(start)(settle)
      }),

    // TLS connects by name, because of the certificate. This lookup returns the address that was judged a moment ago.
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
          if (!broker) throw failure('broker: LEADER_NOT_AVAILABLE')
          if (!(broker.port > 0 && broker.port < 65_536)) throw protocolFailure('a broker without an address')
          address = await allowedAddress(guard, broker)
        } catch (error) {
          callback(understood(error as Error))
          return
        }
        if (open.size > mostConnections) open.clear()
        if (checked.size > mostConnections) checked.clear()
        checked.set(broker.host, address)
        const target = { host: tls ? broker.host : address, port: broker.port }
        open.set(at(broker), target)
        owned(get)(target, callback)
      }

      pool.on('connecting', ({ connection }) => own(connection))
      const judged: Get = (broker, callback) => {
        const answer = owned(callback)
        const known = broker && open.get(at(broker))
        if (known && pool.has(known)) owned(get)(known, answer)
        else void judge(broker, answer)
      }
      pool.get = judged as ConnectionPool['get']
    }
  }
}

/** The client reads members of every error that only its own errors have. */
const understood = (error: Error): Error => (GenericError.isGenericError(error) ? error : expected(error))
