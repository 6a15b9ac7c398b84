// The cost of receipts that a RocketMQ proxy floods while PostgreSQL is read-only, measured on a separate process.
// Takes long: npm run test:long.
import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js'
import t from 'tap'
import { gzipSync } from 'node:zlib'
import { flooded } from './flooded-process.ts'
import { proxyOf, type ScriptedProxy } from './rocketmq-proxy.ts'

t.setTimeout(2_400_000)

/** The duration of a flood. A busy machine floods less, so the test is then less strict. */
const readMs = 3_000
const small = Array<string>(100).fill('{"taskNo":"t-1","messageCode":"order.paid"}')

const floods: Record<string, (proxy: ScriptedProxy) => void> = {
  'receipts without end': proxy => proxy.bodies.push(...small),
  'receipts of 2 MB': proxy => proxy.bodies.push(...Array<string>(100).fill('x'.repeat(2_000_000))),
  'receipts that unpack to a thousand times as much'(proxy) {
    proxy.encoding = definition.Encoding.GZIP
    proxy.bodies.push(...Array<Buffer>(100).fill(gzipSync(Buffer.alloc(2_000_000))))
  },
  'receipts of 40,000 properties each'(proxy) {
    // Few at a time: the proxy needs a while for each
    proxy.bodies.push(...small.slice(0, 4))
    proxy.dress = message => {
      const properties = message.getUserPropertiesMap()
      for (let n = 0; n < 40_000; n++) properties.set(n.toString(36), '')
    }
  },
  'receipts with an id and a handle of a megabyte each'(proxy) {
    proxy.bodies.push(...small)
    const long = 'x'.repeat(1_000_000)
    proxy.dress = message => void message.getSystemProperties()?.setMessageId(long).setReceiptHandle(long)
  },
  'receipts of which nobody knows two megabytes'(proxy) {
    proxy.bodies.push(...small)
    proxy.dress = message => void message.getSystemProperties()?.setTraceContext('x'.repeat(2_000_000))
  }
}

for (const [name, prepare] of Object.entries(floods)) {
  t.test(`${name} cost less than 128 MB and 200 ms, and end no process`, async t => {
    const proxy = await proxyOf(t)
    proxy.isEndless = true
    prepare(proxy)
    const child = await flooded(t, 'reply-rocketmq', proxy.port)
    await child.bears(readMs)
    t.ok(proxy.asked.length > 0, 'and it asked for them')
  })
}
