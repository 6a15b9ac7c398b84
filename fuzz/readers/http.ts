// Incoming HTTP: raw connections to the real API, on its own PostgreSQL.
import fc from 'fast-check'
import { campaign } from '../campaign.ts'
import { mutated, mutatedList, rubbish, text } from '../mutate.ts'
import { servicePlayer } from '../service-player.ts'
import type { HttpInput } from '../subjects/service.ts'
import { tokenHeader, tokens } from '../../src/domain/tokens.ts'

const secret = 'a secret of the fuzzer, long enough to be one'
const token = tokens({ current: secret }).issue({
  taskNo: 't-1',
  downstream: 'warehouse',
  attempt: 1,
  at: new Date('2026-11-23T10:00:00Z')
})

const json = 'Content-Type: application/json'
const request = (line: string, headers: string[], body = ''): string =>
  [`${line} HTTP/1.1`, 'Host: 127.0.0.1', ...headers, '', body].join('\r\n')
const post = (path: string, body: string, ...headers: string[]): string =>
  request(
    `POST ${path}`,
    [json, `Content-Length: ${Buffer.byteLength(body)}`, ...headers],
    text(Buffer.from(body))
  )
const task = (taskNo: string): string =>
  `{"taskNo":"${taskNo}","messageCode":"order.paid","messageBody":{"orderId":"A-1","cents":4200},"extend":{"note":"caf\u00e9"},"delay":"1h"}`
const chunked = (body: string): string =>
  `${body.length.toString(16)};x=y\r\n${body}\r\n0\r\nX-Sum: 1\r\n\r\n`

const valid = [
  post('/tasks', task('t-1')),
  post(
    '/tasks',
    '{"messageCode":"order.paid","messageBody":{"orderId":"B","cents":1},"deliverStartTime":"2030-01-01T00:00:00Z"}',
    'traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
  ),
  post('/tasks/batch', `{"tasks":[${task('t-2')},${task('t-3')}]}`),
  post(
    '/callback',
    '{"taskNo":"t-1","messageCode":"order.paid","result":"PROCESSING","reason":"later","data":[1.0]}',
    `${tokenHeader}: ${token}`
  ),
  post('/tasks/t-1/redeliver', '{"force":true,"downstream":"warehouse"}'),
  request(
    'POST /tasks',
    [json, 'Transfer-Encoding: chunked', 'Trailer: X-Sum'],
    chunked('{"messageCode":"order.paid","messageBody":{"orderId":"C","cents":1}}')
  ),
  request('GET /tasks/t-1', ['Accept: application/json', 'If-None-Match: "x"']),
  request(
    'GET /tasks?status=SENDING&limit=5&messageCode=order.paid&from=2026-01-01T00:00:00Z&cursor=abc',
    []
  ),
  request('GET /deliveries?phase=WAITING&limit=1', []),
  request('GET /alarms', []),
  request('GET /downstreams', ['Range: bytes=0-1']),
  post('/downstreams/warehouse/pause', '{}'),
  request('POST /downstreams/warehouse/resume', ['Content-Length: 0']),
  request('DELETE /tasks/t-2', []),
  request('GET /metrics', ['Accept-Encoding: gzip']),
  request('GET /openapi.json', []),
  request('GET /docs/', []),
  request('GET /docs/static/index.html', []),
  request('GET /handlers', ['Authorization: Bearer ab_x.y']),
  request('OPTIONS *', []),
  post('/tasks', task('t-4'), 'Expect: 100-continue')
]
const close = (one: string): string =>
  one.replace('Host: 127.0.0.1\r\n', 'Host: 127.0.0.1\r\nConnection: close\r\n')

const header = fc.oneof(
  fc.constantFrom(
    'Content-Length: 5',
    'Content-Length: -1',
    'Content-Length: 99999999999999999999',
    'Transfer-Encoding: chunked',
    'Transfer-Encoding: gzip, chunked',
    'Host: evil.example',
    'Expect: 200-ok',
    'Connection: upgrade',
    'Upgrade: h2c',
    'Content-Type: text/plain',
    'Content-Encoding: gzip',
    'Origin: null',
    'Sec-Fetch-Site: cross-site',
    'X-Forwarded-For: ::1, x',
    'Cookie: a=b',
    ': x',
    'a b: c',
    ' folded',
    `Range: bytes=${'0-,'.repeat(500)}`,
    `X: ${'x'.repeat(20_000)}`
  ),
  rubbish(60)
)
const withHeader = fc
  .tuple(fc.constantFrom(...valid), header)
  .map(([one, more]) => one.replace('\r\n', `\r\n${more}\r\n`))
const method = fc.constantFrom(
  'GET',
  'POST',
  'PUT',
  'DELETE',
  'HEAD',
  'OPTIONS',
  'PATCH',
  'TRACE',
  'CONNECT',
  'PRI',
  'FOO',
  'get',
  ''
)
const segment = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 20 }).map(one => encodeURIComponent(Buffer.from(one).toString())),
  fc.constantFrom('..', '%00', '%ff', '%', '%2f', '%5c', '\\', '%ed%a0%80', '__proto__', 'x'.repeat(300)),
  rubbish(10)
)
const path = fc
  .tuple(
    fc.constantFrom(
      '/tasks',
      '/deliveries',
      '/alarms',
      '/downstreams',
      '/handlers',
      '/docs',
      '/docs/static',
      '/callback',
      '/healthz',
      ''
    ),
    fc.array(segment, { maxLength: 3 }),
    fc.array(
      fc.tuple(
        fc.constantFrom(
          'limit',
          'from',
          'to',
          'cursor',
          'status',
          'phase',
          'wait',
          'timeout',
          'messageCode',
          'q'
        ),
        segment
      ),
      { maxLength: 3 }
    )
  )
  .map(
    ([start, parts, query]) =>
      `${[start, ...parts].join('/')}${query.length > 0 ? '?' : ''}${query.map(pair => pair.join('=')).join('&')}`
  )
const line = fc
  .tuple(method, path, fc.constantFrom('HTTP/1.1', 'HTTP/1.1', 'HTTP/1.0', 'HTTP/2.0', 'HTTP/9', ''))
  .map(
    ([verb, target, version]) =>
      `${verb} ${target} ${version}\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n`
  )
const body = fc
  .tuple(
    fc.constantFrom(
      '/tasks',
      '/tasks/batch',
      '/callback',
      '/tasks/t-1/redeliver',
      '/downstreams/warehouse/pause'
    ),
    fc.oneof(
      mutated(task('t-1')),
      fc.json(),
      rubbish(),
      fc.nat(80).map(depth => '['.repeat(depth)),
      fc.nat(300_000).map(length => `{"messageCode":"order.paid","messageBody":"${'x'.repeat(length)}"}`)
    )
  )
  .map(([to, one]) => close(post(to, one, `${tokenHeader}: ${token}`)))

const one = fc.oneof(
  { weight: 8, arbitrary: mutated(...valid, ...valid.map(close)) },
  { weight: 3, arbitrary: withHeader },
  { weight: 3, arbitrary: line },
  { weight: 4, arbitrary: body },
  { weight: 1, arbitrary: rubbish(2_000) }
)
/** Pipelined, or cut into packets at any byte. */
const parts = fc.oneof(
  { weight: 4, arbitrary: one.map(each => [each]) },
  { weight: 1, arbitrary: one.map(each => [each, '']) },
  { weight: 2, arbitrary: fc.array(one, { minLength: 2, maxLength: 5 }) },
  { weight: 1, arbitrary: mutatedList(valid.slice(0, 4)) },
  {
    weight: 2,
    arbitrary: fc.tuple(one, fc.nat(400)).map(([each, at]) => [each.slice(0, at), each.slice(at)])
  }
)

const open = () =>
  servicePlayer<HttpInput>({
    module: new URL('../subjects/service.js', import.meta.url),
    secret,
    valid: valid.map(each => ({ parts: [close(each)] }))
  })

export const reader = campaign<HttpInput>({
  name: 'http',
  open,
  inputs: parts.map(each => ({ parts: each })),
  width: 32,
  shrinks: 15
})
