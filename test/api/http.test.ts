// Takes long: npm run test:long.
import { once } from 'node:events'
import { connect } from 'node:net'
import { gzipSync } from 'node:zlib'
import t from 'tap'
import { only } from '../support/only.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { api, inject, listening, order } from './fake.ts'
import { parse, read, request, talk } from './socket.ts'

const json = JSON.stringify({ ...order, taskNo: 'http-1' })
const host = 'Host: ackbox.test'
const posting = (...more: string[]) =>
  request(
    'POST /tasks HTTP/1.1',
    [host, 'Content-Type: application/json', `Content-Length: ${json.length}`, ...more],
    json
  )

t.test('E59-E66: only uncompressed JSON in UTF-8 is read', async t => {
  const { app, stored } = await api(t)
  const types: [type: string | undefined, status: number][] = [
    [undefined, 415],
    ['text/plain', 415],
    ['application/xml', 415],
    ['application/json; charset=utf-16', 415],
    ['application/json;charset=latin1', 415],
    ['application/jsonx', 415],
    ['multipart/form-data', 415],
    ['nonsense', 415],
    ['application/json;charset=utf-8', 201],
    ['application/json; charset="UTF-8"', 200],
    ['APPLICATION/JSON', 200],
    ['application/json; profile=x', 200]
  ]
  for (const [type, status] of types) {
    const answer = await app.inject({
      method: 'POST',
      url: '/tasks',
      payload: json,
      headers: type === undefined ? {} : { 'content-type': type }
    })
    t.equal(answer.statusCode, status, String(type))
    if (status === 415) t.match(answer.json(), { code: 'UNSUPPORTED_MEDIA_TYPE' })
  }
  for (const encoding of ['gzip', 'br', 'deflate', 'x-unknown']) {
    const answer = await inject(app, '/tasks', gzipSync(Buffer.alloc(1_000_000)), {
      'content-encoding': encoding
    })
    t.equal(answer.statusCode, 415, encoding)
  }
  t.equal((await inject(app, '/tasks', json, { 'content-encoding': 'identity' })).statusCode, 200)
  t.equal(stored.size, 1)
})

t.test(
  'E78-E81: a known path with another method says which it has, an unknown one is not there',
  async t => {
    const { app, port } = await listening(t)
    for (const method of ['PUT', 'DELETE', 'PATCH', 'OPTIONS'] as const) {
      const answer = await app.inject({ method, url: '/tasks' })
      t.match(
        { status: answer.statusCode, allow: answer.headers.allow, body: answer.json() },
        { status: 405, allow: 'GET, HEAD, POST', body: { code: 'METHOD_NOT_ALLOWED' } },
        method
      )
    }
    for (const method of ['TRACE', 'PROPFIND', 'QUERY', 'FOO', 'foo']) {
      const {
        all: [answer]
      } = await talk(port, request(`${method} /tasks HTTP/1.1`, [host]))
      t.match(
        answer,
        { status: 405, headers: { allow: 'GET, HEAD, POST', 'content-type': /problem\+json/ } },
        method
      )
    }
    const {
      all: [foo]
    } = await talk(port, request('FOO /nowhere HTTP/1.1', [host]))
    t.match(foo, { status: 404 })
    t.match((await app.inject({ method: 'PUT', url: '/tasks/abc?x=1' })).headers, {
      allow: 'DELETE, GET, HEAD'
    })
    for (const url of [
      '//tasks',
      '/tasks/',
      '/tasks/%2e%2e/admin',
      '/nowhere',
      '/docs/../nowhere',
      '/TASKS',
      '/tasks/a/b/c'
    ]) {
      const {
        all: [answer]
      } = await talk(
        port,
        request(`POST ${url} HTTP/1.1`, [host, 'Content-Type: application/json', 'Content-Length: 2'], '{}')
      )
      t.match(answer, { status: 404 }, url)
    }
    const strange = { payload: '<x/>', headers: { 'content-type': 'application/xml' } }
    t.equal(
      (await app.inject({ method: 'PUT', url: '/tasks', ...strange })).statusCode,
      405,
      'whatever its body'
    )
    t.equal((await app.inject({ method: 'POST', url: '/nowhere', ...strange })).statusCode, 404)
    t.equal((await app.inject('/docs/static/nothing.js')).statusCode, 404, 'not a 405 that allows GET')
    t.match((await app.inject('/tasks/%zz')).json(), { status: 400, code: 'BAD_REQUEST' })
    t.match((await app.inject(`/tasks/${'x'.repeat(600)}`)).statusCode, 404)
    t.equal(
      (await app.inject({ method: 'GET', url: '/healthz', headers: { 'x-http-method-override': 'DELETE' } }))
        .statusCode,
      200
    )
  }
)

t.test('E67-E70, E82-E84: what is malformed or too long gets its own status, as a problem', async t => {
  const { port, stored } = await listening(t)
  const many = (n: number) => Array.from({ length: n }, (_, i) => `x-${i}: ${i}`)
  const cases: [name: string, bytes: string, status: number][] = [
    ['E67 100 headers', posting(...many(100)), 201],
    ['300 headers', posting(...many(300)), 431],
    ['E68 2,000 headers', posting(...many(2_000)), 431],
    ['E69 one header of 20 kB', posting(`x-long: ${'x'.repeat(20_000)}`), 431],
    ['E70 5,000 query parameters', request(`GET /tasks?${'a=1&'.repeat(5_000)} HTTP/1.1`, [host]), 414],
    ['a long query', request(`GET /tasks?cursor=${'a'.repeat(9_000)} HTTP/1.1`, [host]), 414],
    ['a long name', request(`GET /tasks/${'a'.repeat(9_000)} HTTP/1.1`, [host]), 404],
    ['E82 no Host', request('GET /healthz HTTP/1.1', []), 400],
    ['E82 two Hosts', request('GET /healthz HTTP/1.1', [host, 'Host: other.test']), 400],
    ['HTTP/1.0 needs none', request('GET /healthz HTTP/1.0', []), 200],
    ['E83 the absolute form', request('GET http://ackbox.test/healthz HTTP/1.1', [host]), 200],
    ['E84 two lengths', posting('Transfer-Encoding: chunked'), 400],
    [
      'a negative length',
      request('POST /tasks HTTP/1.1', [host, 'Content-Type: application/json', 'Content-Length: -1'], '{}'),
      400
    ],
    [
      'a bad chunk',
      request(
        'POST /tasks HTTP/1.1',
        [host, 'Content-Type: application/json', 'Transfer-Encoding: chunked'],
        'zz\r\n{}\r\n'
      ),
      400
    ],
    ['no HTTP at all', 'hello\r\n\r\n', 400],
    ['an odd expectation', posting('Expect: the-moon'), 417]
  ]
  for (const [name, bytes, status] of cases) {
    const {
      all: [answer]
    } = await talk(port, bytes)
    t.match(answer, { status, headers: { 'content-type': status < 300 ? /json/ : /problem\+json/ } }, name)
    if (status >= 400) t.match(JSON.parse(answer?.body ?? '') as unknown, { status, code: String }, name)
  }
  t.equal(stored.size, 1)
})

t.test(
  'E57, E58: a body beyond the limit is refused and the connection closed, with a length or without',
  async t => {
    const { port, stored } = await listening(t)
    const limit = 288 * 1024
    const long = await talk(
      port,
      request(
        'POST /tasks HTTP/1.1',
        [host, 'Content-Type: application/json', `Content-Length: ${limit + 1}`],
        'x'.repeat(1_000)
      ),
      { answers: 2 }
    )
    t.match(long, {
      closed: true,
      all: only({ status: 413, headers: { connection: 'close' }, body: /TOO_LARGE/ })
    })
    const chunk = `10000\r\n${'x'.repeat(65_536)}\r\n`
    const chunked = await talk(
      port,
      request(
        'POST /tasks HTTP/1.1',
        [host, 'Content-Type: application/json', 'Transfer-Encoding: chunked'],
        chunk.repeat(6)
      ),
      { answers: 2 }
    )
    t.match(chunked, { closed: true, all: only({ status: 413 }) })
    t.equal(stored.size, 0)
  }
)

t.test('Expect: 100-continue is answered and the body then read', async t => {
  const { port } = await listening(t)
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  socket.write(
    request('POST /tasks HTTP/1.1', [
      host,
      'Content-Type: application/json',
      `Content-Length: ${json.length}`,
      'Expect: 100-continue'
    ])
  )
  const [first] = (await once(socket, 'data')) as [Buffer]
  t.match(first.toString(), /^HTTP\/1\.1 100 Continue/)
  socket.write(json)
  const { text } = await read(socket, so => parse(so).length > 0)
  t.match(parse(text)[0], { status: 201 })
  socket.destroy()
})

t.test('E77: 1,000 pipelined requests are answered in their order', async t => {
  const { port, stored } = await listening(t)
  const bytes = Array.from({ length: 1_000 }, (_, i) => {
    const body = JSON.stringify({ ...order, taskNo: `p${i}` })
    return request(
      'POST /tasks HTTP/1.1',
      [host, 'Content-Type: application/json', `Content-Length: ${body.length}`],
      body
    )
  }).join('')
  const { all } = await talk(port, bytes, { answers: 1_000 })
  t.same(
    all.map(one => (JSON.parse(one.body) as { taskNo: string }).taskNo),
    Array.from({ length: 1_000 }, (_, i) => `p${i}`)
  )
  t.equal(stored.size, 1_000)
})

t.test('garbage after a good request is never taken for its answer', async t => {
  let release = () => {}
  const open = new Promise<void>(resolve => {
    release = resolve
  })
  const { port, deps } = await listening(t)
  const accept = deps.accept.bind(deps)
  let asked = 0
  deps.accept = async request => {
    asked++
    await open
    return await accept(request)
  }
  const talked = await talk(port, posting() + 'GARBAGE\r\n\r\n')
  release()
  t.same(talked, { all: [], closed: true }, 'the POST may be stored: it must not look refused')
  t.equal(asked, 1, 'the POST was taken')
})

t.test('E71-E76: who sends slowly or not at all is let go, and others are served meanwhile', async t => {
  const { port, origin, stored } = await listening(t)
  const slow = [
    '',
    'POST /tasks HTT',
    posting().slice(0, -20),
    request('POST /tasks HTTP/1.1', [
      host,
      'Content-Type: application/json',
      'Content-Length: 50',
      'Expect: 100-continue'
    ])
  ]
  const begun = stopwatch(t)
  const ended = slow.map(async bytes => {
    const socket = connect(port, '127.0.0.1')
    await once(socket, 'connect')
    socket.write(bytes)
    const { text } = await read(socket, () => false)
    return { status: parse(text)[0]?.status, seconds: begun() / 1000 }
  })
  const dripping = (async () => {
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => {})
    await once(socket, 'connect')
    const drip = setInterval(() => socket.write('P'), 500)
    const { text } = await read(socket, () => false)
    clearInterval(drip)
    return { status: parse(text)[0]?.status, seconds: begun() / 1000 }
  })()
  const crowd = await Promise.all(
    Array.from({ length: 500 }, async (_, i) => {
      const socket = connect(port, '127.0.0.1')
      socket.on('error', () => {})
      await once(socket, 'connect')
      if (i % 2 === 0) socket.write('POST /tasks HTTP/1.1\r\nHost: a\r\n')
      return socket
    })
  )
  const answer = await fetch(`${origin}/tasks`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: json
  })
  t.equal(answer.status, 201, 'served beside 500 idle and half-sent connections')
  await answer.arrayBuffer()
  for (const socket of crowd) socket.destroy()
  for (const end of await Promise.all([...ended, dripping])) {
    t.ok(end.seconds < 17.5, `after ${end.seconds} s`)
    t.ok(end.status === 408 || end.status === 400, `with ${end.status}`)
  }
  t.equal(stored.size, 1)
})

t.test(
  'no browser may guess what an answer is: each says nosniff, problems before a request too',
  async t => {
    const { app, port } = await listening(t)
    for (const url of [
      '/tasks',
      '/healthz',
      '/metrics',
      '/openapi.json',
      '/docs',
      '/docs/static/index.css',
      '/nowhere',
      '/%zz'
    ])
      t.equal((await app.inject(url)).headers['x-content-type-options'], 'nosniff', url)
    t.match((await inject(app, '/tasks', json)).headers, { 'x-content-type-options': 'nosniff' })
    const strange = [
      'hello',
      request('FOO /tasks HTTP/1.1', [host]),
      request('GET /healthz HTTP/1.1', []),
      posting('Expect: the-moon'),
      posting('Transfer-Encoding: chunked'),
      posting(`x-long: ${'x'.repeat(20_000)}`)
    ]
    for (const bytes of strange) {
      const { all } = await talk(port, `${bytes}\r\n\r\n`)
      t.match(
        all,
        only({ status: Number, headers: { 'x-content-type-options': 'nosniff' } }),
        bytes.slice(0, 30)
      )
    }
  }
)

t.test('what still comes in while the server closes is told so like everything else', async t => {
  let release = (): void => {}
  const open = new Promise<void>(resolve => {
    release = resolve
  })
  const { app, port, deps } = await listening(t)
  const accept = deps.accept.bind(deps)
  deps.accept = async asked => {
    await open
    return await accept(asked)
  }
  const socket = connect(port, '127.0.0.1')
  await once(socket, 'connect')
  socket.write(posting())
  await once(app.server, 'request')
  const closed = app.close()
  socket.write(request('GET /tasks HTTP/1.1', [host]))
  await once(app.server, 'request')
  release()
  const { text } = await read(socket, so => parse(so).length === 2)
  t.match(
    parse(text),
    only(
      { status: 201 },
      {
        status: 503,
        headers: { 'x-content-type-options': 'nosniff', 'retry-after': '1' },
        body: /"code":"UNAVAILABLE"/
      }
    )
  )
  socket.destroy()
  await closed
})
