// The answers of a Kafka broker to the reader of receipts, and the records of any client that may write to the topic.
import { kafkaReader } from '../kafka-conversation.ts'

export const reader = kafkaReader({
  name: 'kafka-receipts',
  module: new URL('../subjects/kafka-receipts.js', import.meta.url),
  options: { url: 'kafka://127.0.0.1:{port}' },
  topic: 'ackbox.receipts',
  requests: [
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
