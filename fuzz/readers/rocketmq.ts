// The answers of a RocketMQ proxy to a sender.
import { rocketmqReader } from '../rocketmq-conversation.ts'
import { judgeOutcomes, type TransportOptions } from '../subjects/transport.ts'
import type { Outcome } from '../../src/domain/types.ts'

const options: TransportOptions = {
  name: 'rocketmq',
  url: 'rocketmq://127.0.0.1:{port}',
  request: { broker: 'fuzzed', topic: 'orders' }
}

export const reader = rocketmqReader({
  name: 'rocketmq',
  module: new URL('../subjects/transport.js', import.meta.url),
  options,
  requests: ['greeting', 'route', 'route', 'send'],
  isSound: outcomes => (outcomes as Outcome[]).some(({ kind }) => kind === 'delivered'),
  judge: outcomes => judgeOutcomes(outcomes as Outcome[])
})
