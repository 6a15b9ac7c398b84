// What a broker of Kafka answers to those who send.
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
  asked: ['apiVersions', 'metadata', 'produce'],
  isSound: outcomes => (outcomes as Outcome[]).some(({ kind }) => kind === 'delivered'),
  judge: outcomes => judgeOutcomes(outcomes as Outcome[])
})
