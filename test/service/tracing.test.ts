// Traces, as a collector of OpenTelemetry gets them.
// Takes long: npm run test:long.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { only } from '../support/only.ts'
import { call, settled, start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

interface Span {
  name: string
  traceId: string
  spanId: string
  parentSpanId?: string
  kind: number
  startTimeUnixNano: string
  endTimeUnixNano: string
  attributes: Record<string, unknown>
  links: { traceId: string; spanId: string }[]
  status: { code?: number; message?: string }
  service: unknown
}

interface Attribute {
  key: string
  value: Record<string, unknown>
}
interface Export {
  resourceSpans: {
    resource: { attributes: Attribute[] }
    scopeSpans: { spans: (Omit<Span, 'attributes' | 'service'> & { attributes: Attribute[] })[] }[]
  }[]
}

/** The value of an AnyValue (opentelemetry/proto/common/v1/common.proto), in the JSON of OTLP. */
const valueOf = ({ value }: Attribute): unknown => {
  const [[kind, plain] = []] = Object.entries(value)
  return kind === 'intValue' ? Number(plain) : plain
}
const named = (attributes: Attribute[]): Record<string, unknown> =>
  Object.fromEntries(attributes.map(each => [each.key, valueOf(each)]))

/** A receiver of OTLP over HTTP: https://opentelemetry.io/docs/specs/otlp/#otlphttp */
async function collector(t: Test): Promise<{ url: string; spans: Span[]; key: Set<unknown> }> {
  const seen = { url: '', spans: [] as Span[], key: new Set<unknown>() }
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      if (
        request.method !== 'POST' ||
        request.url !== '/v1/traces' ||
        request.headers['content-type'] !== 'application/json'
      ) {
        response.writeHead(404).end()
        return
      }
      seen.key.add(request.headers['x-key'])
      const { resourceSpans } = JSON.parse(Buffer.concat(chunks).toString()) as Export
      for (const { resource, scopeSpans } of resourceSpans)
        for (const span of scopeSpans.flatMap(scope => scope.spans))
          seen.spans.push({
            ...span,
            attributes: named(span.attributes),
            service: named(resource.attributes)['service.name']
          })
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}')
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(async () => {
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  })
  seen.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return seen
}

const producer = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331' }
const traceparent = `00-${producer.traceId}-${producer.spanId}-01`

t.test('a task is seen from its POST to its receipt, and its downstream continues the trace', async t => {
  let well = false
  const on = await stage(t, { answer: () => (well ? 200 : 503) })
  if (!on) return
  const otel = await collector(t)
  const env = {
    ...on.env,
    OTEL_EXPORTER_OTLP_ENDPOINT: otel.url,
    OTEL_EXPORTER_OTLP_HEADERS: 'x-key=right',
    OTEL_BSP_SCHEDULE_DELAY: '100',
    OTEL_RESOURCE_ATTRIBUTES: 'service.name=shop-outbox'
  }
  const service = await start(t, env)
  const answer = await fetch(`${service.url}/tasks`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', traceparent },
    body: JSON.stringify({ taskNo: 'seen', messageCode: 'test.receipt', messageBody: { n: 1 } })
  })
  t.equal(answer.status, 201)
  await on.downstream.received(1)
  well = true
  t.match(await settled(service.url, 'seen'), { body: { status: 'HANDLED' } })
  await until('the receipt was traced', async () =>
    otel.spans.some(({ name }) => name.startsWith('receipt '))
  )
  await until(
    'both attempts were',
    async () => otel.spans.filter(({ name }) => name.startsWith('deliver ')).length >= 2
  )

  const accept = otel.spans.find(({ name }) => name === 'accept test.receipt')
  t.match(accept, {
    traceId: producer.traceId,
    parentSpanId: producer.spanId,
    kind: 2,
    service: 'shop-outbox'
  })
  t.match(accept?.attributes, { 'ackbox.task_no': 'seen', 'ackbox.result': 'created' })

  const attempts = otel.spans
    .filter(({ name }) => name.startsWith('deliver '))
    .toSorted((a, b) => Number(a.attributes['ackbox.attempt']) - Number(b.attributes['ackbox.attempt']))
  const [first, last] = [attempts[0], attempts.at(-1)]
  t.match(first, {
    status: { code: 2, message: 'http_503' },
    attributes: { 'ackbox.outcome': 'failed', 'ackbox.move': 'retry', 'http.response.status_code': 503 }
  })
  t.match(last, { attributes: { 'ackbox.outcome': 'delivered', 'ackbox.message_code': 'test.receipt' } })
  t.not(first?.traceId, last?.traceId, 'each attempt is a trace of its own')
  for (const [index, span] of attempts.entries()) {
    t.match(span.links, only(producer), 'which names its producer')
    t.notOk(span.parentSpanId)
    t.ok(BigInt(span.endTimeUnixNano) >= BigInt(span.startTimeUnixNano))
    const headers = on.downstream.requests[index]?.headers
    t.equal(headers?.['traceparent'], `00-${span.traceId}-${span.spanId}-01`)
    t.equal(headers?.['ce-traceparent'], traceparent)
  }
  const receipt = otel.spans.find(({ name }) => name.startsWith('receipt '))
  t.match(receipt, { traceId: last?.traceId, parentSpanId: last?.spanId })
  t.match(receipt?.attributes, { 'ackbox.status': 'HANDLED', 'ackbox.applied': true })
  t.same([...otel.key], ['right'], 'the variables of the SDK work')
})

t.test('what is sampled is the whole of an attempt or nothing of it', async t => {
  const on = await stage(t, { patient: true })
  if (!on) return
  const otel = await collector(t)
  const env = {
    OTEL_EXPORTER_OTLP_ENDPOINT: otel.url,
    OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
    OTEL_TRACES_SAMPLER_ARG: '0.5'
  }
  const service = await start(t, { ...on.env, ...env })
  const tasks = Array.from({ length: 40 }, (_, n) => ({
    taskNo: `half-${n}`,
    messageCode: 'test.receipt',
    messageBody: { n }
  }))
  t.equal((await call(`${service.url}/tasks/batch`, { tasks })).status, 200)
  for (const { taskNo } of tasks) await settled(service.url, taskNo)
  t.match(await service.kill('SIGTERM'), { code: 0 }, 'a stop sends what is left')
  const taskNos = (of: string): string[] =>
    otel.spans
      .filter(({ name }) => name.startsWith(of))
      .map(({ attributes }) => String(attributes['ackbox.task_no']))
      .toSorted((a, b) => a.localeCompare(b))
  const [delivered, received] = [taskNos('deliver '), taskNos('receipt ')]
  t.ok(delivered.length > 0 && delivered.length < 40, `${delivered.length}`)
  t.same(received, delivered)
  const flags = on.downstream.requests.filter(({ headers }) => String(headers['traceparent']).endsWith('-01'))
  t.same(
    flags.map(({ headers }) => String(headers['ackbox-task-no'])).toSorted((a, b) => a.localeCompare(b)),
    delivered,
    'and the downstream is told'
  )
})

t.test(
  'a collector that is away disturbs nothing; without the setting the producer is passed on',
  async t => {
    const on = await stage(t)
    if (!on) return
    const away = await start(t, {
      ...on.env,
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1',
      OTEL_BSP_SCHEDULE_DELAY: '50'
    })
    t.equal(
      (await call(`${away.url}/tasks`, { taskNo: 'a', messageCode: 'test.plain', messageBody: { n: 1 } }))
        .status,
      201
    )
    t.match(await settled(away.url, 'a'), { body: { status: 'HANDLED' } })
    await until('it says so', async () => /otel\.export_failed/.test(away.output()))
    t.match(await away.kill('SIGTERM'), { code: 0 })
    const plain = await start(t, on.env)
    await fetch(`${plain.url}/tasks`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', traceparent },
      body: JSON.stringify({ taskNo: 'b', messageCode: 'test.plain', messageBody: { n: 1 } })
    })
    t.match(await settled(plain.url, 'b'), { body: { status: 'HANDLED' } })
    const request = on.downstream.requests.find(({ headers }) => headers['ackbox-task-no'] === 'b')
    t.equal(request?.headers['traceparent'], traceparent)
    t.notOk(request?.headers['ce-traceparent'])
  }
)

t.test('without the setting nothing of the SDK of OpenTelemetry is loaded', async t => {
  const on = await stage(t)
  if (!on) return
  // Node itself then logs every file that it loads.
  const loading = { ...on.env, NODE_DEBUG: 'esm,module' }
  const loaded = async (env: Record<string, string>): Promise<boolean> => {
    const service = await start(t, env)
    await call(`${service.url}/tasks`, { taskNo: 'a', messageCode: 'test.plain', messageBody: { n: 1 } })
    t.match(await settled(service.url, 'a'), { body: { status: 'HANDLED' } })
    t.match(await service.kill('SIGTERM'), { code: 0 })
    t.match(service.output(), /node_modules\/fastify\//)
    // prom-client loads the package of the API, which does nothing. The SDK and its exporter are the cost.
    return /@opentelemetry\/(?!api\b)/.test(service.output())
  }
  t.equal(await loaded(loading), false)
  t.equal(await loaded({ ...loading, OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' }), true)
})
