import { setTimeout as sleep } from 'node:timers/promises'
import {
  Consumer,
  instancesChannel,
  MessagesStreamFallbackModes,
  MessagesStreamModes,
  type ConnectionPool,
  type Message
} from '@platformatic/kafka'
import { failed } from '../transport/kafka/failed.ts'
import { link, linkOptions } from '../transport/kafka/link.ts'
import { progress, type Progress } from './kafka-progress.ts'
import { address as topic, type Consume, type Handle, type Reply, type ReplyDeps } from './reply.ts'

const most = 100
/** A receipt that must come again is handed over again after this; it is not committed meanwhile. */
const laterMs = 1_000
const commitMs = 200
/** What is being handled when we must go may still be committed within this. */
const goMs = 400
const waitMost = 10_000

/** In the group `ackbox`, from the topic's beginning where the group has no offsets yet. */
export const consume: Consume = async (deps, handle, signal) => {
  const { broker, log } = deps
  let failures = 0
  while (!signal.aborted) {
    let reason = 'connection_closed'
    try {
      await took(deps, handle, signal, () => {
        if (failures > 0) log.info({ broker: broker.name, topic }, 'receipts.back')
        failures = 0
      })
    } catch (error) {
      reason = failed(error).reason
    }
    if (signal.aborted) return
    if (failures++ === 0) log.warn({ broker: broker.name, topic, reason }, 'receipts.away')
    await sleep(Math.min(waitMost, 250 * 2 ** failures), undefined, { signal }).catch(() => {})
  }
}

/** Takes records until the stream ends or fails, or until we must go. */
async function took(
  deps: ReplyDeps,
  handle: Handle,
  signal: AbortSignal,
  onReady: () => void
): Promise<void> {
  const { consumer, forget } = open(deps)
  const done = progress()
  const over = new AbortController()
  const either = AbortSignal.any([signal, over.signal])
  try {
    const stream = await until(
      signal,
      consumer.consume({
        topics: [topic],
        mode: MessagesStreamModes.COMMITTED,
        fallbackMode: MessagesStreamFallbackModes.EARLIEST,
        autocommit: false,
        maxWaitTime: 500,
        highWaterMark: most
      })
    )
    if (!stream) return
    onReady()
    const committing = committer(consumer, done, either)
    const taking = take(stream, deps, handle, done, either)
    // Left by the other end, either may fail after we have gone.
    taking.catch(() => {})
    committing.catch(() => {})
    await until(signal, Promise.race([taking, committing]))
    over.abort()
    if (signal.aborted) await within(goMs, settle(consumer, done))
  } finally {
    over.abort()
    forget()
    await within(goMs, new Promise<void>(resolve => consumer.close(true, () => resolve())))
  }
}

function open({ broker, guard }: ReplyDeps): { consumer: Consumer; forget: () => void } {
  const way = link(guard, broker.tls)
  const consumer = new Consumer({
    ...linkOptions(broker, way),
    groupId: 'ackbox',
    sessionTimeout: 10_000,
    heartbeatInterval: 2_000,
    rebalanceTimeout: 10_000
  })
  consumer.on('error', () => {})
  way.guarded(consumer.connections)
  // A stream has connections of its own, made and used before we are given it.
  const made = (message: unknown): void => {
    const { type, instance } = message as { type: string; instance: ConnectionPool }
    if (type === 'connection-pool' && instance.ownerId === consumer.instanceId) way.guarded(instance)
  }
  instancesChannel.subscribe(made)
  return { consumer, forget: () => instancesChannel.unsubscribe(made) }
}

async function take(
  stream: AsyncIterable<Message>,
  { broker, log }: ReplyDeps,
  handle: Handle,
  done: Progress,
  signal: AbortSignal
): Promise<void> {
  const handling = new Set<Promise<void>>()
  for await (const message of stream) {
    if (signal.aborted) return
    const { partition, offset } = message
    if (!done.begin(partition, offset)) continue
    const reply = replyOf(message)
    const one = untilDone(reply).then(finished => {
      handling.delete(one)
      if (finished) done.end(partition, offset)
    })
    handling.add(one)
    if (handling.size >= most) await Promise.race(handling)
  }

  async function untilDone(reply: Reply): Promise<boolean> {
    while (!signal.aborted) {
      try {
        if ((await handle(reply)) === 'done') return true
      } catch (err) {
        log.warn({ err, broker: broker.name, topic }, 'receipt.threw')
      }
      await sleep(laterMs, undefined, { signal }).catch(() => {})
    }
    return false
  }
}

/** Commits what is done every now and then. Fails when the broker does. */
async function committer(consumer: Consumer, done: Progress, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await sleep(commitMs, undefined, { signal }).catch(() => {})
    if (!signal.aborted) await commit(consumer, done)
  }
}

/** What was being handled when we had to go gets a moment to be done. */
async function settle(consumer: Consumer, done: Progress): Promise<void> {
  for (const end = Date.now() + goMs / 2; done.busy() && Date.now() < end;) await sleep(10)
  await commit(consumer, done)
}

async function commit(consumer: Consumer, done: Progress): Promise<void> {
  const offsets = done.news()
  if (offsets.length === 0) return
  await consumer.commit({ offsets: offsets.map(each => ({ ...each, topic, leaderEpoch: -1 })) })
}

function replyOf({ value, headers }: Message): Reply {
  const texts: Record<string, string> = {}
  for (const [name, text] of headers) texts[String(name).toLowerCase()] = String(text ?? '')
  return { body: value ?? Buffer.alloc(0), headers: texts }
}

async function until<T>(signal: AbortSignal, work: Promise<T>): Promise<T | undefined> {
  if (signal.aborted) return undefined
  const stop = new AbortController()
  const gone = new Promise<undefined>(resolve => {
    signal.addEventListener('abort', () => resolve(undefined), { signal: stop.signal })
  })
  work.catch(() => {})
  try {
    return await Promise.race([work, gone])
  } finally {
    stop.abort()
  }
}

async function within(ms: number, work: Promise<unknown>): Promise<void> {
  const timer = new AbortController()
  await Promise.race([work.catch(() => {}), sleep(ms, undefined, { signal: timer.signal }).catch(() => {})])
  timer.abort()
}
