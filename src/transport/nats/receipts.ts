import type { NatsConnection } from '@nats-io/transport-node'
import { AckPolicy, jetstream, jetstreamManager, type Consumer, type JsMsg } from '@nats-io/jetstream'
import { untilAborted, waitAtMost } from '../../runtime/with-timeout.ts'
import { Failure } from '../failure.ts'
import { natsFailure, natsLink } from './connection.ts'
import {
  receiptQueue,
  messageMost,
  takeUntilDone,
  type ReadReceipts,
  type TakeReceipt,
  type ReceiptMessage,
  anyOf,
  atATime,
  inHand,
  keepTaking,
  laterMs,
  TooMuch,
  type InHand
} from '../receipts.ts'
import { sleep } from '../../runtime/repeat.ts'
import { isError } from '../../runtime/text-of.ts'

const durable = 'ackbox'
const waitMost = 1_000
// A message that is neither acknowledged nor kept by then comes again.
const ackWaitMs = 60_000
// The interval for keeping a message. The ack wait of a consumer that the operator made may be far shorter than ours.
const keepMs = 1_000
// Times after an abort: for the messages being handled, and for everything.
const finishMs = 500
const closeMs = 700
// The time that the server keeps a fetch open. It is also the longest delay after a loss of the server.
const askMs = 5_000

/**
 * Receipts from a durable pull consumer of the stream that holds the subject. The operator creates the stream; the
 * consumer is created here if it does not exist. A message is kept while it is handled here, also while PostgreSQL is away: the
 * server counts its deliveries, and an existing consumer may have a `max_deliver`.
 */
export const readReceipts: ReadReceipts = async (deps, takeReceipt, signal) => {
  const link = natsLink(deps.broker, deps, messageMost)
  // Receipts in hand may still be acknowledged, until `closeMs` is over.
  const over = new AbortController()
  const cut = (): void => {
    void sleep(closeMs, over.signal).then(() => {
      if (!over.signal.aborted) link.close()
    })
  }
  signal.addEventListener('abort', cut, { once: true })
  const hand = inHand()
  const ask = { most: atATime }
  await keepTaking(deps.log, { broker: deps.broker.name }, waitMost, signal, async ({ onOpen, onRead }) => {
    try {
      const client = await link.client()
      const consumer = await consumerOf(client)
      onOpen()
      await takeAll(consumer, client, takeReceipt, signal, hand, ask, onRead)
      return undefined
    } catch (error) {
      if (error instanceof TooMuch) {
        // Fewer at a time now, and more again after each successful fetch.
        ask.most = Math.max(1, ask.most >> 2)
        if (link.current) link.drop(link.current)
      }
      if (!(error instanceof Failure)) return consumerFailure(error).reason
      // The link logs that the broker is away.
      await sleep(waitMost, signal)
      return undefined
    }
  })
  over.abort()
  link.close()
}

async function consumerOf(client: NatsConnection): Promise<Consumer> {
  const manager = await jetstreamManager(client, { checkAPI: false })
  const stream = await manager.streams.find(receiptQueue)
  try {
    await manager.consumers.info(stream, durable)
  } catch (error) {
    if (!isMissing(error)) throw error
    await manager.consumers.add(stream, {
      durable_name: durable,
      filter_subject: receiptQueue,
      ack_policy: AckPolicy.Explicit,
      ack_wait: ackWaitMs * 1_000_000,
      max_ack_pending: 1_000,
      max_deliver: -1
    })
  }
  return jetstream(client).consumers.get(stream, durable)
}

/** Takes messages until the signal aborts, or the connection or the consumer is gone. */
async function takeAll(
  consumer: Consumer,
  client: NatsConnection,
  takeReceipt: TakeReceipt,
  signal: AbortSignal,
  hand: InHand,
  ask: { most: number },
  onRead: () => void
): Promise<void> {
  const lost = new AbortController()
  const either = anyOf(signal, lost.signal)
  void client.closed().then(() => lost.abort())
  try {
    while (!either.aborted) {
      const room = Math.min(ask.most, hand.room())
      if (room === 0) {
        await untilAborted(either, hand.oneEnded())
        continue
      }
      const messages = await consumer.fetch({ max_messages: room, expires: askMs })
      const stop = (): void => messages.stop()
      signal.addEventListener('abort', stop, { once: true })
      if (signal.aborted) stop()
      try {
        for await (const message of messages) {
          const receipt = receiptOf(message)
          hand.begin(receipt, () => take(message, receipt, takeReceipt, either))
          onRead()
        }
      } finally {
        signal.removeEventListener('abort', stop)
      }
      ask.most = Math.min(atATime, 2 * ask.most)
    }
  } finally {
    lost.abort()
    await waitAtMost(finishMs, hand.allEnded())
  }
}

/** Handles a message until it is done. After an abort an unfinished message comes again. */
async function take(
  message: JsMsg,
  receipt: ReceiptMessage,
  takeReceipt: TakeReceipt,
  signal: AbortSignal
): Promise<void> {
  const keeping = setInterval(() => keep(message), keepMs)
  const letGo = (): void => clearInterval(keeping)
  signal.addEventListener('abort', letGo, { once: true })
  try {
    if (await takeUntilDone(takeReceipt, receipt, signal)) message.ack()
    else message.nak(laterMs)
  } catch {
    // The connection is gone: the message comes again.
  } finally {
    letGo()
    signal.removeEventListener('abort', letGo)
  }
}

/** Begins the ack wait again. */
function keep(message: JsMsg): void {
  try {
    message.working()
  } catch {
    // The connection is gone: the message comes again.
  }
}

/** The client throws on an invalid header. The receipt then has no token: it is refused, and that is logged. */
export function receiptOf(message: Pick<JsMsg, 'data' | 'headers'>): ReceiptMessage {
  const texts: Record<string, string> = {}
  try {
    const { headers } = message
    for (const name of headers?.keys() ?? []) texts[name.toLowerCase()] = headers?.get(name) ?? ''
    return { body: message.data, headers: texts }
  } catch {
    return { body: message.data, headers: {} }
  }
}

const isMissing = (error: unknown): boolean =>
  isError(error) && (error.name === 'ConsumerNotFoundError' || ('code' in error && error.code === 10_014))

function consumerFailure(error: unknown): { reason: string } {
  if (isError(error) && /no stream matches subject|stream not found/.test(error.message))
    return { reason: `target_missing: no stream has ${receiptQueue}` }
  return natsFailure(error)
}
