// RabbitMQ's answers to the reader of receipts, and the messages of any client that may publish to the queue.
import { conversationReader } from '../conversation.ts'
import type { Script } from '../hostile-server.ts'
import { content, frame, method, methodPattern, number, opened, short } from '../amqp.ts'

const declared = (channel: number): string =>
  method(channel, 50, 11, short('ackbox.receipts'), number(4, 1), number(4, 0))
const consumed = (channel: number): string => method(channel, 60, 21, short('tag'))
const delivered = (channel: number, tag: number, body = '{"status":"HANDLED"}'): string =>
  method(channel, 60, 60, short('tag'), number(8, tag), '\0', short(''), short('ackbox.receipts')) +
  content(channel, body)
const missing = method(1, 20, 40, number(2, 404), short('NOT_FOUND - no queue'), number(2, 50), number(2, 10))
const [declare, qos, consume, ack] = [
  methodPattern(50, 10),
  methodPattern(60, 10),
  methodPattern(60, 20),
  methodPattern(60, 80)
]

const spoken = (...more: [after: string, answer: string][]): Script => {
  const all = [...opened, ...more]
  return { answers: all.map(([, answer]) => answer), after: all.map(([after]) => after), end: 'hang' }
}
const ready: [string, string][] = [
  [declare, declared(1)],
  [qos, method(1, 60, 11)],
  [consume, consumed(1) + delivered(1, 1)]
]

const valid: Script[] = [
  spoken(...ready, [ack, delivered(1, 2) + delivered(1, 3)]),
  spoken(
    [declare, missing],
    [methodPattern(20, 10), method(2, 20, 11, number(4, 0))],
    [declare, declared(2)],
    [qos, method(2, 60, 11)],
    [consume, consumed(2) + delivered(2, 1)]
  ),
  spoken(...ready, [ack, method(1, 60, 30, short('tag'), '\x01')]),
  spoken(...ready, [ack, frame(8, 0, '') + delivered(1, 2, '')])
]

export const reader = conversationReader({
  name: 'rabbitmq-receipts',
  module: new URL('../subjects/receipt-readers.js', import.meta.url),
  options: { url: 'amqp://127.0.0.1:{port}' },
  valid,
  floods: [delivered(1, 1), delivered(1, 1, 'x'.repeat(8_000)), method(1, 60, 30, short('tag'), '\x01')]
})
