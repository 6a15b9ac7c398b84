// What a broker of Kafka answers to the reader of receipts, and the records that anyone who may write to the topic put there.
import { kafkaReader } from '../kafka-conversation.ts'

export const reader = kafkaReader({
  name: 'kafka-receipts',
  module: new URL('../subjects/kafka-receipts.js', import.meta.url),
  options: { url: 'kafka://127.0.0.1:{port}' },
  topic: 'ackbox.receipts',
  asked: [
    'apiVersions',
    'metadata',
    'findCoordinator',
    'joinGroup',
    'syncGroup',
    'heartbeat',
    'listOffsets',
    'offsetFetch',
    'offsetCommit',
    'fetch',
    'leaveGroup'
  ],
  isSound: read => (read as { receipts: number }).receipts > 0
})
