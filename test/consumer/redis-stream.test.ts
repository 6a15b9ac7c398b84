// `once` with entries of a Redis stream, as the transport writes them and Redis returns them.
import { Redis } from 'ioredis'
import t from 'tap'
import { deliveryHeaders } from '../../src/delivery/headers.ts'
import { receiver } from '../../src/consumer/consumer.ts'
import { tokens } from '../../src/domain/tokens.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import {
  redisStreamTransport,
  type RedisStreamRequest
} from '../../src/transport/redis-stream/redis-stream.ts'
import { sendContext } from '../transport/send-context.ts'
import { testRedis } from '../support/redis.ts'
import { newId, postgresBank, secret } from './databases.ts'

const producers = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
const attempts = '00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01'

const entries: Record<string, NonNullable<RedisStreamRequest['fields']>> = {
  'lower case': { orderid: '1001' },
  'upper case, in the order of the handler': { orderId: '1001', Cents: '4200', city: '上海 "é"' },
  'names of numbers': { b: 'x', 2: 'y', 1: 'z' },
  'a field Body': { Body: '1001' },
  'an own traceparent': { orderId: '1001', traceparent: 'mine' },
  'an own Traceparent': { Traceparent: 'mine' },
  'an own ce-traceparent': { 'ce-traceparent': 'mine' },
  body: { orderId: '1001', body: '{"orderId":"1001"}' },
  'body and Body': { body: 'signed', Body: 'not signed' },
  'a body of bytes': { body: Buffer.from([0, 255, 128, 10]) }
}

t.test('every entry that the transport writes is accepted, a changed one is not', async t => {
  const redis = await testRedis(t)
  if (!redis) return
  const bank = await postgresBank(t)
  const client = new Redis(redis.url)
  t.teardown(() => client.disconnect())
  const stream = newId()
  t.teardown(() => client.del(stream))
  const broker = parseBroker('redis-stream', redis.url) as Broker
  const transport = redisStreamTransport({
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
    brokers: new Map([['redis-stream', broker]]),
    log: { info: () => {}, warn: () => {} }
  })
  t.teardown(() => transport.close())
  const points = receiver({ secrets: [secret], db: bank.db, consumer: 'points', url: 'http://127.0.0.1:1' })
  const once = (headers: unknown) =>
    bank.db.begin(native => points.once(bank.db.within(native), { headers }, () => Promise.resolve()))

  for (const traceparentOf of [undefined, () => attempts])
    for (const format of [undefined, 'cloudevents'] as const)
      for (const [what, fields] of Object.entries(entries))
        await t.test(`${what}${traceparentOf ? ', with tracing' : ''}, ${format ?? 'no format'}`, async t => {
          const headers = headersOf(traceparentOf, format)
          const sent = await transport.send(
            { stream, fields },
            sendContext({ headers: payload => headers(payload) })
          )
          t.match(sent, { kind: 'delivered' })
          const [entry] = await client.xrevrangeBuffer(stream, '+', '-', 'COUNT', 1)
          const flat = entry?.[1] ?? []
          t.match(await once(flat), { first: true }, 'as it is')
          const texts = flat.map(String)
          if (!Object.values(fields).some(value => typeof value !== 'string')) {
            const pairs = texts.flatMap((name, at) => (at % 2 === 0 ? [[name, texts[at + 1]] as const] : []))
            t.match(await once(Object.fromEntries(pairs)), { first: false }, 'as an object of texts')
          }
          const [name] = 'body' in fields ? ['body'] : Object.keys(fields)
          const at = texts.indexOf(String(name))
          await t.rejects(
            once(texts.with(at + 1, `${texts[at + 1]} `)),
            { name: 'InvalidSignature' },
            'another value'
          )
          if (!('body' in fields))
            await t.rejects(once(['more', '1', ...texts]), { name: 'InvalidSignature' }, 'another field')
        })
})

/** The headers of a new delivery, whose producer sent a traceparent. */
function headersOf(traceparentOf: (() => string) | undefined, format: 'cloudevents' | undefined) {
  const now = new Date()
  const { headers } = deliveryHeaders({
    handlers: [
      {
        messageCode: 'order.seen',
        downstreams: [
          { name: 'points', secrets: [secret], transport: 'redis-stream', ...(format && { format }) }
        ]
      }
    ],
    secret: 'the secret of a test, of 32 characters',
    tokens: tokens({ current: 'the secret of a test, of 32 characters' }),
    publicUrl: 'http://ackbox.test',
    forgetMs: 30 * 86_400_000,
    traceparentOf
  })
  const taskNo = newId()
  const delivery = {
    task: {
      id: taskNo.slice(0, 36),
      taskNo,
      messageCode: 'order.seen',
      sceneType: '',
      traceparent: producers,
      createdAt: now
    },
    downstream: 'points',
    attempt: 1,
    needsReceipt: true,
    position: 1,
    round: 1,
    roundAt: now
  } as Parameters<typeof headers>[0]
  return (payload: string | Uint8Array) => headers(delivery, payload)
}
