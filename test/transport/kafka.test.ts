import { ResponseError } from '@platformatic/kafka'
import t, { type Test } from 'tap'
import { apis, framed, kafkaDouble, partitionsOf, produced } from '../../fuzz/kafka-double.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { kafkaTransport, type KafkaRequest } from '../../src/transport/kafka/kafka.ts'
import { outcomeOf } from '../../src/transport/kafka/failure.ts'
import { scriptedServer } from './scripted-server.ts'
import { sendContext } from './send-context.ts'

t.setTimeout(2_400_000)

/** A send to the topic `orders` of these hosts. */
function sender(t: Test, ports: number[], said: string[] = []) {
  const url = `kafka://${ports.map(port => `127.0.0.1:${port}`).join(',')}`
  const transport = kafkaTransport({
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
    brokers: new Map([['kafka', parseBroker('kafka', url) as Broker]]),
    log: { info: (_, event) => void said.push(event), warn: (_, event) => void said.push(event) }
  })
  t.teardown(() => transport.close())
  return (request: Partial<KafkaRequest> = {}) =>
    transport.send({ topic: 'orders', ...request }, sendContext({ raw: 'x', timeoutMs: 15_000 }))
}

/** Metadata in which partition 2, that of the key `order-7`, has no leader. */
const leaderless: Parameters<typeof kafkaDouble>[1] = ({ api }, sound) => {
  const [led, none] = ['00000000000200000001', '000500000002ffffffff'].map(hex => Buffer.from(hex, 'hex'))
  if (api === apis.metadata) none?.copy(sound, sound.indexOf(led ?? '', 30))
  return undefined
}

t.test(
  'a host that takes connections and does not answer fails one call, and the next host is used',
  async t => {
    const hung = await scriptedServer(t)
    const double = await kafkaDouble('orders', leaderless, 5)
    t.teardown(() => double.close())
    const said: string[] = []
    const send = sender(t, [hung.port, double.port], said)
    t.match(await send(), { kind: 'failed', reason: 'timeout' })
    t.match(await send({ key: 'order-7' }), { kind: 'failed', reason: 'broker: LEADER_NOT_AVAILABLE' })
    t.same(said, ['broker.unavailable', 'broker.available'], 'a broker that answers is available')
    t.match(await send(), { kind: 'delivered' })
    t.equal(said.length, 2)
  }
)

t.test('while one topic fails and another succeeds, the broker is said to be away once', async t => {
  let isBroken = true
  const double = await kafkaDouble(
    'orders',
    ({ api, bytes }, sound) => {
      // The double knows one topic. The other has a name of the same length.
      if (bytes.includes('stocks')) {
        const named = sound.indexOf('orders')
        if (named !== -1) sound.write('stocks', named)
      } else if (isBroken && api === apis.metadata) sound.fill(0xff, 8)
      return undefined
    },
    5
  )
  t.teardown(() => double.close())
  const said: string[] = []
  const send = sender(t, [double.port], said)
  for (let nth = 0; nth < 3; nth++) {
    t.match(await send(), { kind: 'failed' })
    t.match(await send({ topic: 'stocks' }), { kind: 'delivered' })
  }
  t.same(said, ['broker.unavailable'])
  isBroken = false
  t.match(await send(), { kind: 'delivered' })
  t.same(said, ['broker.unavailable', 'broker.available'])
})

t.test('records without a key go to all partitions, those of one key to one', async t => {
  const double = await kafkaDouble('orders', () => undefined, 5)
  t.teardown(() => double.close())
  const send = sender(t, [double.port])
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

// What a partition with another leader does not take is sent once more, to the leaders that the broker names now.
const sickness = [
  ['NOT_ENOUGH_REPLICAS', 19, 1],
  ['NOT_LEADER_OR_FOLLOWER', 6, 2]
] as const

t.test('a partition that takes nothing fails its own records, and no others are repeated', async t => {
  for (const [name, code, times] of sickness) {
    let sick = 2
    const requests = { produced: 0, metadata: 0 }
    const double = await kafkaDouble(
      'orders',
      ({ api, id, bytes }) => {
        if (api === apis.metadata) requests.metadata++
        if (api !== apis.produce) return undefined
        const partitions = partitionsOf(bytes)
        requests.produced += partitions.length
        const errors = partitions.map((each): [number, number] => [each, each === sick ? code : 0])
        return framed(id, produced('orders', errors))
      },
      5
    )
    t.teardown(() => double.close())
    const send = sender(t, [double.port])
    const outcomes = await Promise.all(Array.from({ length: 100 }, (_, i) => send({ key: `order-${i}` })))
    const failed = outcomes.filter(each => each.kind === 'failed')
    t.ok(failed.length > 5 && failed.length < 40, `${failed.length} failed`)
    for (const outcome of failed) t.match(outcome, { reason: `broker: ${name}` })
    const ids = outcomes.flatMap(each => (each.kind === 'delivered' ? [each.messageId] : []))
    t.equal(new Set(ids).size, 100 - failed.length)
    t.notMatch(ids.join(), `orders/${sick}/`)
    t.same(requests, { produced: 4 + times, metadata: times }, 'each partition once')
    sick = -1
    t.match(await send({ key: 'order-7' }), { kind: 'delivered', messageId: 'orders/2/5' })
    t.equal(requests.metadata, times + 1, 'the leaders were asked anew')
  }
})

t.test('records of a partition whose leader has changed are sent to the new one at once', async t => {
  let isMoved = true
  const double = await kafkaDouble(
    'orders',
    ({ api, id, bytes }) => {
      if (api !== apis.produce) return undefined
      const errors = partitionsOf(bytes).map((each): [number, number] => [each, isMoved ? 6 : 0])
      isMoved = false
      return framed(id, produced('orders', errors))
    },
    5
  )
  t.teardown(() => double.close())
  t.match(await sender(t, [double.port])({ key: 'order-7' }), {
    kind: 'delivered',
    messageId: /^orders\/2\//
  })
})

t.test('a record that the topic does not accept fails with the code of the broker', t => {
  const at = '/responses/0/partition_responses/0'
  const refusal = new ResponseError(
    0,
    10,
    { [`${at}/record_errors/0`]: [-1, 'Compacted topic cannot accept message without key'], [at]: [87, 'x'] },
    {}
  )
  t.match(outcomeOf(refusal), { kind: 'failed', reason: 'broker: INVALID_RECORD' })
  const unknown = new ResponseError(0, 10, { [at]: [-1, 'x'] }, {})
  t.match(outcomeOf(unknown), { kind: 'failed', reason: 'broker: UNKNOWN_SERVER_ERROR' })
  t.end()
})

t.test('two topics of one broker both use all their partitions', async t => {
  const double = await kafkaDouble('orders', () => undefined, 2)
  t.teardown(() => double.close())
  const send = sender(t, [double.port])
  const seen = new Set<string | undefined>()
  for (let i = 0; i < 4; i++) {
    const outcome = await send()
    seen.add(outcome.kind === 'delivered' ? outcome.messageId : outcome.reason)
    // Of another topic, between two of this one.
    await send({ topic: 'elsewhere' })
  }
  t.same(seen, new Set(['orders/0/5', 'orders/1/5']))
})

t.test('a partition without a leader fails its own records, and gets none without a key', async t => {
  const double = await kafkaDouble('orders', leaderless, 5)
  t.teardown(() => double.close())
  const send = sender(t, [double.port])
  for (let i = 0; i < 2; i++) {
    t.match(await send({ key: 'order-7' }), { kind: 'failed', reason: 'broker: LEADER_NOT_AVAILABLE' })
    const [bad, good] = await Promise.all([send({ key: 'order-7' }), send({ key: 'order-1' })])
    t.match(bad, { kind: 'failed', reason: 'broker: LEADER_NOT_AVAILABLE' })
    t.match(good, { kind: 'delivered' })
  }
  for (let i = 0; i < 10; i++) t.match(await send(), { kind: 'delivered' })
})
