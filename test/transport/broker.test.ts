import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import t from 'tap'
import { SetupError } from '../../src/runtime/errors.ts'
import { brokerVariable, parseBroker, allowedAddress, chosen } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { transports } from '../../src/transport/registry.ts'

t.test('a broker’s URL says where it is and how to log in', t => {
  t.same(parseBroker('orders', 'amqps://me:p%40ss@a.example,[::1]:7/my%2Fhost'), {
    name: 'orders',
    scheme: 'amqps',
    tls: true,
    hosts: [
      { host: 'a.example', port: 5671 },
      { host: '::1', port: 7 }
    ],
    username: 'me',
    password: 'p@ss',
    path: 'my/host',
    mechanism: 'plain'
  })
  t.same(parseBroker('kafka', 'kafka://h'), {
    name: 'kafka',
    scheme: 'kafka',
    tls: false,
    hosts: [{ host: 'h', port: 9092 }],
    username: undefined,
    password: undefined,
    path: '',
    mechanism: 'plain'
  })
  t.match(parseBroker('redis-stream', 'redis://:secret@h/3'), {
    username: undefined,
    password: 'secret',
    path: '3'
  })
  t.match(parseBroker('rabbitmq', 'amqp://me:a:b%3Ac@h'), { username: 'me', password: 'a:b:c' })
  t.match(parseBroker('rabbitmq', 'amqp://me@h'), { username: 'me', password: undefined })
  t.match(parseBroker('kafka', 'kafkas://me:p@h/?mechanism=SCRAM-SHA-512'), { mechanism: 'scram-sha-512' })
  for (const url of ['amqp://h/', 'rocketmq://h/namespace', 'redis://h/', 'nats://h/?', 'kafka://h/'])
    t.type(parseBroker('x', url), 'object', url)
  t.end()
})

t.test('what is no broker’s URL says why, and never what it was', t => {
  const bad = [
    'http://h',
    'kafka:h',
    'kafka://',
    'kafka://h:0',
    'kafka://h:65536',
    'kafka://a,,b',
    'kafka://[h]',
    'kafka://a b',
    'kafka://u:hunter2%zz@h',
    'KAFKA://h',
    '',
    'kafka://h?mechanism=scram-sha256',
    'kafka://h?mechanism=',
    'kafka://h?mechanisms=scram-sha-256',
    'kafka://h?mechanism=plain&mechanism=scram-sha-256',
    'kafka://u:p?hunter2@h',
    'kafka://h/?hunter2',
    'amqp://h/shop?heartbeat=5',
    'redis://h/orders',
    'redis://h/1?db=2',
    'rocketmq://h/a%20b',
    'kafka://h/hunter2',
    'nats://h/hunter2',
    'tri://h/hunter2',
    'dubbo://h/hunter2'
  ]
  for (const url of bad) {
    const why = parseBroker('x', url)
    t.type(why, 'string', url)
    t.notMatch(why, 'hunter2')
  }
  t.end()
})

t.test('a request goes to the broker it names, or to the one called as its transport', t => {
  const kafka = parseBroker('kafka', 'kafka://h')
  const orders = parseBroker('orders', 'kafka://o')
  if (typeof kafka === 'string' || typeof orders === 'string') throw new Error()
  const brokers = new Map([kafka, orders].map(each => [each.name, each]))
  t.equal(chosen(brokers, 'kafka'), kafka)
  t.equal(chosen(brokers, 'kafka', 'orders'), orders)
  t.throws(() => chosen(brokers, 'kafka', 'stock-events'), {
    message: 'bad_request: the broker stock-events is not set: set BROKER_STOCK_EVENTS'
  })
  t.throws(() => chosen(brokers, 'nats', 'orders'), {
    message: 'bad_request: the broker orders is kafka://, not nats:// or natss://'
  })
  t.equal(brokerVariable('stock-events'), 'BROKER_STOCK_EVENTS')
  t.end()
})

t.test('the egress guard holds for brokers, by address and by name', async t => {
  const resolve = async () => [{ address: '10.1.2.3', family: 4 as const }]
  const strict = guard({ allow: [], embedded: false, deny: [], resolve })
  for (const host of ['127.0.0.1', 'kafka.internal', '169.254.169.254']) {
    await t.rejects(allowedAddress(strict, { host, port: 9092 }), { message: /^blocked_target/ }, host)
  }
  const open = guard({ allow: ['10.0.0.0/8', '127.0.0.1:9092'], embedded: false, deny: [], resolve })
  t.equal(await allowedAddress(open, { host: 'kafka.internal', port: 9092 }), '10.1.2.3')
  t.equal(await allowedAddress(open, { host: '127.0.0.1', port: 9092 }), '127.0.0.1')
})

t.test('of several addresses of a broker, one that accepts a connection is used', async t => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  const resolve = async () => [
    { address: '::1', family: 6 as const },
    { address: '127.0.0.2', family: 4 as const },
    { address: '127.0.0.1', family: 4 as const }
  ]
  const open = guard({ allow: [`kafka.internal:${port}`], embedded: false, deny: [], resolve })
  t.equal(await allowedAddress(open, { host: 'kafka.internal', port }), '127.0.0.1')
  const strict = guard({ allow: [`127.0.0.1:${port}`], embedded: false, deny: [], resolve })
  t.equal(
    await allowedAddress(strict, { host: 'kafka.internal', port }),
    '127.0.0.1',
    'the allowed ones are used'
  )
  server.close()
  await once(server, 'close')
  t.equal(await allowedAddress(open, { host: 'kafka.internal', port }), '::1', 'none does: the first')
})

t.test('a transport without a broker of its kind is said at start, all of them at once', async t => {
  const deps = { guard: guard({ allow: [], embedded: false, deny: [] }), brokers: new Map(), log: console }
  const error = await transports(deps, ['kafka', 'http', 'nats', 'kafka']).catch((err: unknown) => err)
  t.ok(error instanceof SetupError)
  t.same((error as Error).message.split('\n'), [
    'a downstream uses kafka, but no broker for it is set: set BROKER_KAFKA=kafka://host',
    'a downstream uses nats, but no broker for it is set: set BROKER_NATS=nats://host'
  ])
})
