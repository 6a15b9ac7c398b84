// The broker's own message id is stored: the message can be found in the broker by it.
import { Redis } from 'ioredis'
import { connect } from '@nats-io/transport-node'
import { jetstreamManager } from '@nats-io/jetstream'
import t from 'tap'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { natsTransport } from '../../src/transport/nats/nats.ts'
import { redisStreamTransport } from '../../src/transport/redis-stream/redis-stream.ts'
import { sendContext } from '../transport/send-context.ts'
import { without } from '../support/program.ts'
import { freePorts, server } from './server.ts'

const skip = without('apt-get')
const deps = (name: string, url: string) => ({
  guard: guard({ allow: undefined, embedded: true, deny: [] }),
  brokers: new Map([[name, parseBroker(name, url) as Broker]]),
  log: { info: () => {}, warn: () => {} }
})

t.test('redis streams: the id of the entry', { skip }, async t => {
  const [port = 0] = await freePorts(1)
  await server(t, { name: 'redis', env: { REDIS_PORT: String(port) }, ready: /Ready to accept connections/ })
  const transport = redisStreamTransport(deps('redis-stream', `redis://127.0.0.1:${port}`))
  t.teardown(() => transport.close())
  const client = new Redis({ port })
  t.teardown(() => client.disconnect())
  for (const n of [1, 2]) {
    const sent = await transport.send({ stream: 'orders' }, sendContext({ raw: `{"n":${n}}` }))
    const id = sent.messageId ?? ''
    t.match(await client.xrange('orders', id, id), [[id, ['body', `{"n":${n}}`]]])
  }
})

t.test('nats: stream and sequence', { skip }, async t => {
  const [port = 0] = await freePorts(1)
  await server(t, { name: 'nats', env: { NATS_PORT: String(port) }, ready: /Server is ready/ })
  const client = await connect({ servers: `127.0.0.1:${port}` })
  t.teardown(() => client.close())
  const manager = await jetstreamManager(client)
  await manager.streams.add({ name: 'ORDERS', subjects: ['orders.>'] })
  const transport = natsTransport(deps('nats', `nats://127.0.0.1:${port}`))
  t.teardown(() => transport.close())
  for (const n of [1, 2]) {
    const sent = await transport.send({ subject: 'orders.paid' }, sendContext({ raw: `{"n":${n}}` }))
    const [stream = '', seq = ''] = (sent.messageId ?? '').split('/')
    const message = await manager.streams.getMessage(stream, { seq: Number(seq) })
    t.equal(message?.string(), `{"n":${n}}`)
  }
})
