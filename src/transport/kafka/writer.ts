import type { Logger } from '../../runtime/logger.ts'
import {
  ProduceAcks,
  Producer,
  type ClusterMetadata,
  type ClusterTopicMetadata,
  type MessageToProduce,
  type ProduceResult
} from '@platformatic/kafka'
import type { Outcome } from '../../domain/types.ts'
import { at, type Broker } from '../broker.ts'
import type { Guard } from '../egress/guard.ts'
import type { Flight } from '../sends.ts'
import { confirmedIn, outcomeOf, type NotDelivered } from './failure.ts'
import { protocolFailure } from '../judged.ts'
import { kafkaLink, linkOptions, type KafkaLink } from './connection.ts'
import { leaderOf, placed, placesOf, type Confirmed, type Placed } from './partitions.ts'

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

/** The partition has another leader. What was sent to the former one is not written. */
const moved = /^broker: (?:NOT_LEADER_OR_FOLLOWER|LEADER_NOT_AVAILABLE|FENCED_LEADER_EPOCH)$/

const mostTurns = 1_000
const mostDown = 1_000
/** A topic that fails and then gets no more records is down for no longer than this without trouble. */
const quietMs = 60_000

interface Client {
  producer: Producer
  link: KafkaLink
}

/**
 * Writes to one broker. Each topic has one produce call at a time; messages that come meanwhile wait for the next call. So a
 * missing topic fails no messages of other topics, and an unavailable partition none of the others. Not idempotent: this client's
 * idempotent producer confirms concurrent sends that the broker discarded as duplicates.
 */
export function writer(broker: Broker, deps: WriterDeps): Writer {
  const lanes = new Map<string, Item[]>()
  let client: Client | undefined
  let turn = 0
  /** The next turn of records without a key, for each topic. */
  const turns = new Map<string, number>()
  /** Topics whose last call has failed. */
  const stale = new Set<string>()
  /** Topics whose last call has failed because of the broker. */
  const down = new Set<string>()
  let troubledAt = 0
  let closed = false

  function open(): Client {
    if (client) return client
    const link = kafkaLink(deps.guard, broker.tls)
    const producer = new Producer({
      ...linkOptions(broker, link, turn++),
      acks: ProduceAcks.ALL,
      // It would send again what an answer has confirmed beside the error of another partition.
      repeatOnStaleMetadata: false
    })
    link.guarded(producer.connections)
    client = { producer, link }
    return client
  }

  function logChange(topic: string, outcome?: NotDelivered): void {
    const reason = outcome?.kind === 'failed' && trouble.test(outcome.reason) ? outcome.reason : undefined
    const wasDown = down.size > 0
    if (reason !== undefined) {
      troubledAt = performance.now()
      if (down.size < mostDown) down.add(topic)
    } else {
      down.delete(topic)
      if (performance.now() - troubledAt > quietMs) down.clear()
    }
    if (closed || down.size > 0 === wasDown) return
    if (reason !== undefined) deps.log.warn({ broker: broker.name, reason }, 'broker.unavailable')
    // Also if the broker answers that it cannot take this record.
    else deps.log.info({ broker: broker.name }, 'broker.available')
  }

  function turnOf(topic: string): number {
    const turn = turns.get(topic) ?? 0
    // A handler may build the name from a task.
    if (turns.size > mostTurns) turns.clear()
    turns.set(topic, turn + 1)
    return turn
  }

  /** Ends the sends of all partitions that confirm. The others fail, those of a partition that has moved only the second time. */
  async function produce(items: Item[], isAgain = false): Promise<void> {
    const { topic } = items[0]!.message
    let batch = items
    let used: Client | undefined
    let messages: Placed[] = []
    let confirmed: readonly Confirmed[]
    let error: unknown
    try {
      used = open()
      const found = await topicOf(used, topic)
      batch = items.filter(each => !each.flight.over)
      if (batch.length === 0) return
      messages = placed(
        batch.map(each => each.message),
        found,
        turnOf(topic)
      )
      const options = { messages, acks: ProduceAcks.ALL }
      const { producer, link } = used
      const result = await link.within<ProduceResult>(lostMs, done => producer.send(options, done))
      confirmed = result.offsets ?? []
      error = protocolFailure('the broker does not confirm every record')
    } catch (thrown) {
      error = thrown
      confirmed = confirmedIn(thrown)
    }
    const ids = placesOf(confirmed, messages)
    const left: Item[] = []
    for (const [index, each] of batch.entries()) {
      const messageId = ids[index]
      if (messageId === undefined) left.push(each)
      else {
        const leader = leaderOf(used?.producer.currentMetadata, messages[index]!)
        each.end({ kind: 'delivered', address: leader ?? at(broker.hosts[0]!), messageId })
      }
    }
    if (left.length === 0) return logChange(topic)
    const outcome = outcomeOf(error)
    if (isAgain || outcome.kind !== 'failed' || !moved.test(outcome.reason))
      return await fail(left, outcome, used)
    stale.add(topic)
    await produce(left, true)
  }

  /** The topic, asked anew if something has failed since: a partition may have another leader. */
  async function topicOf(
    { producer, link }: Client,
    topic: string
  ): Promise<ClusterTopicMetadata | undefined> {
    const options = { topics: [topic], forceUpdate: stale.has(topic) }
    const metadata = await link.within<ClusterMetadata>(lostMs, done => producer.metadata(options, done))
    stale.delete(topic)
    return metadata.topics.get(topic)
  }

  async function fail(left: Item[], outcome: NotDelivered, used: Client | undefined): Promise<void> {
    // One message is too large: each is sent alone, so that the others do not fail with it.
    if (outcome.kind === 'refused' && left.length > 1) {
      for (const each of left) if (!each.flight.over) await produce([each])
      return
    }
    const { topic } = left[0]!.message
    logChange(topic, outcome)
    // Only a topic that exists: a handler may build its name from a task.
    if (used?.producer.currentMetadata?.topics.has(topic)) stale.add(topic)
    // The client would keep a connection that no longer answers until TCP gives it up.
    if (/^(?:timeout|protocol)/.test(outcome.reason) && used === client) drop()
    for (const each of left) each.end(outcome)
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
