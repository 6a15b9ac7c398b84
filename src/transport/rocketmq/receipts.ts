import { gunzipSync } from 'node:zlib'
import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js'
import { untilAborted, waitAtMost } from '../../runtime/with-timeout.ts'
import { protocolFailure } from '../judged.ts'
import {
  messageMost,
  type ReadReceipts,
  type TakeReceipt,
  type ReceiptMessage,
  anyOf,
  atATime,
  takeUntilDone,
  inHand,
  keepTaking,
  TooMuch,
  type InHand
} from '../receipts.ts'
import { subscribe, type Consumer } from './consumer.ts'
import { proxiesOf } from './proxy.ts'
import { invisibleMs, type MessageOfTopic, type QueueHolder, type TakenMessage } from './receive.ts'
import { failureOfCall, isTooLarge } from './status.ts'
import { sleep } from '../../runtime/repeat.ts'

/** A topic of RocketMQ may not have a dot in its name. */
const topic = 'ackbox-receipts'
const group = 'ackbox'
/** The most messages that RocketMQ returns at once. */
const batchMost = 32
/** The shortest time between two empty receives. A proxy without messages should keep a receive open, but may answer at once. */
const restMs = 250
/** The interval for keeping a message: twice within `invisibleMs`, after which it would come again. */
const keepMs = 7_000
const waitMost = 15_000
/** Times for the receipts being handled: after an abort, and when a proxy is gone. */
const finishMs = 500
const settleMs = 5_000
/** Bytes of a message's headers and of the protocol around it. */
const wrapped = 65_536
/** Bytes of an unpacked receipt: far above any real one, and far below the thousandfold that gzip can reach. */
const unpackedMost = 131_072
const propertiesMost = 1_000

/**
 * Reads as the consumer group `ackbox`. A message stays invisible to others while it is handled here: RocketMQ counts the
 * deliveries of a message, and sets it aside after the last one.
 */
export const readReceipts: ReadReceipts = async (deps, takeReceipt, signal) => {
  const { broker, log } = deps
  const proxies = proxiesOf(deps.guard, broker, messageMost + wrapped)
  const hand = inHand()
  let slowUntil = 0
  let turn = 0
  await keepTaking(log, { broker: broker.name, topic }, waitMost, signal, async ({ onRead }) => {
    try {
      // A message that is too large also fails the messages behind it, and they may come together again.
      const batch = (): number => (performance.now() < slowUntil ? 1 : batchMost)
      const to = { broker, proxies, topic, group }
      const subscribing = subscribe(to, turn++)
      const consumer = await untilAborted(signal, subscribing)
      if (!consumer) {
        // Otherwise its streams would stay open.
        void subscribing.then(late => late.close()).catch(() => {})
        return undefined
      }
      try {
        await takeAll(consumer, takeReceipt, hand, batch, signal, onRead)
        return undefined
      } finally {
        consumer.close()
      }
    } catch (error) {
      if (isTooLarge(error) || error instanceof TooMuch) slowUntil = performance.now() + 2 * invisibleMs
      return (isTooLarge(error) ? tooLarge : failureOfCall(error)).reason
    }
  })
  proxies.close()
}

const tooLarge = protocolFailure(`a message of more than ${messageMost} bytes`).outcome

/** Takes messages until the signal aborts, the route changes, or a proxy is gone. */
async function takeAll(
  { sources, over }: Consumer,
  takeReceipt: TakeReceipt,
  hand: InHand,
  batch: () => number,
  signal: AbortSignal,
  onRead: () => void
): Promise<void> {
  const end = new AbortController()
  const either = anyOf(signal, end.signal)
  let requested = 0
  const share = Math.max(1, Math.floor(atATime / sources.length))

  async function takeFrom(source: QueueHolder): Promise<void> {
    while (!either.aborted) {
      const most = Math.min(share, batch(), hand.room() - requested)
      if (most <= 0) {
        await untilAborted(either, hand.oneEnded())
        continue
      }
      requested += most
      const since = performance.now()
      let isEmpty = true
      try {
        await source.receive(most, either, (message, taken) => {
          isEmpty = false
          const receipt = receiptOf(message)
          hand.begin(receipt, () => take(receipt, taken, takeReceipt, either))
        })
        onRead()
      } finally {
        requested -= most
      }
      const leftMs = since + restMs - performance.now()
      if (isEmpty && leftMs > 0) await sleep(leftMs, either)
    }
  }

  const taking = Promise.race([over, Promise.all(sources.map(takeFrom))])
  try {
    await untilAborted(signal, taking)
  } finally {
    end.abort()
    await waitAtMost(settleMs, untilAborted(signal, hand.allEnded()))
    if (signal.aborted) await waitAtMost(finishMs, hand.allEnded())
  }
}

/** Handles a message until it is done. After an abort an unfinished message comes again. */
async function take(
  message: ReceiptMessage,
  taken: TakenMessage,
  takeReceipt: TakeReceipt,
  signal: AbortSignal
): Promise<void> {
  const keeping = setInterval(() => void taken.keep().catch(() => {}), keepMs)
  const letGo = (): void => clearInterval(keeping)
  signal.addEventListener('abort', letGo, { once: true })
  try {
    if (await takeUntilDone(takeReceipt, message, signal)) await taken.acknowledge()
  } catch {
    // The proxy is gone: the message comes again.
  } finally {
    letGo()
    signal.removeEventListener('abort', letGo)
  }
}

/** If a message has too many properties, none is read. The receipt then has no token: it is refused, and that is logged. */
export function receiptOf(message: MessageOfTopic): ReceiptMessage {
  const headers: Record<string, string> = {}
  const properties = message.getUserPropertiesMap()
  if (properties.getLength() <= propertiesMost)
    properties.forEach((text: string, name: string) => (headers[name.toLowerCase()] = text))
  // A copy: a slice would keep the whole answer in memory.
  const body = Buffer.from(message.getBody_asU8())
  if (message.getSystemProperties()?.getBodyEncoding() !== definition.Encoding.GZIP) return { body, headers }
  try {
    return { body: gunzipSync(body, { maxOutputLength: unpackedMost }), headers }
  } catch {
    // The body stays compressed: the receipt is refused, with a log line.
    return { body, headers }
  }
}
