import {
  compatibilityPartitioner,
  ProduceAcks,
  Producer,
  type MessageToProduce,
  type ProduceResult
} from '@platformatic/kafka'
import type { Outcome } from '../../task/task.ts'
import { at, type Broker } from '../broker.ts'
import type { Guard } from '../guard.ts'
import { failed } from './failed.ts'
import { link, linkOptions } from './link.ts'

/** One send. `end` is called once; what is over before it was written is not written. */
export interface Item {
  message: MessageToProduce
  over: boolean
  end(outcome: Outcome): void
}

export interface Writer {
  add(item: Item): void
  close(): Promise<void>
}

interface WriterDeps {
  guard: Guard
  log: { info(fields: object, message: string): void; warn(fields: object, message: string): void }
}

// Far below the smallest usual max.message.bytes (1 MB): small messages must not be too large together.
const batchBytes = 131_072
const batchCount = 500

/** Words of a failure that are about the way to the broker, and not about one topic or message. */
const trouble = /^(?:connect|timeout|unreachable|tls|credentials|blocked|error)/

/**
 * Writes to one broker. A topic has one produce call at a time; what comes meanwhile goes in the next one together, so a topic
 * that is not there fails nobody else. Not idempotent: this client's idempotent producer confirms concurrent sends that
 * the broker threw away as duplicates.
 */
export function writer(broker: Broker, deps: WriterDeps): Writer {
  const lanes = new Map<string, Item[]>()
  let producer: Producer | undefined
  let down = false
  let closed = false

  function open(): Producer {
    if (producer) return producer
    const way = link(deps.guard, broker.tls)
    const made = new Producer({
      ...linkOptions(broker, way),
      acks: ProduceAcks.ALL,
      // Java's own: the package's default differs from it for half of all keys.
      partitioner: compatibilityPartitioner
    })
    way.guarded(made.connections)
    producer = made
    return made
  }

  function said(outcome: Outcome): void {
    const bad = outcome.kind === 'failed' && trouble.test(outcome.reason)
    if (closed || bad === down) return
    down = bad
    if (outcome.kind === 'failed')
      deps.log.warn({ broker: broker.name, reason: outcome.reason }, 'broker.trouble')
    else deps.log.info({ broker: broker.name }, 'broker.well')
  }

  async function produce(batch: Item[]): Promise<void> {
    let used: Producer | undefined
    try {
      used = open()
      const result = await used.send({ messages: batch.map(each => each.message), acks: ProduceAcks.ALL })
      const outcomes = {
        kind: 'delivered',
        address: addressOf(used, result) ?? at(broker.hosts[0]!)
      } as const
      said(outcomes)
      for (const each of batch) each.end(outcomes)
    } catch (error) {
      const outcome = failed(error)
      // One that is too large must not take its neighbours with it: each is judged alone.
      if (outcome.kind === 'refused' && batch.length > 1) {
        for (const each of batch) if (!each.over) await produce([each])
        return
      }
      said(outcome)
      // A connection that no longer answers would be kept by the client until TCP gives it up.
      if (outcome.reason === 'timeout' && used === producer) drop()
      for (const each of batch) each.end(outcome)
    }
  }

  function drop(): void {
    producer?.close(true, () => {})
    producer = undefined
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
      // Those of the same moment go together.
      queueMicrotask(() => void run(topic, made))
    },

    async close() {
      closed = true
      const open = producer
      producer = undefined
      if (open) await new Promise<void>(resolve => open.close(true, () => resolve()))
    }
  }
}

function take(lane: Item[]): Item[] {
  const batch: Item[] = []
  let size = 0
  let taken = 0
  for (const item of lane) {
    if (!item.over) {
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

/** Who leads the partition that was written; of a batch over several, the first. */
function addressOf(producer: Producer, { offsets }: ProduceResult): string | undefined {
  const first = offsets?.[0]
  if (!first) return undefined
  const metadata = producer.currentMetadata
  const leader = metadata?.topics.get(first.topic)?.partitions[first.partition]?.leader
  const node = leader === undefined ? undefined : metadata?.brokers.get(leader)
  return node && at(node)
}
