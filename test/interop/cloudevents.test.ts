// A CloudEvent in a record of a real Kafka, read by the library of its own project.
import { Kafka as Binding, type CloudEvent } from 'cloudevents'
import t from 'tap'
import { guard } from '../../src/transport/egress/guard.ts'
import { kafkaTransport } from '../../src/transport/kafka/kafka.ts'
import { setup } from '../support/setup.ts'
import { broker, kafka, said, skip } from './kafka-server.ts'

t.setTimeout(2_400_000)

const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

t.test('a Kafka downstream gets a CloudEvent in binary mode', { skip }, async t => {
  const server = await kafka(t)
  await server.create('orders')
  const transport = kafkaTransport({
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
    brokers: new Map([['kafka', broker(`kafka://127.0.0.1:${server.open}`)]]),
    log: said().log
  })
  t.teardown(() => transport.close())
  const story = await setup(t, {
    transport,
    downstream: {
      transport: 'kafka',
      format: 'cloudevents',
      limit: { concurrency: 1, timeoutMs: 60_000 },
      request: ({ raw }) => ({ topic: 'orders', value: raw })
    }
  })
  const taskNo = await story.post({ traceparent, messageBody: '{"n":1}' })
  await story.quiet()
  t.match(await story.delivery(taskNo), { status: 'HANDLED' })
  const [record] = await server.stored('orders', 1)
  const event = Binding.toEvent({
    headers: record?.headers,
    body: record?.body.toString(),
    value: record?.body.toString(),
    key: undefined,
    timestamp: undefined
  } as never) as CloudEvent<unknown>
  t.ok(event.validate())
  t.match(event, {
    specversion: '1.0',
    type: 'order.paid',
    subject: taskNo,
    datacontenttype: 'application/json',
    id: record?.headers['webhook-id'],
    data: { n: 1 },
    traceparent
  })
})
