// `format: 'cloudevents'`, read by the library of the CloudEvents project.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { HTTP, Kafka, type CloudEvent } from 'cloudevents'
import t from 'tap'
import { z } from 'zod'
import { checkHandler } from '../../src/handler/validate.ts'
import type { Task } from '../../src/domain/types.ts'
import { tokens } from '../../src/domain/tokens.ts'
import { deliveryHeaders } from '../../src/delivery/headers.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { httpTransport } from '../../src/transport/http/http.ts'
import { only } from '../support/only.ts'
import { setup } from '../support/setup.ts'

const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

t.test('an HTTP downstream gets a CloudEvent in binary mode, the same one on each attempt', async t => {
  const events: CloudEvent<unknown>[] = []
  const ids: unknown[] = []
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      ids.push(request.headers['webhook-id'])
      events.push(
        HTTP.toEvent({
          headers: request.headers,
          body: Buffer.concat(chunks).toString()
        }) as CloudEvent<unknown>
      )
      response.writeHead(events.length === 1 ? 503 : 200).end()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => new Promise<void>(resolve => server.close(() => resolve())))
  const transport = httpTransport({ guard: guard({ allow: undefined, embedded: true, deny: [] }) })
  t.teardown(() => transport.close())
  const story = await setup(t, {
    transport,
    downstream: {
      format: 'cloudevents',
      request: ({ raw }) => ({
        url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
        body: raw
      })
    }
  })
  const taskNo = await story.post({ traceparent, messageBody: '{"n":1}' })
  await story.quiet()
  await story.later('1 h')
  await story.dispatch()
  t.match(await story.delivery(taskNo), { status: 'HANDLED', attempt: 2 })
  t.equal(events.length, 2)
  for (const event of events) {
    t.ok(event.validate())
    t.match(event, {
      specversion: '1.0',
      type: 'order.paid',
      source: 'http://ackbox.test',
      subject: taskNo,
      datacontenttype: 'application/json',
      data: { n: 1 },
      traceparent
    })
    t.equal(event.id, ids[0])
  }
  const { createdAt } = await story.read(taskNo)
  t.equal(new Date(events[0]?.time ?? 0).getTime(), new Date(createdAt).getTime())
})

const task: Task = {
  id: '019a0000-0000-7000-8000-000000000001',
  taskNo: 'order 100%"é任务😀',
  messageCode: 'order.paid',
  sceneType: '',
  messageBody: '{"n":1}',
  deliverStartTime: null,
  needCallback: null,
  retryTimes: null,
  orderingKey: null,
  extend: null,
  traceparent,
  createdAt: new Date('2026-01-02T03:04:05.678Z'),
  createdBy: 'test'
}
const headersOf = (transport: 'http' | 'kafka', messageCode = 'order.paid'): Record<string, string> =>
  deliveryHeaders({
    handlers: [
      { messageCode: 'order.paid', downstreams: [{ name: 'warehouse', transport, format: 'cloudevents' }] },
      { messageCode: 'stock.moved', downstreams: [{ name: 'warehouse', transport }] }
    ],
    secret: 'a test secret',
    secretPrevious: undefined,
    tokens: tokens({ current: 'a test secret' }),
    publicUrl: 'http://ackbox.test',
    forgetMs: 86_400_000
  }).headers(
    {
      task: { ...task, messageCode },
      downstream: 'warehouse',
      attempt: 1,
      needsReceipt: false,
      triesLeft: 1,
      lost: 0,
      leaseLeftMs: 1_000,
      claimedMs: 0,
      deliverBeforeLeftMs: null,
      position: null,
      round: 1,
      roundFrom: 0,
      roundAt: task.createdAt,
      roundMs: 0
    },
    task.messageBody
  )

t.test('over HTTP every value is ASCII, percent-encoded as the binding says', async t => {
  const headers = headersOf('http')
  t.equal(decodeURIComponent(headers['ce-subject'] ?? ''), task.taskNo)
  t.match(headers['ce-subject'], /^order%20100%25%22%C3%A9/)
  for (const [name, value] of Object.entries(headers).filter(([name]) => name.startsWith('ce-')))
    t.match(value, /^[!-~]+$/, name)
})

t.test('a Kafka record is a CloudEvent in binary mode', async t => {
  const headers = headersOf('kafka')
  const event = Kafka.toEvent({
    headers: { 'content-type': 'application/json', ...headers },
    body: task.messageBody,
    key: undefined,
    value: task.messageBody,
    timestamp: undefined
  } as never) as CloudEvent<unknown>
  t.ok(event.validate())
  t.match(event, {
    type: 'order.paid',
    subject: task.taskNo,
    traceparent,
    id: headers['webhook-id'],
    data: { n: 1 }
  })
})

t.test('another handler of the same downstream, which does not ask for it, gets none', async t => {
  t.same(
    Object.keys(headersOf('http', 'stock.moved')).filter(name => name.startsWith('ce')),
    []
  )
})

t.test('a format that its transport does not have is refused at the start', async t => {
  const handler = (transport: string, format: unknown) =>
    checkHandler(
      { messageCode: 'a', body: z.unknown(), downstreams: { b: { transport, request: () => ({}), format } } },
      'a.ts',
      ['http', 'kafka', 'nats']
    )
  t.match(handler('http', 'cloudevents'), { downstreams: [{ format: 'cloudevents' }] })
  t.match(handler('kafka', 'cloudevents'), { downstreams: [{ format: 'cloudevents' }] })
  for (const [transport, format] of [
    ['nats', 'cloudevents'],
    ['http', 'json'],
    ['http', true]
  ] as const)
    t.match(handler(transport, format), only({ what: /downstreams\.b\.format is/, fix: /cloudevents/ }))
})
