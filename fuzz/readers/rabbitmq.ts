// RabbitMQ's answers to a send.
import { conversationReader } from '../conversation.ts'
import type { Script } from '../hostile-server.ts'
import { judgeOutcomes, type TransportOptions } from '../subjects/transport.ts'
import { content, frame, long, method, methodPattern, number, opened, short } from '../amqp.ts'

const options: TransportOptions = {
  name: 'rabbitmq',
  url: 'amqp://127.0.0.1:{port}',
  request: { broker: 'fuzzed', routingKey: 'orders' }
}
/** Each publish gets a confirmation. The second one has tag 2. */
const publish = methodPattern(60, 40)
const acked = (tag: number): string => method(1, 60, 80, number(8, tag), '\0')
const nacked = (tag: number): string => method(1, 60, 120, number(8, tag), '\0')
const returned = method(1, 60, 50, number(2, 312), short('NO_ROUTE'), short(''), short('orders'))
const closed = method(
  1,
  20,
  40,
  number(2, 404),
  short('NOT_FOUND - no exchange'),
  number(2, 60),
  number(2, 40)
)
const blocked = method(0, 10, 60, short('low on memory'))

const spoken = (...answers: string[]): Script => {
  const all = [
    ...opened,
    [methodPattern(85, 10), method(1, 85, 11)] as const,
    ...answers.map(each => [publish, each] as const)
  ]
  return { answers: all.map(([, answer]) => answer), after: all.map(([after]) => after), end: 'hang' }
}

const valid: Script[] = [
  spoken(acked(1), acked(2)),
  spoken(nacked(1), frame(8, 0, '') + acked(2)),
  spoken(returned + content(1, '{"n":1}') + acked(1), acked(2)),
  spoken(closed, acked(1)),
  spoken(blocked + acked(1), method(0, 10, 61) + acked(2)),
  spoken(acked(1), method(0, 10, 50, number(2, 320), short('CONNECTION_FORCED'), long('').slice(0, 4)))
]

export const reader = conversationReader({
  name: 'rabbitmq',
  module: new URL('../subjects/transport.js', import.meta.url),
  options,
  valid,
  floods: [
    frame(8, 0, ''),
    acked(1),
    returned + content(1, 'x'.repeat(4_000)),
    returned,
    frame(3, 1, 'x'),
    blocked
  ],
  judge: judgeOutcomes
})
