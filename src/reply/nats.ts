import { setTimeout as sleep } from 'node:timers/promises'
import { AckPolicy, jetstream, jetstreamManager, type ConsumerMessages } from '@nats-io/jetstream'
import { connect, type NatsConnection } from '@nats-io/transport-node'
import { at, reach } from '../transport/broker.ts'
import { address, type Consume, type Handle, type ReplyDeps } from './reply.ts'

const mostAtOnce = 100
/** A receipt that is not acknowledged for so long comes again, ns. */
const ackWaitNs = 30_000_000_000
const laterMs = 1_000
const againMs = 1_000

/** The durable consumer `ackbox` of the stream that holds the subject; every Ackbox process takes its share of it. */
export const consume: Consume = async (deps, handle, signal) => {
  const { broker, log } = deps
  let isAway = false
  while (!signal.aborted) {
    try {
      await read(deps, handle, signal, () => {
        if (isAway) log.info({ broker: broker.name }, 'receipts.back')
        isAway = false
      })
    } catch (error) {
      if (signal.aborted) return
      const reason = error instanceof Error ? error.message : String(error)
      if (!isAway) log.warn({ broker: broker.name, reason }, 'receipts.away')
      isAway = true
    }
    await sleep(againMs, undefined, { signal }).catch(() => {}) // an abort only ends the wait
  }
}

/** Reads until the connection ends or the signal aborts. */
async function read(
  { broker, guard }: ReplyDeps,
  handle: Handle,
  signal: AbortSignal,
  ready: () => void
): Promise<void> {
  const connection = await open({ broker, guard })
  const underway = new Set<Promise<void>>()
  let messages: ConsumerMessages | undefined
  const stop = (): void => void messages?.close()
  try {
    const manager = await jetstreamManager(connection)
    const stream = await manager.streams.find(address)
    await manager.consumers.add(stream, {
      durable_name: 'ackbox',
      filter_subject: address,
      ack_policy: AckPolicy.Explicit,
      ack_wait: ackWaitNs,
      max_ack_pending: 1_000
    })
    const consumer = await jetstream(connection).consumers.get(stream, 'ackbox')
    messages = await consumer.consume({ max_messages: mostAtOnce })
    signal.addEventListener('abort', stop, { once: true })
    if (signal.aborted) return
    ready()
    const ended = connection.closed().then(stop)
    for await (const message of messages) {
      const names = message.headers?.keys() ?? []
      const reply = {
        body: message.data,
        headers: Object.fromEntries(names.map(name => [name.toLowerCase(), message.headers?.get(name) ?? '']))
      }
      const one = handle(reply)
        .then(done => (done === 'done' ? message.ack() : message.nak(laterMs)))
        // Not acknowledged: it comes again after its wait.
        .catch(() => {})
        .finally(() => underway.delete(one))
      underway.add(one)
      if (underway.size >= mostAtOnce) await Promise.race(underway)
    }
    await Promise.all(underway)
    if (!signal.aborted) {
      await ended
      throw new Error('the connection was closed')
    }
    // Acks are only written here; a close at once would leave them behind.
    await Promise.race([connection.flush().catch(() => {}), sleep(500)])
  } finally {
    signal.removeEventListener('abort', stop)
    await Promise.race([connection.close(), sleep(500)])
  }
}

async function open({ broker, guard }: Pick<ReplyDeps, 'broker' | 'guard'>): Promise<NatsConnection> {
  let failure: unknown
  for (const { host, port } of broker.hosts) {
    try {
      const ip = await reach(guard, { host, port })
      return await connect({
        servers: at({ host: ip, port }),
        ...(broker.username === undefined ? {} : { user: broker.username, pass: broker.password ?? '' }),
        ...(broker.options['token'] === undefined ? {} : { token: broker.options['token'] }),
        tls: broker.tls ? { ...({ servername: host } as object) } : null,
        name: 'ackbox receipts',
        timeout: 5_000,
        reconnect: false,
        pingInterval: 5_000,
        maxPingOut: 2,
        ignoreClusterUpdates: true
      })
    } catch (error) {
      failure = error
    }
  }
  throw failure
}
