import { setTimeout as sleep } from 'node:timers/promises'
import { jetstreamManager } from '@nats-io/jetstream'
import { connect, type NatsConnection } from '@nats-io/transport-node'
import t, { type Test } from 'tap'
import { natsTransport, type NatsRequest } from '../../src/transport/nats.ts'
import { parcel } from '../transport/parcel.ts'
import { brokerConformance, type Stored } from './conformance.ts'
import { listener, only, strict } from './open.ts'
import { freePorts, server, without, type Server } from './server.ts'

const skip = without('apt-get', 'dpkg')
const most = 100_000

interface Ground {
  server: Server
  connection: NatsConnection
  url(more?: { port?: number; login?: string }): string
  stored(count: number): Promise<Stored[]>
}

async function nats(t: Test): Promise<Ground> {
  const [port = 0] = await freePorts(1)
  const running = await server(t, {
    name: 'nats',
    env: {
      NATS_PORT: `${port}`,
      NATS_MAX_PAYLOAD: `${most}`,
      NATS_EXTRA: 'authorization { user: "me", password: "hunter2" }'
    },
    ready: /Server is ready/
  })
  const connection = await connect({
    servers: `127.0.0.1:${port}`,
    user: 'me',
    pass: 'hunter2',
    maxReconnectAttempts: -1,
    reconnectTimeWait: 50
  })
  t.teardown(() => connection.close())
  const manager = await jetstreamManager(connection)
  await manager.streams.add({ name: 'orders', subjects: ['orders.*'] })
  return {
    server: running,
    connection,
    url: (more = {}) => `nats://${more.login ?? 'me:hunter2'}@127.0.0.1:${more.port ?? port}`,
    async stored(count) {
      for (const end = Date.now() + 10_000; Date.now() < end; await sleep(50)) {
        const info = await manager.streams.info('orders').catch(() => undefined)
        if (info && info.state.messages >= count) break
      }
      const { state } = await manager.streams.info('orders')
      const found: Stored[] = []
      for (let seq = state.first_seq; seq <= state.last_seq; seq++) {
        const message = await manager.streams.getMessage('orders', { seq })
        if (!message) continue
        const names = message.header.keys()
        found.push({
          body: Buffer.from(message.data),
          headers: Object.fromEntries(names.map(name => [name, message.header.get(name)]))
        })
      }
      return found
    }
  }
}

let sent = 0
/** Each send is a delivery of its own, or the stream would take it for a duplicate. */
const paid = (more: Partial<NatsRequest> = {}): NatsRequest => ({ subject: 'orders.paid', ...more })
const fresh = (url: string) => {
  const transport = natsTransport(only('nats', url))
  return {
    ...transport,
    send: ((request, given, accepted) => {
      const headers = (payload: string | Uint8Array) => ({
        'webhook-id': `msg_${sent++}`,
        'ackbox-attempt': '1',
        ...given.headers(payload)
      })
      return transport.send(request, { ...given, headers }, accepted)
    }) as typeof transport.send
  }
}

t.test('as every broker', { skip }, t => {
  brokerConformance<NatsRequest>(t, async t => {
    const ground = await nats(t)
    return {
      server: ground.server,
      url: ground.url,
      transport: fresh,
      request: ({ body, headers }) =>
        paid({
          subject: 'orders.paid',
          ...(body === undefined ? {} : { payload: body }),
          ...(headers === undefined ? {} : { headers })
        }),
      missing: () => paid({ subject: 'nobody.listens' }),
      tooLarge: most + 1,
      wrongLogin: 'me:not-the-password',
      stored: ground.stored,
      backMs: 10_000
    }
  })
  t.end()
})

const attempt = (id: string, number: number) =>
  parcel({ ours: { 'webhook-id': id, 'ackbox-attempt': `${number}` }, raw: '{}' })

t.test(
  'what was confirmed and lacks its receipt arrives again; what was not confirmed does not',
  { skip },
  async t => {
    const ground = await nats(t)
    const transport = natsTransport(only('nats', ground.url()))
    t.teardown(() => transport.close())
    t.match(await transport.send(paid(), attempt('a', 1)), { kind: 'delivered', warning: undefined })
    t.match(await transport.send(paid(), attempt('a', 2)), { kind: 'delivered', warning: undefined })
    t.equal((await ground.stored(2)).length, 2, 'two attempts of one delivery')

    // It hangs with the message in its socket, and stores it when it goes on: nobody confirmed it in time.
    ground.server.freeze()
    await sleep(100)
    const uncertain = await transport.send(paid(), { ...attempt('b', 1), timeoutMs: 300 })
    t.match(uncertain, { kind: 'failed', reason: 'timeout' })
    ground.server.thaw()
    await ground.stored(3)
    t.match(await transport.send(paid(), attempt('b', 2)), { kind: 'delivered', warning: /^duplicate/ })
    t.equal((await ground.stored(3)).length, 3, 'stored once')
    t.match(await transport.send(paid(), attempt('b', 3)), { kind: 'delivered', warning: undefined })
    t.equal((await ground.stored(4)).length, 4)
  }
)

t.test('what only NATS does', { skip }, async t => {
  const ground = await nats(t)
  const transport = natsTransport(only('nats', ground.url()))
  t.teardown(() => transport.close())
  const manager = await jetstreamManager(ground.connection)
  await manager.streams.add({ name: 'full', subjects: ['full'], max_msgs: 1, discard: 'new' as never })
  t.match(await transport.send(paid({ subject: 'full' }), attempt('a', 1)), { kind: 'delivered' })
  t.match(await transport.send(paid({ subject: 'full' }), attempt('b', 1)), {
    kind: 'failed',
    reason: /^stream_refused: 10077/
  })
  const bad: [Partial<NatsRequest> | { headers: unknown; payload: unknown }, RegExp][] = [
    [{ subject: 'a b' }, /subject/],
    [{ subject: 'a.*' }, /subject/],
    [{ subject: '' }, /subject/],
    [{ payload: 7 as never }, /text or bytes/],
    [{ headers: { 'Nats-Msg-Id': 'x' } }, /not the handler's/],
    [{ headers: { 'ackbox-attempt': 'x' } }, /not the handler's/],
    [{ headers: { a: 'x\r\ny: z' } }, /does not fit/]
  ]
  for (const [more, why] of bad) {
    const outcome = await transport.send(paid(more as Partial<NatsRequest>), attempt('c', 1))
    t.match(outcome, { kind: 'failed', reason: why })
  }
})

t.test('the egress guard holds: not one connection', async t => {
  const denied = await listener(t)
  const transport = natsTransport(only('nats', `nats://127.0.0.1:${denied.port}`, strict()))
  t.teardown(() => transport.close())
  t.match(await transport.send(paid(), attempt('a', 1)), { kind: 'failed', alarm: 'BLOCKED_TARGET' })
  t.equal(denied.connections(), 0)
})
