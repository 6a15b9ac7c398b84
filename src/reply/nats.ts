import { setTimeout as sleep } from 'node:timers/promises'
import type { NatsConnection } from '@nats-io/transport-node'
import { AckPolicy, jetstream, jetstreamManager, type Consumer, type JsMsg } from '@nats-io/jetstream'
import { Failure } from '../transport/guard.ts'
import { natsFailure, natsLink } from '../transport/nats-link.ts'
import { address, type Consume, type Handle } from './reply.ts'

const durable = 'ackbox'
const atATime = 100
const restMs = 1_000
// Longer than a handle takes; what is not acknowledged by then comes again
const ackWaitMs = 60_000
const laterMs = 1_000
// After an abort: for what is being handled, and for all
const finishMs = 500
const closeMs = 700
// How long the server keeps a question for messages open; also what a loss of the server costs at most
const askMs = 5_000

/**
 * Receipts from a durable pull consumer of the stream that holds the subject. The stream is the operator's to make; the
 * consumer is made here, where it is not there yet.
 */
export const consume: Consume = async (deps, handle, signal) => {
  const link = natsLink(deps.broker, deps)
  // What is being handled may still be acknowledged; what hangs is cut off
  const over = new AbortController()
  const cut = (): void => {
    void sleep(closeMs, undefined, { signal: over.signal }).then(
      () => link.close(),
      () => {}
    )
  }
  signal.addEventListener('abort', cut, { once: true })
  let trouble: string | undefined
  while (!signal.aborted) {
    try {
      const client = await link.client()
      const consumer = await consumerOf(client)
      if (trouble !== undefined) deps.log.info({ broker: deps.broker.name }, 'receipts.back')
      trouble = undefined
      await takeAll(consumer, client, handle, signal)
    } catch (error) {
      if (signal.aborted) break
      const { reason } = error instanceof Failure ? error.outcome : consumerFailure(error)
      // The link itself says that the broker is away
      if (trouble === undefined && !(error instanceof Failure)) {
        deps.log.warn({ broker: deps.broker.name, reason }, 'receipts.away')
        trouble = reason
      }
      await sleep(restMs, undefined, { signal }).catch(() => {})
    }
  }
  over.abort()
  link.close()
}

async function consumerOf(client: NatsConnection): Promise<Consumer> {
  const manager = await jetstreamManager(client, { checkAPI: false })
  const stream = await manager.streams.find(address)
  try {
    await manager.consumers.info(stream, durable)
  } catch (error) {
    if (!isMissing(error)) throw error
    await manager.consumers.add(stream, {
      durable_name: durable,
      filter_subject: address,
      ack_policy: AckPolicy.Explicit,
      ack_wait: ackWaitMs * 1_000_000,
      max_ack_pending: 1_000,
      max_deliver: -1
    })
  }
  return jetstream(client).consumers.get(stream, durable)
}

/** Until the connection or the consumer is gone. */
async function takeAll(
  consumer: Consumer,
  client: NatsConnection,
  handle: Handle,
  signal: AbortSignal
): Promise<void> {
  const open = new Set<Promise<void>>()
  try {
    while (!signal.aborted && !client.isClosed()) {
      const room = atATime - open.size
      if (room === 0) {
        await Promise.race(open)
        continue
      }
      const messages = await consumer.fetch({ max_messages: room, expires: askMs })
      const stop = (): void => messages.stop()
      signal.addEventListener('abort', stop, { once: true })
      if (signal.aborted) stop()
      for await (const message of messages) {
        const one = take(message, handle).finally(() => open.delete(one))
        open.add(one)
      }
      signal.removeEventListener('abort', stop)
    }
  } finally {
    await Promise.race([Promise.all(open), sleep(finishMs, undefined, { ref: false })])
  }
}

async function take(message: JsMsg, handle: Handle): Promise<void> {
  const headers: Record<string, string> = {}
  for (const name of message.headers?.keys() ?? []) {
    headers[name.toLowerCase()] = message.headers?.get(name) ?? ''
  }
  // One that breaks what handles it must not stop the others
  const verdict = await handle({ body: message.data, headers }).catch(() => 'later' as const)
  try {
    if (verdict === 'done') message.ack()
    else message.nak(laterMs)
  } catch {
    // The connection is gone: it comes again
  }
}

const isMissing = (error: unknown): boolean =>
  error instanceof Error &&
  (error.name === 'ConsumerNotFoundError' || ('code' in error && error.code === 10_014))

function consumerFailure(error: unknown): { reason: string } {
  if (error instanceof Error && /no stream matches subject|stream not found/.test(error.message))
    return { reason: `target_missing: no stream takes ${address}` }
  return natsFailure(error)
}
