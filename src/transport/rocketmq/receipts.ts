import { gunzipSync } from 'node:zlib'
import { setTimeout as sleep } from 'node:timers/promises'
import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js'
import { untilAborted, waitAtMost } from '../../runtime/with-timeout.ts'
import { Failure } from '../egress/guard.ts'
import { unfit } from '../judged.ts'
import {
  heldMost,
  messageMost,
  overhead,
  type Consume,
  type Handle,
  type ReceiptMessage
} from '../receipts.ts'
import { subscribe, type Consumer } from './consumer.ts'
import { proxiesOf } from './proxy.ts'
import { invisibleMs, type MessageOfTopic, type Source, type Taken } from './receive.ts'
import { failureOfCall, isTooLarge } from './status.ts'

/** A topic of RocketMQ may not have a dot in its name. */
const topic = 'ackbox-receipts'
const group = 'ackbox'
const atATime = 100
/** RocketMQ gives no more at once. */
const batchMost = 32
const laterMs = 1_000
/** Twice within the time after which it would come again. */
const keepMs = 7_000
const waitMost = 15_000
/** For what is being handled: after an abort, and when a proxy is gone. */
const finishMs = 500
const settleMs = 5_000
/** Of a message's headers and of what the protocol wraps around it. */
const wrapped = 65_536

/**
 * By the consumer group `ackbox`. What was taken is kept from others for as long as it is in hand here: RocketMQ counts how often it
 * gives a message, and puts it aside after its last time.
 */
export const consume: Consume = async (deps, handle, signal) => {
  const { broker, log } = deps
  const proxies = proxiesOf(deps.guard, broker, messageMost + wrapped)
  let failures = 0
  let slowUntil = 0
  for (let turn = 0; !signal.aborted; turn++) {
    try {
      // One that is too large takes those with it that come behind it, and they may come together again
      const batch = (): number => (performance.now() < slowUntil ? 1 : batchMost)
      const to = { broker, proxies, topic, group }
      const consumer = await untilAborted(signal, subscribe(to, turn))
      if (!consumer) break
      try {
        await takeAll(consumer, handle, batch, signal, () => {
          if (failures > 0) log.info({ broker: broker.name, topic }, 'receipts.available')
          failures = 0
        })
      } finally {
        consumer.close()
      }
    } catch (error) {
      if (signal.aborted) break
      if (isTooLarge(error) || error instanceof TooMuch) slowUntil = performance.now() + 2 * invisibleMs
      const { reason } = isTooLarge(error) ? tooLarge : failureOfCall(error)
      if (failures++ === 0) log.warn({ broker: broker.name, topic, reason }, 'receipts.unavailable')
      await sleep(Math.min(waitMost, 250 * 2 ** failures), undefined, { signal }).catch(() => {})
    }
  }
  proxies.close()
}

/** More bytes than may be held: of messages larger than any receipt. */
class TooMuch extends Failure {
  constructor() {
    super(unfit(`more than ${heldMost} bytes of messages at a time`).outcome)
  }
}
const tooLarge = unfit(`a message of more than ${messageMost} bytes`).outcome

/** Until the signal aborts, the topic moves, or a proxy is gone. */
async function takeAll(
  { sources, over }: Consumer,
  handle: Handle,
  batch: () => number,
  signal: AbortSignal,
  onReady: () => void
): Promise<void> {
  const open = new Set<Promise<void>>()
  const end = new AbortController()
  const either = AbortSignal.any([signal, end.signal])
  let held = 0
  let asked = 0
  const share = Math.max(1, Math.floor(atATime / sources.length))

  function begin(taken: Taken): void {
    const bytes = taken.bytes + overhead
    held += bytes
    const one = take(taken, handle, either).finally(() => {
      open.delete(one)
      held -= bytes
    })
    open.add(one)
    if (held > heldMost) throw new TooMuch()
  }

  async function takeFrom(source: Source): Promise<void> {
    while (!either.aborted) {
      const most = Math.min(share, batch(), atATime - open.size - asked)
      if (most <= 0) {
        await untilAborted(either, Promise.race(open))
        continue
      }
      asked += most
      try {
        await source.receive(most, either, begin)
        onReady()
      } finally {
        asked -= most
      }
    }
  }

  const taking = Promise.race([over, Promise.all(sources.map(takeFrom))])
  try {
    await untilAborted(signal, taking)
  } finally {
    end.abort()
    await waitAtMost(settleMs, untilAborted(signal, Promise.all(open)))
    if (signal.aborted) await waitAtMost(finishMs, Promise.all(open))
  }
}

/** Hands it over until it is done; what is still in hand after the end comes again. */
async function take(taken: Taken, handle: Handle, signal: AbortSignal): Promise<void> {
  const keeping = setInterval(() => void taken.keep().catch(() => {}), keepMs)
  const letGo = (): void => clearInterval(keeping)
  signal.addEventListener('abort', letGo, { once: true })
  try {
    const message = replyOf(taken.message)
    // One that breaks what handles it must not stop the others
    while ((await handle(message).catch(() => 'later' as const)) === 'later') {
      if (signal.aborted) return
      await sleep(laterMs, undefined, { signal }).catch(() => {})
    }
    await taken.acknowledge()
  } catch {
    // The proxy is gone: it comes again
  } finally {
    letGo()
    signal.removeEventListener('abort', letGo)
  }
}

export function replyOf(message: MessageOfTopic): ReceiptMessage {
  const headers: Record<string, string> = {}
  message.getUserPropertiesMap().forEach((text: string, name: string) => (headers[name.toLowerCase()] = text))
  const body = message.getBody_asU8()
  if (message.getSystemProperties()?.getBodyEncoding() !== definition.Encoding.GZIP) return { body, headers }
  try {
    return { body: gunzipSync(body, { maxOutputLength: messageMost }), headers }
  } catch {
    // As it is it is no receipt: refused, and said
    return { body, headers }
  }
}
