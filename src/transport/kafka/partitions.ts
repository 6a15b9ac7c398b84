import {
  compatibilityPartitioner,
  type ClusterMetadata,
  type ClusterTopicMetadata,
  type MessageToProduce
} from '@platformatic/kafka'
import { at } from '../broker.ts'
import { protocolFailure } from '../judged.ts'

/** A partition that has the records of a call, the first at this offset. */
export interface Confirmed {
  partition: number
  offset: bigint
}

export interface Placed extends MessageToProduce {
  partition: number
}

/**
 * The messages of one topic with their partitions. They are chosen here, since a confirmation names only the partition. A key goes
 * where Java's default partitioner puts it. Messages without a key go together to the partition of this `turn`, of those
 * that have a leader.
 */
export function placed(
  messages: readonly MessageToProduce[],
  topic: ClusterTopicMetadata | undefined,
  turn: number
): Placed[] {
  const { partitionsCount: count, partitions } = topic ?? { partitionsCount: 0, partitions: [] }
  if (count === 0) throw protocolFailure('a topic without partitions')
  const led = [...partitions.keys()].filter(each => (partitions[each]?.leader ?? -1) >= 0)
  const ofTurn = led[turn % led.length] ?? turn
  return messages.map(message => {
    const { key } = message
    const number = key === undefined ? ofTurn : Number(compatibilityPartitioner(message, key))
    return { ...message, partition: number % count }
  })
}

/**
 * `topic/partition/offset` of each message. The broker confirms the first offset of each partition. Messages of one partition are
 * written in the order of the batch.
 */
export function placesOf(offsets: readonly Confirmed[], messages: readonly Placed[]): (string | undefined)[] {
  const next = new Map(offsets.map(({ partition, offset }) => [partition, offset]))
  return messages.map(({ topic, partition }) => {
    const offset = next.get(partition)
    if (offset === undefined) return undefined
    next.set(partition, offset + 1n)
    return `${topic}/${partition}/${offset}`
  })
}

/** The leader of the partition. */
export function leaderOf(
  metadata: ClusterMetadata | undefined,
  { topic, partition }: { topic: string; partition: number }
): string | undefined {
  const leader = metadata?.topics.get(topic)?.partitions[partition]?.leader
  const node = leader === undefined ? undefined : metadata?.brokers.get(leader)
  return node && at(node)
}
