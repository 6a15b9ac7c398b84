import { createRequire } from 'node:module'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { once } from 'node:events'
import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js'
import grpc from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_grpc_pb.js'
import service from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_pb.js'
import t, { type Test } from 'tap'
import { parseBroker } from '../../src/transport/broker.ts'
import { guard, type Guard } from '../../src/transport/egress/guard.ts'
import { rocketmqTransport, type RocketmqRequest } from '../../src/transport/rocketmq/rocketmq.ts'
import type { Transport } from '../../src/transport/types.ts'
import { only } from '../support/only.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { sendContext } from './send-context.ts'

const { Code, MessageType, Permission } = definition

interface GrpcServer {
  addService(service: unknown, methods: object): void
  bindAsync(at: string, credentials: unknown, done: (error: Error | null, port: number) => void): void
  forceShutdown(): void
}
const { Server, ServerCredentials } = createRequire(import.meta.resolve('rocketmq-client-nodejs'))(
  '@grpc/grpc-js'
) as { Server: new () => GrpcServer; ServerCredentials: { createInsecure(): unknown } }

interface FakeProxy {
  port: number
  /** The messages that it received. */
  sent: InstanceType<typeof definition.Message>[]
  /** The advertised address of the topic's queues. By default all addresses that the client used, as clusters do. */
  advertised: { host: string; port: number } | undefined
  kinds: number[]
  /** Its answer to a message, and the number of requests for a route. */
  code: number
  routes: number
  stop(): void
  start(): Promise<void>
}

/** Implements the part of the protocol that a producer needs. */
async function fakeProxy(t: Test): Promise<FakeProxy> {
  let running: GrpcServer | undefined
  const fake: FakeProxy = {
    port: 0,
    sent: [],
    advertised: undefined,
    kinds: [MessageType.NORMAL],
    code: Code.OK,
    routes: 0,
    stop: () => running?.forceShutdown(),
    start: () =>
      new Promise((resolve, reject) => {
        running = new Server()
        running.addService(grpc.MessagingServiceService, { queryRoute, sendMessage })
        running.bindAsync(`127.0.0.1:${fake.port}`, ServerCredentials.createInsecure(), (error, port) => {
          if (error) return reject(error)
          fake.port = port
          resolve()
        })
      })
  }
  const status = (code: number) => new definition.Status().setCode(code)

  function queryRoute(
    call: { request: InstanceType<typeof service.QueryRouteRequest> },
    done: (error: null, answer: object) => void
  ): void {
    fake.routes++
    const given = fake.advertised ? [fake.advertised] : call.request.toObject().endpoints!.addressesList
    const addresses = given.map(({ host, port }) => new definition.Address().setHost(host).setPort(port))
    const broker = new definition.Broker()
      .setName('b')
      .setEndpoints(new definition.Endpoints().setAddressesList(addresses))
    const queue = new definition.MessageQueue()
      .setTopic(new definition.Resource().setName('orders'))
      .setPermission(Permission.READ_WRITE)
      .setBroker(broker)
      .setAcceptMessageTypesList(fake.kinds)
    done(null, new service.QueryRouteResponse().setStatus(status(Code.OK)).setMessageQueuesList([queue]))
  }

  function sendMessage(
    call: { request: InstanceType<typeof service.SendMessageRequest> },
    done: (error: null, answer: object) => void
  ): void {
    fake.sent.push(...call.request.getMessagesList())
    done(null, new service.SendMessageResponse().setStatus(status(fake.code)))
  }

  await fake.start()
  t.teardown(() => fake.stop())
  return fake
}

/** Accepts connections and sends nothing. */
async function hungServer(t: Test): Promise<{ port: number; sockets: Socket[] }> {
  const sockets: Socket[] = []
  const hung = createServer(socket => sockets.push(socket.on('error', () => {}))).listen(0, '127.0.0.1')
  await once(hung, 'listening')
  t.teardown(() => {
    hung.close()
    for (const socket of sockets) socket.destroy()
  })
  return { port: (hung.address() as AddressInfo).port, sockets }
}

/** Another address of the proxy at `port`. */
async function relay(t: Test, port: number): Promise<{ port: number; sockets: Socket[]; stop(): void }> {
  const sockets: Socket[] = []
  const server = createServer(socket => {
    sockets.push(socket.on('error', () => {}))
    const onward = connect(port, '127.0.0.1').on('error', () => {})
    socket.on('close', () => onward.destroy())
    socket.pipe(onward).pipe(socket)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const stop = (): void => {
    server.close()
    for (const socket of sockets) socket.destroy()
  }
  t.teardown(stop)
  return { port: (server.address() as AddressInfo).port, sockets, stop }
}

const embedded = guard({ allow: undefined, embedded: true, deny: [] })

function transportTo(t: Test, url: string, by: Guard = embedded, said: string[] = []) {
  const broker = parseBroker('rocketmq', url)
  if (typeof broker === 'string') throw new Error(broker)
  const log = {
    info: (_: object, message: string) => said.push(message),
    warn: (_: object, message: string) => said.push(message)
  }
  const transport = rocketmqTransport({ guard: by, brokers: new Map([['rocketmq', broker]]), log })
  t.teardown(() => transport.close())
  return transport
}

const send = (transport: Transport<RocketmqRequest>, request: Partial<RocketmqRequest> = {}) =>
  transport.send({ topic: 'orders', body: 'x', ...request }, sendContext())

t.test('what a handler got wrong is said and not sent', async t => {
  const proxy = await fakeProxy(t)
  const transport = transportTo(t, `rocketmq://127.0.0.1:${proxy.port}`)
  const wrong: [unknown, RegExp][] = [
    [undefined, /no request/],
    [{}, /topic/],
    [{ topic: '' }, /topic/],
    [{ topic: 'orders', broker: 'other' }, /the broker other is not set/],
    [{ topic: 'orders', tag: 1 }, /tag/],
    [{ topic: 'orders', keys: 'k' }, /keys/],
    [{ topic: 'orders', keys: [1] }, /keys/],
    [{ topic: 'orders', group: '' }, /group/],
    [{ topic: 'orders', delayMs: -1 }, /delayMs/],
    [{ topic: 'orders', delayMs: '1s' }, /delayMs/],
    [{ topic: 'orders', delayMs: 1_000, group: 'g' }, /not both/],
    [{ topic: 'orders', properties: { a: 1 } }, /property a/],
    [{ topic: 'orders', properties: null }, /properties/],
    [{ topic: 'orders', properties: { 'Webhook-Id': 'mine' } }, /must not set the property/],
    [{ topic: 'orders', properties: { 'ackbox-task-no': 'mine' } }, /must not set the property/],
    [{ topic: 'orders', body: { a: 1 } }, /body/]
  ]
  for (const [request, why] of wrong) {
    const outcome = await transport.send(request as RocketmqRequest, sendContext())
    t.match(outcome, { kind: 'failed', reason: /^bad_request: / })
    t.match(outcome, { reason: why })
  }
  t.equal(proxy.routes, 0)
})

t.test('a message carries what the request names, and our headers as properties', async t => {
  const proxy = await fakeProxy(t)
  proxy.kinds = [MessageType.MESSAGE_TYPE_UNSPECIFIED]
  const transport = transportTo(t, `rocketmq://127.0.0.1:${proxy.port}/acme`)
  const request = { topic: 'orders', tag: 'paid', keys: ['k1', 'k2'], properties: { own: 'é' }, group: 'o-7' }
  const ours = { 'webhook-id': 'msg_1' }
  t.match(await transport.send(request, sendContext({ raw: '{"n": 1.0}', ours })), {
    kind: 'delivered',
    address: `127.0.0.1:${proxy.port}`
  })
  const [message] = proxy.sent
  t.equal(Buffer.from(message!.getBody_asU8()).toString(), '{"n": 1.0}')
  t.match(message?.getTopic()?.toObject(), { name: 'orders', resourceNamespace: 'acme' })
  t.match(message?.getSystemProperties()?.toObject(), {
    tag: 'paid',
    keysList: only('k1', 'k2'),
    messageGroup: 'o-7',
    messageType: MessageType.FIFO,
    messageId: /^01[0-9A-F]{32}$/
  })
  t.strictSame(message?.toObject().userPropertiesMap, [
    ['own', 'é'],
    ['webhook-id', 'msg_1']
  ])
})

t.test('the orderingKey of the task is the key of a message that names none', async t => {
  const proxy = await fakeProxy(t)
  const transport = transportTo(t, `rocketmq://127.0.0.1:${proxy.port}`)
  const key = { raw: 'x', orderingKey: 'order-42' }
  await transport.send({ topic: 'orders' }, sendContext(key))
  await transport.send({ topic: 'orders', keys: ['own'] }, sendContext(key))
  t.same(
    proxy.sent.map(message => message.getSystemProperties()?.toObject().keysList),
    [['order-42'], ['own']]
  )
})

t.test('a message whose kind the topic does not take is refused and not sent', async t => {
  const proxy = await fakeProxy(t)
  const transport = transportTo(t, `rocketmq://127.0.0.1:${proxy.port}`)
  t.match(await send(transport, { group: 'g' }), {
    kind: 'refused',
    reason: 'target_type: the topic orders takes NORMAL, not FIFO'
  })
  t.equal(proxy.sent.length, 0)
})

t.test('a proxy that does not know the type yet says 40014, which is not for good', async t => {
  const proxy = await fakeProxy(t)
  const transport = transportTo(t, `rocketmq://127.0.0.1:${proxy.port}`)
  proxy.code = Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
  t.match(await send(transport), { kind: 'failed', reason: /^target_type/, status: 40_014 })
  proxy.code = Code.OK
  t.match(await send(transport), { kind: 'delivered' })
  t.equal(proxy.routes, 2, 'where the topic is was asked again')
})

t.test('what the proxy answers is told apart', async t => {
  const proxy = await fakeProxy(t)
  const transport = transportTo(t, `rocketmq://127.0.0.1:${proxy.port}`)
  const answers: [number, object][] = [
    [Code.UNAUTHORIZED, { kind: 'failed', reason: /^credentials/ }],
    [Code.FORBIDDEN, { kind: 'failed', reason: /^credentials/ }],
    [Code.TOO_MANY_REQUESTS, { kind: 'failed', reason: /^busy/ }],
    [Code.MASTER_PERSISTENCE_TIMEOUT, { kind: 'failed', reason: 'broker: 50401' }],
    [Code.CODE_UNSPECIFIED, { kind: 'failed', reason: 'broker: 0' }]
  ]
  for (const [code, outcome] of answers) {
    proxy.code = code
    t.match(await send(transport), outcome)
  }
})

t.test('a broker at a denied address sees no connection', async t => {
  let connections = 0
  const trap = createServer(socket => {
    connections++
    socket.destroy()
  }).listen(0, '127.0.0.1')
  await once(trap, 'listening')
  t.teardown(() => trap.close())
  const { port } = trap.address() as AddressInfo
  const nothing = guard({ allow: [], embedded: false, deny: [] })
  for (const host of ['127.0.0.1', 'localhost']) {
    const outcome = await send(transportTo(t, `rocketmq://${host}:${port}`, nothing))
    t.match(outcome, { kind: 'failed', reason: /^blocked_target/, alarm: 'BLOCKED_TARGET' })
  }
  t.equal(connections, 0)
})

t.test('an address that a broker advertises is judged like one that was set', async t => {
  const proxy = await fakeProxy(t)
  proxy.advertised = { host: '169.254.169.254', port: 80 }
  const transport = transportTo(t, `rocketmq://127.0.0.1:${proxy.port}`)
  t.match(await send(transport), {
    kind: 'failed',
    reason: /^blocked_target: target 169\.254/,
    alarm: 'BLOCKED_TARGET'
  })
})

t.test('of two hosts one is enough', async t => {
  const proxy = await fakeProxy(t)
  const transport = transportTo(t, `rocketmq://127.0.0.1:1,127.0.0.1:${proxy.port}`)
  for (let i = 0; i < 4; i++) t.match(await send(transport), { kind: 'delivered' })
})

t.test('a host whose name has no address is passed over', async t => {
  const proxy = await fakeProxy(t)
  const said: string[] = []
  const resolve = async () => {
    throw Object.assign(new Error('no address'), { code: 'ENOTFOUND' })
  }
  const nowhere = guard({ allow: undefined, embedded: true, deny: [], resolve })
  const transport = transportTo(t, `rocketmq://gone.example,127.0.0.1:${proxy.port}`, nowhere, said)
  for (let i = 0; i < 4; i++) t.match(await send(transport, { topic: `t${i}` }), { kind: 'delivered' })
  t.same(said, ['broker.unavailable'])
  const alone = transportTo(t, 'rocketmq://gone.example', nowhere)
  t.match(await send(alone), { kind: 'failed', reason: /^dns/ })
})

t.test('a host that hangs is passed over, and not asked first again', async t => {
  const { port } = await hungServer(t)
  const proxy = await fakeProxy(t)
  const transport = transportTo(t, `rocketmq://127.0.0.1:${port},127.0.0.1:${proxy.port}`)
  t.match(await send(transport), { kind: 'delivered' })
  const began = stopwatch(t)
  t.match(await send(transport, { topic: 'others' }), { kind: 'delivered' })
  t.ok(began() < 1_000)
})

t.test('a server whose handshake hangs does not cost a connection for each send', async t => {
  const { port, sockets } = await hungServer(t)
  const transport = transportTo(t, `rocketmq://127.0.0.1:${port}`)
  for (let i = 0; i < 5; i++) {
    const outcome = await transport.send({ topic: `t${i}`, body: 'x' }, sendContext({ timeoutMs: 100 }))
    t.match(outcome, { kind: 'failed', reason: 'timeout' })
  }
  t.equal(sockets.length, 1)
})

t.test('trouble is said once when it begins and once when it is over, and heals at once', async t => {
  const proxy = await fakeProxy(t)
  const said: string[] = []
  const transport = transportTo(t, `rocketmq://127.0.0.1:${proxy.port}`, embedded, said)
  t.match(await send(transport), { kind: 'delivered' })
  proxy.stop()
  for (let i = 0; i < 20; i++)
    t.match(await send(transport), { kind: 'failed', reason: /^connection_(refused|closed)/ })
  await proxy.start()
  t.match(await send(transport), { kind: 'delivered' })
  t.match(await send(transport), { kind: 'delivered' })
  t.strictSame(said, ['broker.unavailable', 'broker.available'])
})

t.test('a proxy that the route names no more is left and forgotten', async t => {
  let clock = performance.now()
  t.capture(performance, 'now', () => clock)
  const proxy = await fakeProxy(t)
  const { sockets, ...old } = await relay(t, proxy.port)
  const said: string[] = []
  const transport = transportTo(t, `rocketmq://127.0.0.1:${proxy.port}`, embedded, said)
  const moveTo = (port: number): void => {
    proxy.advertised = { host: '127.0.0.1', port }
    clock += 31_000
  }
  moveTo(old.port)
  t.match(await send(transport), { kind: 'delivered' })
  t.same(
    sockets.map(socket => socket.closed),
    [false]
  )
  moveTo(proxy.port)
  for (let i = 0; i < 100 && !sockets[0]?.closed; i++) t.match(await send(transport), { kind: 'delivered' })
  t.same(
    sockets.map(socket => socket.closed),
    [true]
  )
  old.stop()
  const failing = { kind: 'failed', reason: 'connection_refused' }
  moveTo(old.port)
  t.match(await send(transport), failing)
  moveTo(proxy.port)
  t.match(await send(transport), { kind: 'delivered' })
  moveTo(old.port)
  t.match(await send(transport), failing)
  t.same(said, ['broker.unavailable', 'broker.unavailable'], 'it is news again')
})

t.test('a server that is no proxy of RocketMQ is a failure', async t => {
  const server = createServer(socket => {
    socket.on('error', () => {})
    socket.on('data', () => socket.end('HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n'))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  t.match(await send(transportTo(t, `rocketmq://127.0.0.1:${port}`)), { kind: 'failed', reason: /./ })
})

t.test('after close nothing is sent', async t => {
  const proxy = await fakeProxy(t)
  const transport = transportTo(t, `rocketmq://127.0.0.1:${proxy.port}`)
  t.match(await send(transport), { kind: 'delivered' })
  await transport.close()
  t.match(await send(transport), { kind: 'failed', reason: 'shutdown' })
  t.equal(proxy.sent.length, 1)
})
