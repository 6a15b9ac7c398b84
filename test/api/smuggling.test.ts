import t from 'tap'
import { listening, order } from './fake.ts'
import { request, talk } from './socket.ts'
import { only } from '../support/only.ts'

const host = 'Host: ackbox.test'
const type = 'Content-Type: application/json'
const post = (taskNo: string) => JSON.stringify({ ...order, taskNo })
const chunked = (body: string) => `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`
/** The bytes that a smuggler wants the server to read as a second request. */
const smuggled = request('DELETE /tasks/victim HTTP/1.1', [host, 'Content-Length: 0'])

const shapes: [name: string, bytes: string][] = [
  [
    'a length and chunks',
    request(
      'POST /tasks HTTP/1.1',
      [host, type, 'Content-Length: 5', 'Transfer-Encoding: chunked'],
      chunked('{}')
    )
  ],
  [
    'chunks and a length',
    request(
      'POST /tasks HTTP/1.1',
      [host, type, 'Transfer-Encoding: chunked', 'Content-Length: 5'],
      chunked('{}')
    )
  ],
  [
    'two lengths',
    request('POST /tasks HTTP/1.1', [host, type, 'Content-Length: 2', 'Content-Length: 50'], '{}')
  ],
  [
    'the same length twice',
    request('POST /tasks HTTP/1.1', [host, type, 'Content-Length: 2', 'Content-Length: 2'], '{}')
  ],
  ['two lengths in one line', request('POST /tasks HTTP/1.1', [host, type, 'Content-Length: 2, 2'], '{}')],
  ['a length with a sign', request('POST /tasks HTTP/1.1', [host, type, 'Content-Length: +2'], '{}')],
  ['a length in hexadecimal', request('POST /tasks HTTP/1.1', [host, type, 'Content-Length: 0x2'], '{}')],
  [
    'a length beyond 64 bits',
    request('POST /tasks HTTP/1.1', [host, type, `Content-Length: ${'9'.repeat(30)}`], '{}')
  ],
  ['an empty length', request('POST /tasks HTTP/1.1', [host, type, 'Content-Length: '], '{}')],
  [
    'chunks said twice',
    request(
      'POST /tasks HTTP/1.1',
      [host, type, 'Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'],
      chunked('{}')
    )
  ],
  [
    'chunks that are not the last coding',
    request('POST /tasks HTTP/1.1', [host, type, 'Transfer-Encoding: chunked, identity'], chunked('{}'))
  ],
  [
    'a coding that nobody knows',
    request('POST /tasks HTTP/1.1', [host, type, 'Transfer-Encoding: xchunked'], chunked('{}'))
  ],
  [
    'a coding before a vertical tab',
    request('POST /tasks HTTP/1.1', [host, type, 'Transfer-Encoding: \u000bchunked'], chunked('{}'))
  ],
  [
    'a space before the colon',
    request('POST /tasks HTTP/1.1', [host, type, 'Transfer-Encoding : chunked'], chunked('{}'))
  ],
  [
    'a header that is folded',
    request('POST /tasks HTTP/1.1', [host, type, 'Transfer-Encoding:', ' chunked'], chunked('{}'))
  ],
  ['another header that is folded', request('GET /healthz HTTP/1.1', [host, 'x-a: b', '\tc'])],
  ['lines that end in LF alone', 'GET /healthz HTTP/1.1\nHost: ackbox.test\n\n'],
  ['one line that ends in LF alone', `GET /healthz HTTP/1.1\r\nHost: ackbox.test\nx-b: c\r\n\r\n`],
  ['a CR alone within a header', `GET /healthz HTTP/1.1\r\n${host}\r\nx-a: b\rx-c: d\r\n\r\n`],
  ['a zero byte within a header', request('GET /healthz HTTP/1.1', [host, 'x-a: b\0c'])],
  ['a space before the first header', `GET /healthz HTTP/1.1\r\n ${host}\r\n\r\n`],
  ['a header without a name', request('GET /healthz HTTP/1.1', [host, ': x'])],
  [
    'a chunk whose size is too large for a number',
    request('POST /tasks HTTP/1.1', [host, type, 'Transfer-Encoding: chunked'], 'fffffffffffffffff\r\n{}')
  ],
  [
    'a chunk that ends in LF alone',
    request('POST /tasks HTTP/1.1', [host, type, 'Transfer-Encoding: chunked'], '2\n{}\n0\n\n')
  ],
  [
    'a chunk that is longer than it says',
    request('POST /tasks HTTP/1.1', [host, type, 'Transfer-Encoding: chunked'], '1\r\n{}\r\n0\r\n\r\n')
  ],
  [
    'a chunk size with a sign',
    request('POST /tasks HTTP/1.1', [host, type, 'Transfer-Encoding: chunked'], '+2\r\n{}\r\n0\r\n\r\n')
  ],
  ['a version that is none', request('GET /healthz HTTP/1.2345', [host])],
  ['a space within the target', request('GET /tasks /healthz HTTP/1.1', [host])],
  ['a target in the form of an authority', request('GET ackbox.test:80 HTTP/1.1', [host])]
]

t.test(
  'what two parsers could read as two different requests is refused, and the connection closed',
  async t => {
    const { port, origin, stored } = await listening(t)
    t.equal(
      (
        await fetch(`${origin}/tasks`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: post('victim')
        })
      ).status,
      201
    )
    for (const [name, bytes] of shapes) {
      const { all, closed } = await talk(port, bytes + smuggled, { answers: 3 })
      t.match(all, [{ status: 400, headers: { connection: 'close' } }], name)
      t.equal(all.length, 1, `${name}: nothing behind it is taken for a request`)
      t.ok(closed, name)
    }
    t.same([...stored.keys()], ['victim'])
    t.equal(stored.get('victim')?.task.status, 'SENDING')
  }
)

t.test('a guarded path in any disguise is guarded, or is not there', async t => {
  const { port } = await listening(t, { auth: true })
  const targets = [
    '/metrics',
    '/metrics?',
    '/%6detrics',
    '/%6D%65%74%72%69%63%73',
    'http://ackbox.test/metrics',
    'HTTP://elsewhere.test:81/metrics?x',
    'http://user:word@ackbox.test/metrics',
    '//metrics',
    '/metrics/',
    '/metrics;a=b',
    '/metrics%00',
    '/metrics%3f',
    '/./metrics',
    '/METRICS',
    '/docs/../metrics',
    '/docs/%2e%2e/metrics',
    '/docs/..%2fmetrics',
    '/docs/static/../../metrics',
    '/docs/static/..%2f..%2f..%2fpackage.json',
    '/docs/static/%2e%2e/%2e%2e/%2e%2e/package.json',
    '/docs/static/..%5c..%5cpackage.json',
    '/docs/static//etc/passwd',
    '/openapi.json/../metrics',
    '/healthz/../metrics',
    '*',
    'file:///etc/passwd',
    'http:///metrics',
    'http://ackbox.test'
  ]
  const elsewhere = ['X-Original-URL: /metrics', 'X-Rewrite-URL: /metrics', 'X-Forwarded-Path: /metrics']
  for (const target of targets) {
    const { all } = await talk(port, request(`GET ${target} HTTP/1.1`, [host, 'Connection: close']))
    // The redirect to the dashboard needs no key: the page itself holds no data and requests a key.
    const isHome = all[0]?.status === 302 && all[0].headers['location'] === '/ui/'
    t.ok(isHome || [400, 401, 404].includes(all[0]?.status ?? 0), `${target}: ${JSON.stringify(all[0])}`)
  }
  const { all } = await talk(port, request('GET /healthz HTTP/1.1', [host, ...elsewhere]))
  t.match(all, only({ status: 200, body: '{"status":"ok"}' }), 'no header leads to another path')
})
