import { setTimeout as sleep } from 'node:timers/promises'
import { Consumer, MessagesStreamModes, type Message } from '@platformatic/kafka'
import { bootstrap, credentials } from '../transport/kafka.ts'
import { address, type Consume, type Handle, type ReplyDeps } from './reply.ts'

const mostAtOnce = 100
const laterMs = 1_000
const againMs = 1_000

type Receipt = Message<Buffer, Buffer, Buffer, Buffer>

/** The group `ackbox`: every Ackbox process takes its share of the partitions. */
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

/** Reads until the stream fails or the signal aborts. */
async function read(
  { broker, guard }: ReplyDeps,
  handle: Handle,
  signal: AbortSignal,
  ready: () => void
): Promise<void> {
  const consumer = new Consumer<Buffer, Buffer, Buffer, Buffer>({
    clientId: 'ackbox-receipts',
    groupId: 'ackbox',
    bootstrapBrokers: await bootstrap(guard, broker),
    connectTimeout: 5_000,
    requestTimeout: 15_000,
    retries: 0,
    maxWaitTime: 1_000,
    ...credentials(broker),
    ...(broker.tls ? { tls: {}, tlsServerName: true } : {})
  })
  consumer.on('error' as never, () => {})
  const close = async (): Promise<void> => {
    const closed = new Promise<void>(resolve => consumer.close(true, () => resolve()))
    await Promise.race([closed, sleep(1_000)])
  }
  const stop = (): void => void close()
  signal.addEventListener('abort', stop, { once: true })
  try {
    const stream = await consumer.consume({
      topics: [address],
      autocommit: false,
      mode: MessagesStreamModes.COMMITTED,
      fallbackMode: 'earliest'
    })
    ready()
    let batch: Receipt[] = []
    // What has come is taken together, so that one commit of offsets serves many.
    const iterator = stream[Symbol.asyncIterator]() as AsyncIterator<Receipt>
    let next = iterator.next()
    while (!signal.aborted) {
      const { value, done } = await next
      if (done === true || signal.aborted) break
      batch.push(value)
      next = iterator.next()
      next.catch(() => {}) // heard of when it is awaited
      const more = await Promise.race([
        next.then(() => true),
        Promise.resolve()
          .then(() => sleep(5))
          .then(() => false)
      ])
      if (more && batch.length < mostAtOnce) continue
      await Promise.all(batch.map(message => until(handle, message, signal)))
      if (signal.aborted) break
      await consumer.commit({ offsets: offsetsOf(batch) })
      batch = []
    }
    if (!signal.aborted) throw new Error('the stream ended')
  } finally {
    signal.removeEventListener('abort', stop)
    await close()
  }
}

/** Again and again until it is done: offsets are committed behind what is done only. */
async function until(handle: Handle, { value, headers }: Receipt, signal: AbortSignal): Promise<void> {
  const reply = {
    body: value,
    headers: Object.fromEntries(
      [...headers].map(([name, text]) => [String(name).toLowerCase(), String(text)])
    )
  }
  while (!signal.aborted && (await handle(reply).catch(() => 'later')) === 'later')
    await sleep(laterMs, undefined, { signal }).catch(() => {})
}

/** Where each partition goes on. */
function offsetsOf(batch: readonly Receipt[]) {
  const last = new Map<number, bigint>()
  for (const { partition, offset } of batch) last.set(partition, offset + 1n)
  return Array.from(last, ([partition, offset]) => ({
    topic: address,
    partition,
    offset,
    leaderEpoch: -1
  }))
}
