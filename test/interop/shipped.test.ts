// One task, three downstreams: HTTP with a receipt, a Java service by Dubbo, a Kafka topic with a receipt from its consumer. The
// handler and the Java service are those of examples/.
import path from 'node:path'
import t from 'tap'
import { only } from '../support/only.ts'
import { without } from '../support/program.ts'
import { folder, postUntilTaken, recorded, start } from '../support/service.ts'
import { sink } from '../support/sink.ts'
import { consumers } from './consumers.ts'
import { javaExample } from './java.ts'
import { freePorts } from './server.ts'

const skip = without('java', 'mvn')
t.test('one task reaches an HTTP service, a Dubbo provider and a queue', { skip }, async t => {
  const shop = await sink(t)
  const [port = 0] = await freePorts(1)
  const points = await javaExample(t, 'ackbox.example.dubbo.Provider', { TRI_PORT: `${port}` })
  const events: string[] = []
  const kafka = await consumers['kafka']!.start(
    t,
    (headers, body) => {
      events.push(body)
      void fetch(headers['ackbox-callback-url'] ?? '', {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'ackbox-callback-token': headers['ackbox-callback-token'] ?? ''
        },
        body: JSON.stringify({
          taskNo: headers['ackbox-task-no'],
          messageCode: headers['ackbox-message-code']
        })
      })
    },
    'order-shipped'
  )
  const { url } = await start(t, {
    DATA_DIR: folder(t),
    HANDLERS_DIR: path.resolve(import.meta.dirname, '../../examples/handlers'),
    SHOP_URL: shop.url,
    BROKER_DUBBO: `tri://127.0.0.1:${port}`,
    BROKER_KAFKA: kafka.url
  })
  const messageBody = { orderId: 'A-1', userId: 'u-7', cents: 12_300 }
  await postUntilTaken(() => url, { taskNo: 'shipped-1', messageCode: 'order.shipped', messageBody })
  const { body } = await recorded(url, 'shipped-1')
  t.match(body, { status: 'HANDLED' })
  interface Delivery {
    downstream: string
    attempts: { reason?: string }[]
  }
  const deliveries = (body?.['deliveries'] ?? []) as Delivery[]
  const handledBy = { shop: 'receipt', 'shop-events': 'receipt', 'shop-points': 'send' }
  for (const [downstream, how] of Object.entries(handledBy)) {
    const delivery = deliveries.find(each => each.downstream === downstream)
    t.match(delivery, { status: 'HANDLED', handledBy: how }, downstream)
    // A busy machine may need more than the 10 s of an attempt.
    const inTime = delivery?.attempts.filter(({ reason }) => reason !== 'timeout')
    t.match(inTime, only({ outcome: 'delivered' }), downstream)
  }
  t.same(new Set(events), new Set([JSON.stringify(messageBody)]))
  t.equal(shop.requests[0]?.path, '/orders/A-1/shipped')
  t.match(points.said(), 'points of u-7 for A-1: 123')
})
