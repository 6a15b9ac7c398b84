import { connect, type NatsConnection } from '@nats-io/transport-node'
import { AckPolicy, jetstream, jetstreamManager } from '@nats-io/jetstream'
import { createServer } from 'node:net'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { natsTransport, type NatsRequest } from '../../src/transport/nats/nats.ts'
import type { Transport } from '../../src/transport/types.ts'
import { sendContext } from '../transport/send-context.ts'
import { without } from '../support/program.ts'
import { until } from '../support/until.ts'
import { brokerConformance, type BrokerUnderTest, type Stored } from './conformance.ts'
import { freePorts, server } from './server.ts'

const skip = without('apt-get')
const user = 'ackbox'
const password = 'pass-7Qx'

function transportAt(url: string, allow?: string[]): Transport<NatsRequest> {
  const broker = parseBroker('nats', url) as Broker
  return natsTransport({
    guard: guard({ allow, embedded: allow === undefined, deny: [] }),
    brokers: new Map([['nats', broker]]),
    log: { info: () => {}, warn: () => {} }
  })
}

async function nats(t: Test, extra = '') {
  const [port] = await freePorts(1)
  const running = await server(t, {
    name: 'nats',
    env: {
      NATS_PORT: String(port),
      NATS_EXTRA: `authorization { user: ${user}, password: "${password}" }\n${extra}`
    },
    ready: /Server is ready/
  })
  const servers = `127.0.0.1:${port}`
  const asked = async <T>(what: (client: NatsConnection) => Promise<T>): Promise<T> => {
    const client = await connect({ servers, user, pass: password })
    try {
      return await what(client)
    } finally {
      await client.close()
    }
  }
  await asked(async client => {
    const manager = await jetstreamManager(client)
    await manager.streams.add({ name: 'ORDERS', subjects: ['orders.>'] })
  })
  const url = ({
    port: other = port,
    login = `${user}:${password}`
  }: { port?: number; login?: string } = {}) => `nats://${login}@127.0.0.1:${other}`
  return { server: running, url, asked, port: port! }
}

const storedIn = async (client: NatsConnection, count: number): Promise<Stored[]> => {
  const manager = await jetstreamManager(client)
  let messages = 0
  await until(`${count} are stored`, async () => {
    messages = (await manager.streams.info('ORDERS')).state.messages
    return messages >= count
  })
  const { name } = await manager.consumers.add('ORDERS', {
    name: `look${Date.now()}`,
    ack_policy: AckPolicy.None
  })
  const consumer = await jetstream(client).consumers.get('ORDERS', name)
  const found: Stored[] = []
  while (found.length < messages) {
    for await (const each of await consumer.fetch({
      max_messages: messages - found.length,
      expires: 2_000
    })) {
      const names = each.headers?.keys() ?? []
      found.push({
        body: Buffer.from(each.data),
        headers: Object.fromEntries(names.map(name => [name, each.headers?.get(name) ?? '']))
      })
    }
  }
  return found
}

async function make(t: Test): Promise<BrokerUnderTest<NatsRequest>> {
  const broker = await nats(t)
  return {
    server: broker.server,
    url: broker.url,
    transport: url => transportAt(url),
    request: ({ body, headers }) => ({
      subject: 'orders.paid',
      ...(body === undefined ? {} : { payload: body }),
      ...(headers ? { headers } : {})
    }),
    missing: () => ({ subject: 'nobody.home' }),
    tooLarge: 1_048_576,
    wrongLogin: `${user}:wrong-9Zk`,
    stored: count => broker.asked(client => storedIn(client, count)),
    backMs: 10_000
  }
}

t.test('nats', { skip }, async t => {
  brokerConformance(t, make)

  t.test('repeats', async t => {
    const broker = await nats(t)
    const transport = transportAt(broker.url())
    t.teardown(() => transport.close())
    const send = (id: string, more: { timeoutMs?: number } = {}) =>
      transport.send(
        { subject: 'orders.paid', payload: 'x' },
        sendContext({ ours: { 'webhook-id': id }, ...more })
      )
    const stored = async (id: string) =>
      (await broker.asked(client => storedIn(client, 0))).filter(each => each.headers['webhook-id'] === id)
        .length

    await t.test('one whose receipt is missing reaches the stream again', async t => {
      t.match(await send('msg_a'), { kind: 'delivered', warning: undefined })
      t.match(await send('msg_a'), { kind: 'delivered', warning: undefined })
      t.equal(await stored('msg_a'), 2)
    })

    await t.test('one that was stored but never confirmed is not stored twice', async t => {
      broker.server.freeze()
      t.match(await send('msg_b', { timeoutMs: 600 }), { kind: 'failed', reason: 'timeout' })
      broker.server.thaw()
      // Its confirmation arrives too late
      await sleep(200)
      t.match(await send('msg_b'), { kind: 'delivered', warning: /^duplicate/ })
      t.equal(await stored('msg_b'), 1)
      t.match(
        await send('msg_b'),
        { kind: 'delivered', warning: undefined },
        'confirmed: the next is a new one'
      )
      t.equal(await stored('msg_b'), 2)
    })
  })

  t.test('what the server and the client say', async t => {
    const broker = await nats(t)
    const transport = transportAt(broker.url())
    t.teardown(() => transport.close())
    await broker.asked(async client => {
      const manager = await jetstreamManager(client)
      await manager.streams.add({ name: 'FULL', subjects: ['full'], max_msgs: 1, discard: 'new' })
      await manager.streams.add({ name: 'SMALL', subjects: ['small'], max_msg_size: 100 })
    })
    const send = (request: unknown) => transport.send(request as NatsRequest, sendContext({ raw: 'x' }))

    t.match(await send({ subject: 'full' }), { kind: 'delivered' })
    t.match(await send({ subject: 'full' }), { kind: 'failed', reason: /^full: 10077/ })
    t.match(await send({ subject: 'small', payload: 'x'.repeat(200) }), {
      kind: 'refused',
      reason: /^too_large/
    })
    const headers = { 'x-long': 'x'.repeat(1_048_000) }
    t.match(
      await send({ subject: 'orders.a', headers, payload: 'x'.repeat(600) }),
      { kind: 'refused', reason: /^too_large/ },
      'headers count, and the connection stays'
    )
    const subjects = [
      'a b',
      '',
      'a..b',
      'a.*',
      '>',
      '$JS.API.STREAM.DELETE.ORDERS',
      '_INBOX.x',
      'a\r\nPUB b',
      7
    ]
    for (const subject of subjects)
      t.match(await send({ subject }), { kind: 'failed', reason: /^bad_request/ })
    for (const headers of [
      { 'Webhook-Id': 'x' },
      { 'ackbox-x': 'y' },
      { 'nats-msg-id': 'z' },
      { a: 'b\r\nc: d' }
    ])
      t.match(await send({ subject: 'orders.a', headers }), { kind: 'failed', reason: /^bad_request/ })
    for (const request of [
      null,
      { subject: 'orders.a', payload: 7 },
      { subject: 'orders.a', broker: 'other' }
    ])
      t.match(await send(request), { kind: 'failed', reason: /^bad_request/ })
  })

  t.test('a broker at a denied address is never connected to', async t => {
    let connections = 0
    const listening = createServer(socket => {
      connections++
      socket.destroy()
    }).listen(0, '127.0.0.1')
    await once(listening, 'listening')
    t.teardown(() => listening.close())
    const { port } = listening.address() as { port: number }
    for (const host of ['127.0.0.1', 'localhost']) {
      const transport = transportAt(`nats://${host}:${port}`, [])
      t.match(await transport.send({ subject: 'orders.a' }, sendContext()), {
        kind: 'failed',
        reason: /^blocked_target/,
        alarm: 'BLOCKED_TARGET'
      })
      await transport.close()
    }
    t.equal(connections, 0)
  })
})
