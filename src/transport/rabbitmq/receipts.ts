import type { AsyncMessage, Channel, Connection } from 'rabbitmq-client'
import { untilAborted, waitAtMost } from '../../runtime/with-timeout.ts'
import { Failure, failureOf } from '../failure.ts'
import { brokenBy, codeOf, dial } from './dial.ts'
import {
  receiptQueue as queue,
  messageMost,
  takeUntilDone,
  type ReadReceipts,
  type TakeReceipt,
  type ReceiptMessage,
  type ReceiptReaderDeps,
  type ReaderEvents,
  anyOf,
  atATime,
  inHand,
  keepTaking,
  TooMuch,
  type InHand
} from '../receipts.ts'

/** After an abort, the time in which receipts in hand may still be acknowledged. */
const goMs = 500
const settleMs = 5_000
const waitMost = 15_000

/**
 * Reads a durable queue. Creates it if it is missing and the user may. A message stays unacknowledged while it is handled here, also
 * while PostgreSQL is away: a quorum queue counts each return, and drops a message after the last one. It returns when the
 * connection ends.
 */
export const readReceipts: ReadReceipts = async (deps, takeReceipt, signal) => {
  const { broker, log } = deps
  let host = 0
  let prefetch = atATime
  const hand = inHand()
  await keepTaking(log, { broker: broker.name, queue }, waitMost, signal, async ({ onOpen, onRead }) => {
    let reason: string
    let wasTooMuch = false
    try {
      const mayCome = (bytes: number, coming: number): boolean => bytes + coming <= messageMost
      const dialed = await dial(deps.guard, broker, host, mayCome, signal)
      host = dialed.host
      const { connection, address } = dialed
      const events = { onOpen: () => onOpen({ address }), onRead }
      reason = await took(deps, connection, takeReceipt, hand, prefetch, signal, events)
    } catch (error) {
      wasTooMuch = error instanceof TooMuch
      reason = failureOf(error).reason
    }
    // These messages are larger than any receipt: fewer at a time on the next connection.
    prefetch = wasTooMuch ? Math.max(1, prefetch >> 2) : atATime
    host++
    return reason
  })
}

/** Takes messages until the connection or its channel ends, or the signal aborts. Returns the reason. */
async function took(
  deps: ReceiptReaderDeps,
  connection: Connection,
  takeReceipt: TakeReceipt,
  hand: InHand,
  prefetch: number,
  signal: AbortSignal,
  { onOpen, onRead }: ReaderEvents
): Promise<string> {
  const stop = new AbortController()
  const either = anyOf(signal, stop.signal)
  const over = new Promise<string>(resolve => {
    connection.on('error', (error: unknown) => resolve(brokenBy(error).reason))
    signal.addEventListener('abort', () => resolve('shutdown'), { signal: stop.signal })
    if (signal.aborted) resolve('shutdown')
  })
  let consuming: Consuming | undefined
  const flood = new AbortController()
  const flooded = new Promise<never>((_, reject) => {
    flood.signal.addEventListener('abort', () => reject(flood.signal.reason as Error), {
      signal: stop.signal
    })
  })
  const ended = async (): Promise<string> => {
    consuming = await start(connection, prefetch, message => {
      // Messages after a flood are not taken, and come again.
      if (signal.aborted || !consuming || flood.signal.aborted) return
      const { channel } = consuming
      const receipt = receiptOf(message)
      try {
        hand.begin(receipt, () => answer(deps, channel, message.deliveryTag, receipt, takeReceipt, either))
        onRead()
      } catch (error) {
        flood.abort(error)
      }
    })
    onOpen()
    return consuming.ended
  }
  try {
    return await Promise.race([over, flooded, ended().catch((error: unknown) => problemOf(error))])
  } finally {
    stop.abort()
    if (signal.aborted && consuming) await goodBye(connection, consuming, hand)
    connection.unsafeDestroy()
    // The messages of this connection still count towards the hundred that are handled at a time.
    if (!signal.aborted) await waitAtMost(settleMs, untilAborted(signal, hand.allEnded()))
  }
}

interface Consuming {
  channel: Channel
  tag: string
  /** Resolves when the server ends it: the queue was deleted, the channel closed. */
  ended: Promise<string>
}

async function start(
  connection: Connection,
  prefetch: number,
  onMessage: (message: AsyncMessage) => void
): Promise<Consuming> {
  const channel = await existing(connection)
  const ended = new Promise<string>(resolve => {
    channel.on('basic.cancel', () => resolve('target_missing: the queue was deleted'))
    channel.on('error', (error: unknown) => resolve(problemOf(error)))
    channel.on('close', () => resolve('channel_closed'))
  })
  await channel.basicQos({ prefetchCount: prefetch })
  const { consumerTag } = await channel.basicConsume({ queue, noAck: false }, onMessage)
  return { channel, tag: consumerTag, ended }
}

/** A channel to the queue, whatever its type and arguments are. A missing queue is created. */
async function existing(connection: Connection): Promise<Channel> {
  const first = await open(connection)
  try {
    await first.queueDeclare({ queue, passive: true })
    return first
  } catch (error) {
    if (codeOf(error) !== 'NOT_FOUND') throw error
  }
  // The server closed the first channel because of the missing queue.
  const second = await open(connection)
  await second.queueDeclare({ queue, durable: true })
  return second
}

async function open(connection: Connection): Promise<Channel> {
  const channel = await connection.acquire({ emitErrorsFromChannel: true })
  // Errors are handled by the calls that wait for them. An 'error' without a listener ends the process.
  channel.on('error', () => {})
  return raw(channel)
}

async function answer(
  { broker, log }: ReceiptReaderDeps,
  channel: Channel,
  deliveryTag: number,
  receipt: ReceiptMessage,
  takeReceipt: TakeReceipt,
  signal: AbortSignal
): Promise<void> {
  const logged: TakeReceipt = async message => {
    try {
      return await takeReceipt(message)
    } catch (err) {
      log.warn({ err, broker: broker.name, queue }, 'receipt.failed')
      return 'later'
    }
  }
  try {
    if (await takeUntilDone(logged, receipt, signal)) channel.basicAck({ deliveryTag })
  } catch {
    // The channel is gone: the server has returned the message to the queue, and it comes again.
  }
}

export function receiptOf({ body, headers = {} }: Pick<AsyncMessage, 'body' | 'headers'>): ReceiptMessage {
  const texts: Record<string, string> = {}
  const all: [string, unknown][] = Object.entries(headers)
  for (const [name, value] of all) {
    if (typeof value === 'string') texts[name.toLowerCase()] = value
    else if (typeof value === 'number' || typeof value === 'boolean')
      texts[name.toLowerCase()] = String(value)
    // Clients for Python and Ruby send bytes.
    else if (value instanceof Uint8Array) texts[name.toLowerCase()] = Buffer.from(value).toString()
  }
  return { body: body as Buffer, headers: texts }
}

/** Stops new messages, and waits a moment for those being handled and for the server to read the acknowledgements. */
async function goodBye(connection: Connection, { channel, tag }: Consuming, hand: InHand) {
  await waitAtMost(goMs, Promise.all([channel.basicCancel(tag), hand.allEnded()]))
  await waitAtMost(
    goMs / 2,
    channel.close().then(() => connection.close())
  )
}

function problemOf(error: unknown): string {
  const code = codeOf(error)
  if (error instanceof Failure) return error.outcome.reason
  if (code === 'NOT_FOUND') return 'target_missing: the queue does not exist'
  if (code === 'ACCESS_REFUSED') return 'credentials: this user may not use the queue'
  return brokenBy(error).reason
}

/**
 * The client parses a body that is marked as JSON or text, which changes numbers beyond 2^53 and text that is not UTF-8. It has no
 * option against that, so the content type of each message is removed first. Bodies are then always the bytes that came.
 */
export function raw(channel: Channel): Channel {
  const inner = channel as unknown as { _onHeader?(frame: { fields: { contentType?: string } }): void }
  const onHeader = inner._onHeader?.bind(channel)
  if (!onHeader) throw new Error('rabbitmq-client has changed: bodies would not be what was sent')
  inner._onHeader = frame => {
    delete frame.fields.contentType
    onHeader(frame)
  }
  return channel
}
