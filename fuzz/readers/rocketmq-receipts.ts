// The answers of a RocketMQ proxy to the reader of receipts, and the messages of any client that may send to the topic.
import { gzipSync } from 'node:zlib'
import { receivedOf } from '../rocketmq-double.ts'
import { rocketmqReader } from '../rocketmq-conversation.ts'

export const reader = rocketmqReader({
  name: 'rocketmq-receipts',
  module: new URL('../subjects/receipt-readers.js', import.meta.url),
  options: { url: 'rocketmq://127.0.0.1:{port}' },
  requests: ['greeting', 'route', 'session', 'receive', 'receive', 'receive', 'acknowledge'],
  floods: [
    receivedOf(Buffer.from('{"status":"HANDLED"}')),
    receivedOf(Buffer.alloc(60_000, 'x')),
    // Unpacked, it is a thousand times as long
    receivedOf(gzipSync(Buffer.alloc(2_000_000)), true)
  ],
  isSound: read => (read as { receipts: number }).receipts > 1
})
