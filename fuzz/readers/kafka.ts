// The answers of a Kafka broker to a sender.
import { kafkaReader } from '../kafka-conversation.ts'
import { judgeOutcomes, type TransportOptions } from '../subjects/transport.ts'
import type { Outcome } from '../../src/domain/types.ts'

const topic = 'orders'
const options: TransportOptions = {
  name: 'kafka',
  url: 'kafka://127.0.0.1:{port}',
  request: { broker: 'fuzzed', topic }
}

export const reader = kafkaReader({
  name: 'kafka',
  module: new URL('../subjects/transport.js', import.meta.url),
  options,
  topic,
  requests: ['apiVersions', 'metadata', 'produce'],
  isSound: outcomes => (outcomes as Outcome[]).some(({ kind }) => kind === 'delivered'),
  judge: outcomes => judgeOutcomes(outcomes as Outcome[])
})
