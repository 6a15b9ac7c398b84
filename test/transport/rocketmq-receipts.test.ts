// The reader of receipts against a scripted proxy of RocketMQ: which receipts it takes, hands back and never holds.
// Takes long: npm run test:long.
import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js'
import service from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_pb.js'
import t, { type Test } from 'tap'
import { gzipSync } from 'node:zlib'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { readReceipts } from '../../src/transport/rocketmq/receipts.ts'
import type { TakeReceipt } from '../../src/transport/receipts.ts'
import { until } from '../support/until.ts'
import { proxyOf, type ScriptedProxy } from './rocketmq-proxy.ts'

const { Code, Encoding } = definition

t.setTimeout(2_400_000)

function reading(t: Test, { port }: ScriptedProxy, handle: (text: string) => Promise<'done' | 'later'>) {
  const said: string[] = []
  const seen: { text: string; headers: Record<string, string> }[] = []
  const taken: TakeReceipt = async ({ body, headers }) => {
    const text = Buffer.from(body).toString()
    seen.push({ text, headers })
    return handle(text)
  }
  const end = new AbortController()
  const over = readReceipts(
    {
      broker: parseBroker('rocketmq', `rocketmq://127.0.0.1:${port}`) as Broker,
      guard: guard({ allow: undefined, embedded: true, deny: [] }),
      log: {
        info: (_, message) => void said.push(message),
        warn: (fields, message) =>
          void said.push(`${message} ${'reason' in fields ? String(fields.reason) : ''}`)
      }
    },
    taken,
    end.signal
  )
  const stop = async (): Promise<void> => {
    end.abort()
    await over
  }
  t.teardown(stop)
  return { said, seen, stop }
}

const done = async (): Promise<'done'> => 'done'

function gate(): { passed: Promise<'done'>; open(): void } {
  let open = (): void => {}
  const passed = new Promise<'done'>(resolve => {
    open = () => resolve('done')
  })
  return { passed, open: () => open() }
}

t.test('a receipt is acknowledged after it was handled, and not before', async t => {
  const proxy = await proxyOf(t)
  const handled = gate()
  const { seen, said } = reading(t, proxy, () => handled.passed)
  proxy.bodies.push('{"a": 1.0}')
  await until('it is in hand', () => seen.length === 1)
  t.strictSame(seen, [{ text: '{"a": 1.0}', headers: { 'ackbox-callback-token': 'v1.abc' } }])
  const before = proxy.asked.length
  await until('it asks on meanwhile', () => proxy.asked.length > before + 1)
  t.same(proxy.acknowledged, [])
  handled.open()
  await until('it is acknowledged', () => proxy.acknowledged.length === 1)
  t.same(proxy.acknowledged, ['handle of {"a": 1.0}'])
  t.same(said, [])
})

t.test('a receipt that cannot be written now, or that breaks its handler, is handed over again', async t => {
  const proxy = await proxyOf(t)
  const times = new Map<string, number>()
  reading(t, proxy, async text => {
    const nth = (times.get(text) ?? 0) + 1
    times.set(text, nth)
    if (text === 'poison' && nth < 3) throw new Error('broken')
    return text === 'later' && nth < 2 ? 'later' : 'done'
  })
  proxy.bodies.push('poison', 'later', 'plain')
  await until('all are acknowledged', () => proxy.acknowledged.length === 3)
  t.same(Object.fromEntries(times), { poison: 3, later: 2, plain: 1 })
})

t.test('no more than a hundred are in hand, and no more are asked for', async t => {
  const proxy = await proxyOf(t)
  const open = gate()
  const { seen } = reading(t, proxy, () => open.passed)
  for (let n = 0; n < 250; n++) proxy.bodies.push(`r${n}`)
  await until('a hundred are in hand', () => seen.length >= 100)
  t.equal(seen.length, 100)
  t.equal(proxy.bodies.length, 150)
  t.ok(proxy.asked.every(most => most <= 32))
  open.open()
  await until('all are acknowledged', () => proxy.acknowledged.length === 250)
})

t.test('what a lost connection brought counts on while PostgreSQL hangs', async t => {
  const proxy = await proxyOf(t)
  const held: (() => void)[] = []
  const { seen } = reading(t, proxy, () => new Promise(resolve => held.push(() => resolve('done'))))
  for (let n = 0; n < 250; n++) proxy.bodies.push(`r${n}`)
  await until('a hundred are in hand', () => seen.length === 100)
  proxy.stop()
  await proxy.start()
  await until('it has come again', () => proxy.sessions > 1)
  held.shift()?.()
  await until('one more is in hand', () => seen.length > 100)
  t.equal(seen.length, 101)
  for (const each of held) each()
})

t.test('a proxy that has nothing, and says so at once, is not asked without end', async t => {
  const proxy = await proxyOf(t)
  proxy.emptyMs = 0
  const since = performance.now()
  reading(t, proxy, done)
  await until('it asks on', () => proxy.asked.length > 8)
  t.ok(
    performance.now() - since > 1_000,
    `${proxy.asked.length} questions in ${performance.now() - since} ms`
  )
})

t.test('one who sends more than was asked for loses the connection', async t => {
  const proxy = await proxyOf(t)
  proxy.isGenerous = true
  for (let n = 0; n < 200; n++) proxy.bodies.push(`r${n}`)
  const { said, seen } = reading(t, proxy, done)
  await until('it is said', () => said.length > 0)
  t.same(said[0], 'receipts.unavailable protocol: more answers than requested')
  t.ok(seen.length <= 32)
})

t.test('a message larger than any receipt is not read; then one is asked for at a time', async t => {
  const proxy = await proxyOf(t)
  proxy.bodies.push('x'.repeat(2_300_000), 'behind it')
  const { said, seen } = reading(t, proxy, done)
  await until('it is said', () => said.length > 0)
  t.same(said, ['receipts.unavailable protocol: a message of more than 2097152 bytes'])
  proxy.bodies.push('x'.repeat(2_300_000), 'small')
  await until('the small one is handled', () => seen.some(({ text }) => text === 'small'))
  t.same([...new Set(proxy.asked.slice(1))], [1])
  t.ok(seen.every(({ text }) => text.length < 100))
})

t.test('more bytes than may be held end the connection', async t => {
  const proxy = await proxyOf(t)
  for (let n = 0; n < 8; n++) proxy.bodies.push(`${n}${'x'.repeat(2_000_000)}`)
  const open = gate()
  const { said, seen } = reading(t, proxy, () => open.passed)
  await until('it is said', () => said.length > 0)
  t.match(said[0], /protocol: more than 8388608 bytes of messages at a time/)
  t.ok(seen.length <= 5, `${seen.length} of them in hand`)
  open.open()
})

t.test('a compressed receipt is read, and what unpacks to more than any receipt is refused', async t => {
  const proxy = await proxyOf(t)
  proxy.encoding = Encoding.GZIP
  proxy.bodies.push(gzipSync('{"a":1}'), gzipSync(Buffer.alloc(100_000_000)), 'no gzip')
  const { seen } = reading(t, proxy, done)
  await until('all are handled', () => proxy.acknowledged.length === 3)
  t.equal(seen[0]?.text, '{"a":1}')
  t.ok((seen[1]?.text.length ?? 0) < 1_000_000)
  t.equal(seen[2]?.text, 'no gzip')
})

t.test('a topic that is not there is said once, and read when it is', async t => {
  const proxy = await proxyOf(t)
  proxy.topicCode = Code.TOPIC_NOT_FOUND
  const { said, seen } = reading(t, proxy, done)
  await until('it is said', () => said.length > 0)
  proxy.bodies.push('a')
  proxy.topicCode = Code.OK
  await until('it is handled', () => seen.length === 1)
  await until('that is said', () => said.length > 1)
  t.same(said, [
    'receipts.unavailable target_missing: there is no topic ackbox-receipts',
    'receipts.available'
  ])
})

t.test('a proxy that goes and comes again is found, and a receipt is read from it', async t => {
  const proxy = await proxyOf(t)
  const { said, seen } = reading(t, proxy, done)
  await until('it reads', () => proxy.asked.length > 0)
  proxy.stop()
  await until('it is said', () => said.length > 0)
  proxy.bodies.push('after')
  await proxy.start()
  await until('it is handled', () => seen.length === 1)
  t.match(said[0], /receipts.unavailable connection_(closed|refused)/)
})

t.test('a proxy that gives orders without end, or none, is left and asked again', async t => {
  const proxy = await proxyOf(t)
  const { greet } = proxy
  proxy.greet = line => {
    for (let n = 0; n < 300; n++)
      line.write(
        new service.TelemetryCommand().setPrintThreadStackTraceCommand(
          new service.PrintThreadStackTraceCommand()
        )
      )
  }
  const { said, seen } = reading(t, proxy, done)
  await until('it is said', () => said.length > 0)
  t.same(said, ['receipts.unavailable protocol: more than 100 commands'])
  proxy.greet = () => {}
  const { sessions } = proxy
  await until('it has come again, and heard nothing', () => proxy.sessions > sessions + 1)
  proxy.greet = greet
  proxy.bodies.push('a')
  await until('it is handled', () => seen.length === 1)
})

t.test('a stop waits for what is in hand, and for nothing else', async t => {
  const proxy = await proxyOf(t)
  const { seen, stop } = reading(t, proxy, async text => {
    if (text === 'hangs') return new Promise(() => {})
    await new Promise(resolve => setTimeout(resolve, 100))
    return 'done'
  })
  proxy.bodies.push('slow', 'hangs')
  await until('both are in hand', () => seen.length === 2)
  await stop()
  t.same(proxy.acknowledged, ['handle of slow'])
})
