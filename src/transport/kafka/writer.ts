import type { Logger } from '../../runtime/logger.ts'
import {
  ProduceAcks,
  Producer,
  type ClusterMetadata,
  type MessageToProduce,
  type ProduceResult
} from '@platformatic/kafka'
import type { Outcome } from '../../domain/types.ts'
import { at, type Broker } from '../broker.ts'
import type { Guard } from '../egress/guard.ts'
import type { Flight } from '../sends.ts'
import { outcomeOf } from './failure.ts'
import { protocolFailure } from '../judged.ts'
import { kafkaLink, linkOptions, type KafkaLink } from './connection.ts'
import { leaderOf, placed, placesOf } from './partitions.ts'

/** One send. If it is over before the write, it is not written. */
export interface Item {
  message: MessageToProduce
  flight: Flight
  end(outcome: Outcome): void
}

export interface Writer {
  add(item: Item): void
  close(): Promise<void>
}

interface WriterDeps {
  guard: Guard
  log: Pick<Logger, 'info' | 'warn'>
}

// Far below the usual max.message.bytes (1 MB): a batch of small messages must not be too large.
const batchBytes = 131_072
const batchCount = 500

/** Longer than the client's three requests of 10 s each: after this time the client has lost the call. */
const lostMs = 40_000
const closeMs = 1_000

/** Reasons that concern the connection to the broker, not one topic or message. */
const trouble = /^(?:connect|timeout|unreachable|tls|credentials|blocked|error|protocol)/

interface Client {
  producer: Producer
  link: KafkaLink
}

/**
 * Writes to one broker. Each topic has one produce call at a time; messages that come meanwhile wait for the next call. So a
 * missing topic fails no messages of other topics. Not idempotent: this client's idempotent producer confirms concurrent sends
 * that the broker discarded as duplicates.
 */
export function writer(broker: Broker, deps: WriterDeps): Writer {
  const lanes = new Map<string, Item[]>()
  let client: Client | undefined
  let turn = 0
  let batches = 0
  let down = false
  let closed = false

  function open(): Client {
    if (client) return client
    const link = kafkaLink(deps.guard, broker.tls)
    const producer = new Producer({ ...linkOptions(broker, link, turn++), acks: ProduceAcks.ALL })
    link.guarded(producer.connections)
    client = { producer, link }
    return client
  }

  function logChange(outcome: Outcome): void {
    const bad = outcome.kind === 'failed' && trouble.test(outcome.reason)
    if (closed || bad === down) return
    down = bad
    if (outcome.kind === 'failed')
      deps.log.warn({ broker: broker.name, reason: outcome.reason }, 'broker.failing')
    else deps.log.info({ broker: broker.name }, 'broker.recovered')
  }

  async function produce(batch: Item[]): Promise<void> {
    let used: Client | undefined
    try {
      const { producer, link } = (used = open())
      const given = batch.map(each => each.message)
      const topics = [given[0]!.topic]
      const metadata = await link.within<ClusterMetadata>(lostMs, done => producer.metadata({ topics }, done))
      const messages = placed(given, metadata.topics.get(topics[0]!), batches++)
      const options = { messages, acks: ProduceAcks.ALL }
      const result = await link.within<ProduceResult>(lostMs, done => producer.send(options, done))
      const [first] = result.offsets ?? []
      if (!first) throw protocolFailure('the broker confirms nothing')
      const address = leaderOf(producer.currentMetadata, first) ?? at(broker.hosts[0]!)
      const outcomes = { kind: 'delivered', address } as const
      logChange(outcomes)
      const ids = placesOf(result, messages)
      for (const [index, each] of batch.entries()) {
        const messageId = ids[index]
        each.end(messageId === undefined ? outcomes : { ...outcomes, messageId })
      }
    } catch (error) {
      const outcome = outcomeOf(error)
      // One message is too large: each is sent alone, so that the others do not fail with it.
      if (outcome.kind === 'refused' && batch.length > 1) {
        for (const each of batch) if (!each.flight.over) await produce([each])
        return
      }
      logChange(outcome)
      // The client would keep a connection that no longer answers until TCP gives it up.
      if (/^(?:timeout|protocol)/.test(outcome.reason) && used === client) drop()
      for (const each of batch) each.end(outcome)
    }
  }

  function drop(): void {
    const dropped = client
    client = undefined
    if (dropped) closeOf(dropped).catch(() => {})
  }

  async function run(topic: string, lane: Item[]): Promise<void> {
    for (;;) {
      const batch = take(lane)
      if (batch.length === 0) break
      await produce(batch)
    }
    lanes.delete(topic)
  }

  return {
    add(item) {
      const { topic } = item.message
      const lane = lanes.get(topic)
      if (lane) {
        lane.push(item)
        return
      }
      const made = [item]
      lanes.set(topic, made)
      // Items of the same moment go in one batch.
      queueMicrotask(() => void run(topic, made))
    },

    async close() {
      closed = true
      const last = client
      client = undefined
      if (last) await closeOf(last)
    }
  }
}

/** Waits only a moment: a client without a connection may never report that it is closed. */
async function closeOf({ producer, link }: Client): Promise<void> {
  await link.within(closeMs, done => producer.close(true, done)).catch(() => {})
  link.end()
}

function take(lane: Item[]): Item[] {
  const batch: Item[] = []
  let size = 0
  let taken = 0
  for (const item of lane) {
    if (!item.flight.over) {
      size += sizeOf(item.message)
      if (batch.length > 0 && (size > batchBytes || batch.length === batchCount)) break
      batch.push(item)
    }
    taken++
  }
  lane.splice(0, taken)
  return batch
}

function sizeOf({ key, value, headers }: MessageToProduce): number {
  let size = 100 + (key?.length ?? 0) + (value?.length ?? 0)
  if (headers instanceof Map) for (const [name, text] of headers) size += name.length + text.length
  return size
}
