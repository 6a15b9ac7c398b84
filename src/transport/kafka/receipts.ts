import {
  Consumer,
  instancesChannel,
  MessagesStreamFallbackModes,
  MessagesStreamModes,
  type ConnectionPool,
  type Message,
  type MessagesStream
} from '@platformatic/kafka'
import { untilAborted, waitAtMost } from '../../runtime/with-timeout.ts'
import { outcomeOf } from './failure.ts'
import { kafkaLink, linkOptions, type KafkaLink } from './connection.ts'
import {
  receiptQueue as topic,
  type TakeReceipt,
  type ReceiptMessage,
  type ReceiptReaderDeps,
  type ReaderEvents,
  anyOf,
  takeUntilDone,
  inHand,
  keepTaking,
  type InHand
} from '../receipts.ts'
import { sleep } from '../../runtime/repeat.ts'

const commitMs = 200
/** After an abort, the time in which receipts in hand may still be committed. */
const goMs = 400
const waitMost = 10_000
/** Bytes of one fetch. It limits the number of small batches; a single larger batch comes anyway. */
const fetchBytes = 65_536
const joinMs = 60_000

type Stream = MessagesStream<Buffer, Buffer, Buffer, Buffer>

/** Reads as the group `ackbox`, from the beginning of the topic if the group has no offsets yet. */
export async function readReceipts(
  deps: ReceiptReaderDeps,
  takeReceipt: TakeReceipt,
  signal: AbortSignal,
  waitMs = waitMost
): Promise<void> {
  const { broker, log } = deps
  const hand = inHand()
  let turn = 0
  await keepTaking(log, { broker: broker.name, topic }, waitMs, signal, async events => {
    try {
      await took(deps, turn++, takeReceipt, hand, signal, events)
      return 'connection_closed'
    } catch (error) {
      return outcomeOf(error).reason
    }
  })
}

/** Takes records until the stream ends or fails, or the signal aborts. */
async function took(
  deps: ReceiptReaderDeps,
  turn: number,
  takeReceipt: TakeReceipt,
  hand: InHand,
  signal: AbortSignal,
  { onOpen, onRead }: ReaderEvents
): Promise<void> {
  const { consumer, link, forget } = open(deps, turn)
  const out = outOfGroup(consumer)
  const done = progress()
  const over = new AbortController()
  const either = anyOf(signal, over.signal)
  try {
    const options = {
      topics: [topic],
      mode: MessagesStreamModes.COMMITTED,
      fallbackMode: MessagesStreamFallbackModes.EARLIEST,
      autocommit: false,
      maxWaitTime: 500,
      maxBytes: fetchBytes,
      // Only one fetch ahead: the mark counts messages, not bytes, and a message may have a megabyte.
      highWaterMark: 1
    }
    const stream = await untilAborted(
      signal,
      link.within<Stream>(joinMs, done => consumer.consume(options, done))
    )
    if (!stream) return
    onOpen()
    const committing = committer(consumer, done, either)
    const taking = take(stream, takeReceipt, hand, done, either, onRead)
    // The loser of the race may still fail later.
    taking.catch(() => {})
    committing.catch(() => {})
    await untilAborted(signal, Promise.race([taking, committing, out, link.lost()]))
    over.abort()
    if (signal.aborted) await waitAtMost(goMs, settle(consumer, done))
  } finally {
    over.abort()
    await link.within(goMs, done => consumer.close(true, done)).catch(() => {})
    link.end()
    forget()
  }
}

function open(
  { broker, guard }: ReceiptReaderDeps,
  turn: number
): {
  consumer: Consumer
  link: KafkaLink
  forget: () => void
} {
  const link = kafkaLink(guard, broker.tls, 'reads')
  const consumer = new Consumer({
    ...linkOptions(broker, link, turn),
    groupId: 'ackbox',
    sessionTimeout: 10_000,
    heartbeatInterval: 2_000,
    rebalanceTimeout: 10_000
  })
  consumer.on('error', () => {})
  link.guarded(consumer.connections)
  ownCalls(consumer, link)
  // A stream has its own connections. They are made and used before `consume` returns the stream.
  const made = (message: unknown): void => {
    const { type, instance } = message as { type: string; instance: ConnectionPool & Stream }
    if (type === 'connection-pool' && instance.ownerId === consumer.instanceId) link.guarded(instance)
    // The stream may fail before or after it is read.
    if (type === 'messages-stream' && instance.consumer === consumer) instance.on('error', () => {})
  }
  instancesChannel.subscribe(made)
  return { consumer, link, forget: () => instancesChannel.unsubscribe(made) }
}

/**
 * Rejects when a heartbeat or the join after it fails: the client then sends no more heartbeats, and the broker takes it from the
 * group. Without a partition a reader would not notice.
 */
function outOfGroup(consumer: Consumer): Promise<never> {
  const out = new Promise<never>((_, reject) => {
    consumer.once('error', reject)
    consumer.once('consumer:heartbeat:error', ({ error }) => reject(error))
  })
  // It may fail before it is awaited, or after.
  out.catch(() => {})
  return out
}

const calls = ['metadata', 'fetch', 'commit', 'listOffsets', 'listCommittedOffsets'] as const

/** The stream uses its consumer only through these methods, partly in its own timers. The link catches what their callbacks throw. */
function ownCalls(consumer: Consumer, link: KafkaLink): void {
  type Call = (options: unknown, callback?: (...given: unknown[]) => void) => unknown
  for (const name of calls) {
    const call = consumer[name].bind(consumer) as Call
    const owned: Call = (options, callback) => call(options, callback && link.owned(callback))
    Object.assign(consumer, { [name]: owned })
  }
}

async function take(
  stream: AsyncIterable<Message>,
  takeReceipt: TakeReceipt,
  hand: InHand,
  done: Progress,
  signal: AbortSignal,
  onRead: () => void
): Promise<void> {
  for await (const message of stream) {
    if (signal.aborted) return
    const { partition, offset } = message
    if (!done.begin(partition, offset)) continue
    const receipt = receiptOf(message)
    // The offset is not committed before the receipt is done.
    hand.begin(receipt, async () => {
      if (await takeUntilDone(takeReceipt, receipt, signal)) done.end(partition, offset)
    })
    onRead()
    while (hand.room() === 0 && !signal.aborted) await untilAborted(signal, hand.oneEnded())
  }
}

/** Commits the finished offsets every `commitMs`. Rejects when a commit fails. */
async function committer(consumer: Consumer, done: Progress, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await sleep(commitMs, signal)
    if (!signal.aborted) await commit(consumer, done)
  }
}

/** After an abort, waits a moment for the receipts that are being handled. */
async function settle(consumer: Consumer, done: Progress): Promise<void> {
  for (const end = Date.now() + goMs / 2; done.busy() && Date.now() < end;) await sleep(10)
  await commit(consumer, done)
}

async function commit(consumer: Consumer, done: Progress): Promise<void> {
  const offsets = done.news()
  if (offsets.length === 0) return
  await consumer.commit({ offsets: offsets.map(each => ({ ...each, topic, leaderEpoch: -1 })) })
}

export function receiptOf({ value, headers }: Pick<Message, 'value' | 'headers'>): ReceiptMessage {
  const texts: Record<string, string> = {}
  for (const [name, text] of headers) texts[String(name).toLowerCase()] = String(text ?? '')
  // A copy: a slice would keep the whole answer in memory.
  return { body: Buffer.from(value ?? ''), headers: texts }
}

/** The open records of each partition. A commit never passes a record that is not done. */
export interface Progress {
  /** False: the record is already being handled. */
  begin(partition: number, offset: bigint): boolean
  end(partition: number, offset: bigint): void
  busy(): boolean
  /** Offsets that can be committed now. Each is returned once. */
  news(): { partition: number; offset: bigint }[]
}

interface Partition {
  open: Set<bigint>
  next: bigint
  reported: bigint | undefined
}

export function progress(): Progress {
  const partitions = new Map<number, Partition>()

  return {
    begin(number, offset) {
      let partition = partitions.get(number)
      if (!partition) {
        partition = { open: new Set(), next: offset, reported: offset }
        partitions.set(number, partition)
      }
      if (partition.open.has(offset)) return false
      partition.open.add(offset)
      if (offset >= partition.next) partition.next = offset + 1n
      return true
    },

    end: (number, offset) => {
      partitions.get(number)?.open.delete(offset)
    },

    busy: () => [...partitions.values()].some(each => each.open.size > 0),

    news() {
      const offsets: { partition: number; offset: bigint }[] = []
      for (const [number, partition] of partitions) {
        let offset = partition.next
        for (const each of partition.open) if (each < offset) offset = each
        if (offset === partition.reported) continue
        partition.reported = offset
        offsets.push({ partition: number, offset })
      }
      return offsets
    }
  }
}
