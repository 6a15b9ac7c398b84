// A separate process with one reader of the network, so that the effect of a server on it is measured from outside.
import { primaryOf } from '../../src/db/hosts.ts'
import { monitor } from '../../fuzz/monitor.ts'
import { startReceiptReaders } from '../../src/transport/receipt-readers.ts'
import { openBackend } from '../../src/queue/backend.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { transports } from '../../src/transport/registry.ts'
import { sendContext } from './send-context.ts'
import { ways } from './everywhere.ts'

export type Asked = { send: number } | { close: true }
export type Told =
  | { ready: true }
  | { outcome: unknown; blockMs: number; receipts: number }
  | { closed: true }

const [kind = '', place = ''] = process.argv.slice(2)
const tell = (told: Told): void => void process.send?.(told)
const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} }
const egress = guard({ allow: undefined, embedded: true, deny: [] })

const watch = monitor()

interface Reader {
  send(timeoutMs: number): Promise<unknown>
  close(): Promise<unknown>
}
let receipts = 0

function brokerOf(name: string, scheme: string): Broker {
  const broker = parseBroker(name, `${scheme}://${place}`)
  if (typeof broker === 'string') throw new Error(broker)
  return broker
}

async function sender(name: keyof typeof ways): Promise<Reader> {
  const { scheme, request } = ways[name]
  const brokers = new Map([[name as string, brokerOf(name, scheme)]])
  const transport = (await transports({ guard: egress, brokers, log }, [name]))[name]
  if (!transport) throw new Error(`no transport ${name}`)
  return {
    send: timeoutMs => transport.send(request, sendContext({ timeoutMs, raw: '{"n":1}' })),
    close: () => transport.close()
  }
}

/** Receipts from a queue; PostgreSQL takes them soon or is read-only. Here a send only waits while they arrive. */
async function receiver(name: string, scheme: string, isReadOnly = false): Promise<Reader> {
  const stop = new AbortController()
  const { done } = await startReceiptReaders({
    brokers: [brokerOf(name, scheme)],
    guard: egress,
    log,
    async take() {
      receipts++
      await new Promise(resolve => setTimeout(resolve, 10))
      if (isReadOnly) throw new Error('read-only')
    },
    faultOf: () => (isReadOnly ? 'database' : 'sender'),
    signal: stop.signal
  })
  return {
    send: ms => new Promise(resolve => setTimeout(resolve, ms)).then(() => ({ kind: 'failed' })),
    close() {
      stop.abort()
      return done
    }
  }
}

/** BullMQ on Redis: a worker that takes jobs, and a producer that adds jobs. */
async function queue(): Promise<Reader> {
  const backend = await openBackend({
    redisUrl: `redis://${place}`,
    database: primaryOf(''),
    prefix: 'ackbox',
    queues: ['orders'],
    worker: 'flooded',
    log
  })
  const consumer = await backend.consumer('orders', { lockMs: 30_000, onError: () => {} })
  let closed = false
  const taking = (async () => {
    while (!closed) {
      const taken = await consumer
        .take()
        .catch(() => new Promise<undefined>(resolve => setTimeout(() => resolve(undefined), 50)))
      await taken?.done().catch(() => {})
    }
  })()
  return {
    async send(ms) {
      const late = new Promise(resolve => setTimeout(resolve, ms)).then(() => {
        throw new Error('late')
      })
      const added = backend.add('orders', [[['00000000-0000-4000-8000-000000000000', 1]]])
      return Promise.race([added, late]).then(
        () => ({ kind: 'delivered' }),
        () => ({ kind: 'failed' })
      )
    },
    async close() {
      closed = true
      await backend.close()
      await consumer.close().catch(() => {})
      await taking
    }
  }
}

// The code is loaded before the measurement. A reader connects when the first message arrives.
const makers: Record<string, () => Promise<Reader>> = {
  'redis-queue': queue,
  'reply-nats': () => receiver('nats', 'nats'),
  'reply-rabbitmq': () => receiver('rabbitmq', 'amqp'),
  'reply-rocketmq': () => receiver('rocketmq', 'rocketmq', true)
}
if (kind === 'reply-nats') await import('../../src/transport/nats/receipts.ts')
if (kind === 'reply-rabbitmq') await import('../../src/transport/rabbitmq/receipts.ts')
if (kind === 'reply-rocketmq') await import('../../src/transport/rocketmq/receipts.ts')
let making = makers[kind] ? undefined : sender(kind as keyof typeof ways)
await making

process.on('message', (asked: Asked) => void serve(asked))
async function serve(asked: Asked): Promise<void> {
  const reader = await (making ??= makers[kind]?.())
  if (!reader) return
  if ('close' in asked) {
    await reader.close()
    tell({ closed: true })
    return
  }
  const outcome = await reader.send(asked.send)
  // The work of this turn counts too
  await new Promise(resolve => setTimeout(resolve, 10))
  tell({ outcome, blockMs: watch.longestBlockMs(), receipts })
}
process.on('disconnect', () => process.exit())
watch.longestBlockMs() // resets it: loading does not count
tell({ ready: true })
