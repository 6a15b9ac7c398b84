import t, { type Test } from 'tap'
import { kafkaDouble } from '../../fuzz/kafka-double.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { kafkaTransport, type KafkaRequest } from '../../src/transport/kafka/kafka.ts'
import { scriptedServer } from './scripted-server.ts'
import { sendContext } from './send-context.ts'

t.setTimeout(120_000)

/** A send to the topic `orders` of these hosts. */
function sender(t: Test, ...ports: number[]) {
  const url = `kafka://${ports.map(port => `127.0.0.1:${port}`).join(',')}`
  const transport = kafkaTransport({
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
    brokers: new Map([['kafka', parseBroker('kafka', url) as Broker]]),
    log: { info: () => {}, warn: () => {} }
  })
  t.teardown(() => transport.close())
  return (request: Partial<KafkaRequest> = {}) =>
    transport.send({ topic: 'orders', ...request }, sendContext({ raw: 'x', timeoutMs: 15_000 }))
}

t.test(
  'a host that takes connections and does not answer fails one call, and the next host is used',
  async t => {
    const hung = await scriptedServer(t)
    const double = await kafkaDouble('orders', () => undefined)
    t.teardown(() => double.close())
    const send = sender(t, hung.port, double.port)
    t.match(await send(), { kind: 'failed', reason: 'timeout' })
    t.match(await send(), { kind: 'delivered' })
  }
)

t.test('records without a key go to all partitions, those of one key to one', async t => {
  const double = await kafkaDouble('orders', () => undefined, 5)
  t.teardown(() => double.close())
  const send = sender(t, double.port)
  const partitions = async (key?: string) => {
    const seen = new Set<string | undefined>()
    for (let i = 0; i < 20; i++) {
      const outcome = await send(key === undefined ? {} : { key })
      seen.add(outcome.kind === 'delivered' ? outcome.messageId : outcome.reason)
    }
    return [...seen]
  }
  t.same(
    await partitions(),
    [0, 1, 2, 3, 4].map(each => `orders/${each}/5`)
  )
  t.same(await partitions('order-7'), ['orders/2/5'])
})
