import t, { type Test } from 'tap'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { dubboTransport, type DubboRequest } from '../../src/transport/dubbo/triple.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { sendContext } from './send-context.ts'
import { freePorts } from '../interop/server.ts'
import { rawServer } from './raw-server.ts'
import { only } from '../support/only.ts'

async function provider(t: Test, answer: string, allow?: string[], before: string[] = []) {
  const said: [string, object][] = []
  const server = await rawServer(t, socket => socket.write(answer))
  const broker = parseBroker('dubbo', `tri://${[...before, new URL(server.url).host].join(',')}`)
  if (typeof broker === 'string') throw new Error(broker)
  const transport = dubboTransport({
    guard: guard({ allow, embedded: allow === undefined, deny: [] }),
    brokers: new Map<string, Broker>([['dubbo', broker]]),
    log: {
      info: (fields, message) => said.push([message, fields]),
      warn: (fields, message) => said.push([message, fields])
    }
  })
  t.teardown(() => transport.close())
  return {
    server,
    said,
    send: (request: DubboRequest, more = {}) => transport.send(request, sendContext(more)),
    transport
  }
}
const says = (status: number, body = '') =>
  `HTTP/1.1 ${status} X\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
const call: DubboRequest = { service: 'com.acme.Points', method: 'onPaid', args: [] }

t.test(
  'the call on the wire: always an array, big numbers as they are, our headers as attachments',
  async t => {
    const { server, send } = await provider(t, says(200, 'null'))
    t.match(
      await send(
        {
          ...call,
          args: [{ cents: 9_007_199_254_740_993n, text: '"1"' }, 'x', -1n],
          attachments: { 'X-Trace': 't' }
        },
        { ours: { 'webhook-id': 'msg_1' }, timeoutMs: 60_000.5 }
      ),
      { kind: 'delivered' }
    )
    const [seen] = server.received
    t.match(seen, {
      method: 'POST',
      path: '/com.acme.Points/onPaid',
      headers: {
        'x-trace': 't',
        'webhook-id': 'msg_1',
        'tri-service-timeout': /^\d+$/,
        'content-type': 'application/json'
      }
    })
    // What is left of it once the connection is open.
    const timeoutMs = Number(seen?.headers['tri-service-timeout'])
    t.ok(timeoutMs > 0 && timeoutMs <= 60_000, `${timeoutMs} ms`)
    t.equal(seen?.body.toString(), '[{"cents":9007199254740993,"text":"\\"1\\""},"x",-1]')
  }
)

t.test('a text is sent byte for byte', async t => {
  const { server, send } = await provider(t, says(200, '{}'))
  await send({ ...call, args: '[ {"n": 1.0, "big": 12345678901234567890} ]' })
  t.equal(server.received[0]?.body.toString(), '[ {"n": 1.0, "big": 12345678901234567890} ]')
})

t.test('what a provider means by its statuses', async t => {
  const cases: [string, object][] = [
    [
      says(404, '{"message":"Invoker not found","status":"404"}'),
      { kind: 'failed', reason: /^target_missing/ }
    ],
    [says(408, '{"message":"Request Timeout","status":"408"}'), { kind: 'failed', reason: /^timeout: / }],
    [says(413), { kind: 'refused', reason: /^too_large/ }],
    [says(500, '{"message":"boom","status":"500"}'), { kind: 'failed', reason: 'exception: boom' }],
    [
      says(500, `{"message":"no v1.AAAAAAAA.abc.points.1.${'s3cret'.repeat(8)}"}`),
      { kind: 'failed', reason: 'exception: no v1.AAAAAAAA.abc.points.1.[masked]' }
    ],
    [says(415, 'Unsupported Media Type'), { kind: 'failed', reason: /^protocol/ }],
    [says(500, 'x'), { kind: 'failed', reason: 'exception: without a message' }],
    [says(503), { kind: 'failed', reason: 'http_503' }]
  ]
  for (const [answer, outcome] of cases) {
    const { send } = await provider(t, answer)
    t.match(await send(call), outcome)
  }
  const { send } = await provider(t, says(400, '{"message":"Could not convert \'hunter2\'","status":"400"}'))
  const outcome = await send(call)
  t.match(outcome, { kind: 'refused', reason: /^bad_arguments/ })
  t.notMatch(JSON.stringify(outcome) + Buffer.from(outcome.answer ?? []).toString(), 'hunter2')
})

t.test('accepted judges the result', async t => {
  const { transport } = await provider(t, says(200, '{"code":7}'))
  t.match(await transport.send(call, sendContext(), ({ json }) => (json as { code: number }).code === 0), {
    kind: 'failed',
    reason: 'not_accepted'
  })
  t.match(await transport.send(call, sendContext(), ({ json }) => (json as { code: number }).code === 7), {
    kind: 'delivered'
  })
})

t.test('what a handler must not ask for, and where it must not go', async t => {
  const { send } = await provider(t, says(200))
  const bad = [
    { ...call, service: 'a/../b' },
    { ...call, method: 'x y' },
    { ...call, args: { a: 1 } },
    { ...call, args: '{"a":1}' },
    { ...call, args: '[' },
    { ...call, args: ['a', undefined] },
    // eslint-disable-next-line no-sparse-arrays -- what a handler in JavaScript may give
    { ...call, args: ['a', , 'b'] },
    { ...call, args: [{ cents: NaN }] },
    { ...call, args: ['a'], parameters: 2 },
    { ...call, args: '["a", 1]', parameters: 1 },
    { ...call, args: ['a'], parameters: '1' },
    undefined,
    { ...call, attachments: { 'tri-service-version': '2' } },
    { ...call, attachments: { 'webhook-id': 'x' } },
    { ...call, broker: 'other' }
  ]
  for (const request of bad)
    t.match(await send(request as DubboRequest), { kind: 'failed', reason: /^bad_request/ })
  t.match(await send({ ...call, args: [null, 1], parameters: 2 }), { kind: 'delivered' })
  t.match(await send({ ...call, args: '["a", 1]', parameters: 2 }), { kind: 'delivered' })
  const circular: unknown[] = []
  circular.push(circular)
  t.match(await send({ ...call, args: circular }), { kind: 'failed', reason: /^bad_request/ })
  const denied = await provider(t, says(200), [])
  t.match(await denied.send(call), { kind: 'failed', alarm: 'BLOCKED_TARGET', reason: /^blocked_target/ })
  t.equal(denied.server.open.size, 0)
  t.equal(denied.server.received.length, 0)
})

t.test('accepted is asked about what a method returned, and about nothing else', async t => {
  for (const [status, outcome] of [
    [404, { kind: 'failed', reason: /^target_missing/ }],
    [413, { kind: 'refused', reason: /^too_large/ }],
    [500, { kind: 'failed', reason: /^exception/ }]
  ] as const) {
    const { transport } = await provider(t, says(status))
    const got = await transport.send(call, sendContext(), () => {
      throw new Error('asked')
    })
    t.match(got, outcome)
  }
})

t.test('a host that is down is passed over, and said once', async t => {
  const [dead = 0] = await freePorts(1)
  const { send, server, said } = await provider(t, says(200, 'null'), undefined, [`127.0.0.1:${dead}`])
  let signed = 0
  const headers = () => {
    signed++
    return { 'webhook-id': 'msg_1' }
  }
  for (let n = 0; n < 4; n++) t.match(await send(call, { headers }), { kind: 'delivered' })
  t.equal(signed, 4, 'signed once for each send')
  t.equal(server.received.length, 4)
  t.match(
    said,
    only(['broker.unavailable', { broker: 'dubbo', host: `127.0.0.1:${dead}`, reason: 'connection_refused' }])
  )
  const { port } = server
  await server.close()
  t.match(await send(call), { kind: 'failed', reason: 'connection_refused' })
  await rawServer(t, socket => socket.write(says(200, 'null')), port)
  t.match(await send(call), { kind: 'delivered' })
  t.match(await send(call), { kind: 'delivered' })
  t.strictSame(
    said.map(([message]) => message),
    ['broker.unavailable', 'broker.unavailable', 'broker.available']
  )
})

t.test('a host that does not answer a connect is passed over, as long as there is time', async t => {
  const server = await rawServer(t, socket => socket.write(says(200, 'null')))
  const broker = parseBroker('dubbo', `tri://silent.example:${server.port},127.0.0.1:${server.port}`)
  if (typeof broker === 'string') throw new Error(broker)
  // A name without an answer of the resolver: the connect waits, as one whose packets are dropped.
  const resolve = () => new Promise<never>(() => {})
  const transport = dubboTransport({
    guard: guard({ allow: undefined, embedded: true, deny: [], resolve }),
    brokers: new Map<string, Broker>([['dubbo', broker]]),
    log: { info: () => {}, warn: () => {} }
  })
  t.teardown(() => transport.close())
  t.match(await transport.send(call, sendContext({ timeoutMs: 8_000 })), { kind: 'delivered' })
  t.match(await transport.send(call, sendContext()), { kind: 'delivered' }, 'the other host is the first')
  t.match(await transport.send(call, sendContext({ timeoutMs: 300 })), {
    kind: 'failed',
    reason: 'connect_timeout'
  })
  t.equal(server.received.length, 2)
})

t.test('a broker is set by the operator: a name of one label needs no further setting', async t => {
  const server = await rawServer(t, socket => socket.write(says(200, 'null')))
  const broker = parseBroker('dubbo', `tri://points:${server.port}`)
  if (typeof broker === 'string') throw new Error(broker)
  const resolve = async () => [{ address: '127.0.0.1', family: 4 }]
  const transport = dubboTransport({
    guard: guard({ allow: undefined, embedded: true, deny: [], resolve }),
    brokers: new Map<string, Broker>([['dubbo', broker]]),
    log: console
  })
  t.teardown(() => transport.close())
  t.match(await transport.send(call, sendContext()), { kind: 'delivered' })
})
