// What a proxy of RocketMQ answers to the reader of receipts, and the messages that anyone who may send to the topic put there.
import { gzipSync } from 'node:zlib'
import { receivedOf } from '../rocketmq-double.ts'
import { rocketmqReader } from '../rocketmq-conversation.ts'

export const reader = rocketmqReader({
  name: 'rocketmq-receipts',
  module: new URL('../subjects/receipt-consumers.js', import.meta.url),
  options: { url: 'rocketmq://127.0.0.1:{port}' },
  asked: ['greeting', 'route', 'session', 'receive', 'receive', 'receive', 'acknowledge'],
  floods: [
    receivedOf(Buffer.from('{"status":"HANDLED"}')),
    receivedOf(Buffer.alloc(60_000, 'x')),
    // A thousand times as much comes out
    receivedOf(gzipSync(Buffer.alloc(2_000_000)), true)
  ],
  isSound: read => (read as { receipts: number }).receipts > 1
})
