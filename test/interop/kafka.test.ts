import { createServer, type AddressInfo } from 'node:net'
import { once } from 'node:events'
import { createServer as createTlsServer } from 'node:tls'
import t from 'tap'
import { guard } from '../../src/transport/egress/guard.ts'
import { kafkaTransport, type KafkaRequest } from '../../src/transport/kafka/kafka.ts'
import type { Transport } from '../../src/transport/types.ts'
import { key, selfSigned } from '../transport/certs.ts'
import { until } from '../support/until.ts'
import { sendContext } from '../transport/send-context.ts'
import { brokerConformance } from './conformance.ts'
import { broker, kafka, said, skip } from './kafka-server.ts'

const allowed = () => guard({ allow: undefined, embedded: true, deny: [] })

function transport(url: string, gate = allowed(), log = said().log): Transport<KafkaRequest> {
  return kafkaTransport({ guard: gate, brokers: new Map([['kafka', broker(url)]]), log })
}

t.test('as every broker', { skip }, t => {
  brokerConformance<KafkaRequest>(t, async t => {
    const server = await kafka(t)
    await server.create('orders')
    const request = ({
      body,
      headers
    }: {
      body?: string | Uint8Array
      headers?: Record<string, string>
    }) => ({
      topic: 'orders',
      ...(body !== undefined && { value: body }),
      ...(headers && { headers })
    })
    return {
      server: server.server,
      url: ({ port = server.login, login = 'ackbox:right-one' } = {}) => `kafka://${login}@127.0.0.1:${port}`,
      transport: url => transport(url),
      request,
      missing: () => ({ topic: 'nobody-made-this' }),
      tooLarge: 1_200_000,
      wrongLogin: 'ackbox:not-the-password',
      stored: count => server.stored('orders', count),
      backMs: 30_000
    }
  })
  t.end()
})

t.test('what only Kafka does', { skip }, async t => {
  const server = await kafka(t, '10.9.9.9')
  const ways = transport(`kafka://127.0.0.1:${server.open}`)
  t.teardown(() => ways.close())
  for (const [topic, partitions] of [
    ['twenty', 1],
    ['keys', 5],
    ['mixed', 1]
  ] as const)
    await server.create(topic, partitions)

  await t.test('20 concurrent sends are 20 stored records', async t => {
    const values = Array.from({ length: 20 }, (_, i) => `v${i}`)
    const outcomes = await Promise.all(
      values.map(value => ways.send({ topic: 'twenty', value }, sendContext()))
    )
    t.ok(outcomes.every(each => each.kind === 'delivered'))
    const stored = await server.stored('twenty', 20)
    t.strictSame(stored.map(each => each.body.toString()).toSorted(), values.toSorted())
  })

  await t.test('a key goes to the partition that a Java producer takes', async t => {
    // From the tests of Kafka's own Utils.murmur2
    const hashes = {
      '21': -973_932_308,
      foobar: -790_332_482,
      'a-little-bit-long-string': -985_981_536,
      'a-little-bit-longer-string': -1_486_304_829,
      lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8: -58_897_971,
      abc: 479_470_107
    }
    await Promise.all(
      Object.keys(hashes).flatMap(key => [
        ways.send({ topic: 'keys', key }, sendContext({ raw: 'x', orderingKey: 'another' })),
        // The request has no key.
        ways.send({ topic: 'keys' }, sendContext({ raw: 'x', orderingKey: key }))
      ])
    )
    for (const { key, partition } of await server.stored('keys', 12))
      t.equal(partition, (hashes[key as keyof typeof hashes] & 0x7fffffff) % 5, key)
  })

  await t.test('one that is too large, among many at once, is refused alone', async t => {
    const values = ['a', 'x'.repeat(1_200_000), 'b', 'y'.repeat(600_000), 'z'.repeat(600_000)]
    const outcomes = await Promise.all(
      values.map(value => ways.send({ topic: 'mixed', value }, sendContext()))
    )
    t.same(
      outcomes.map(each => each.kind),
      ['delivered', 'refused', 'delivered', 'delivered', 'delivered']
    )
    t.equal((await server.stored('mixed', 4)).length, 4)
  })

  await t.test('what a handler may not ask for is said', async t => {
    const bad = [
      undefined,
      {},
      { topic: 'with space' },
      { topic: '..' },
      { topic: 'twenty', value: 7 },
      { topic: 'twenty', key: {} },
      { topic: 'twenty', headers: { 'Webhook-Id': 'x' } },
      { topic: 'twenty', headers: { a: 1 } },
      { topic: 'twenty', broker: 'nobody' }
    ]
    for (const each of bad)
      t.match(await ways.send(each as KafkaRequest, sendContext()), {
        kind: 'failed',
        reason: /^bad_request: /
      })
    t.equal((await server.stored('twenty', 20)).length, 20)
  })

  await t.test('a host that the broker advertises is judged before it is connected to', async t => {
    const gate = guard({ allow: [`127.0.0.1:${server.login}`], embedded: false, deny: [] })
    const own = transport(`kafka://ackbox:right-one@127.0.0.1:${server.login}`, gate)
    t.teardown(() => own.close())
    t.match(await own.send({ topic: 'twenty', value: 'x' }, sendContext()), {
      kind: 'failed',
      reason: /^blocked_target.*10\.9\.9\.9/
    })
  })

  await t.test('trouble is said once when it begins and once when it is over', async t => {
    const { lines, log } = said()
    const own = transport(`kafka://127.0.0.1:${server.open}`, allowed(), log)
    t.teardown(() => own.close())
    t.match(await own.send({ topic: 'twenty', value: 'x' }, sendContext()), { kind: 'delivered' })
    await server.server.kill()
    for (let i = 0; i < 3; i++)
      t.match(await own.send({ topic: 'twenty', value: 'x' }, sendContext()), { kind: 'failed' })
    await server.server.start()
    // A server that has just started may not lead the partition yet: it answers, and is available.
    await until('it takes the record', async () => {
      const { kind } = await own.send({ topic: 'twenty', value: 'x' }, sendContext())
      return kind === 'delivered'
    })
    t.same(
      lines.map(each => each[0]),
      ['broker.unavailable', 'broker.available']
    )
  })
})

t.test('a broker at a denied address sees no connection', async t => {
  let seen = 0
  const door = createServer(() => seen++).listen(0, '127.0.0.1')
  t.teardown(() => door.close())
  await once(door, 'listening')
  const gate = guard({ allow: [], embedded: false, deny: [] })
  const { port } = door.address() as AddressInfo
  const own = transport(`kafka://127.0.0.1:${port}`, gate)
  t.match(await own.send({ topic: 'x' }, sendContext({ raw: '{}' })), {
    kind: 'failed',
    reason: /^blocked_target/
  })
  t.equal(seen, 0)
  await own.close()
})

t.test(
  'TLS goes to the judged address under its own name, and a certificate that proves nothing is refused',
  async t => {
    const names: string[] = []
    const listener = createTlsServer({
      key,
      cert: selfSigned,
      SNICallback: (name, tell) => {
        names.push(name)
        tell(null)
      }
    }).listen(0, '127.0.0.1')
    listener.on('tlsClientError', () => {})
    t.teardown(() => listener.close())
    await once(listener, 'listening')
    const { port } = listener.address() as AddressInfo
    const resolve = async () => [{ address: '127.0.0.1', family: 4 }]
    const gate = guard({
      allow: [`kafka.example.com:${port}`, `127.0.0.1:${port}`],
      embedded: true,
      deny: [],
      resolve
    })
    const own = transport(`kafkas://kafka.example.com:${port}`, gate)
    t.match(await own.send({ topic: 'x' }, sendContext({ raw: '{}' })), { kind: 'failed', reason: /^tls: / })
    t.strictSame(names, ['kafka.example.com'])
    await own.close()
  }
)
