// What HTTP allows a client to send: RFC 9110 (semantics) and RFC 9112 (HTTP/1.1).
import t from 'tap'
import { listening, order } from './fake.ts'
import { request, talk } from './socket.ts'

const host = 'Host: ackbox.test'
const form = 'Content-Type: application/x-www-form-urlencoded'
const chunked = 'Transfer-Encoding: chunked'

/** How clients and proxies send a request without content. */
const empty: [what: string, headers: string[], body?: string][] = [
  ['no length', []],
  ['no length, a form', [form]],
  ['a length of 0', ['Content-Length: 0']],
  ["curl -d ''", [form, 'Content-Length: 0']],
  ['a type that is none', ['Content-Type: ;;', 'Content-Length: 0']],
  ['another charset', ['Content-Type: text/plain; charset=gbk', 'Content-Length: 0']],
  ['a coding of nothing', ['Content-Encoding: gzip', 'Content-Length: 0']],
  ['JSON of no length', ['Content-Type: application/json', 'Content-Length: 0']],
  ['chunks without content, as of cloudflared', [chunked], '0\r\n\r\n'],
  ['chunks without content, a form', [form, chunked], '0\r\n\r\n'],
  ['chunks without content, with an extension and a trailer', [chunked], '0;a=b\r\nx-sum: 0\r\n\r\n'],
  ['chunks without content, JSON', ['Content-Type: application/json', chunked], '0\r\n\r\n']
]

t.test('no content is the same in all its forms, for every call that takes none', async t => {
  const { port, app } = await listening(t)
  const paths = app.swagger().paths as Record<string, Record<string, { requestBody?: unknown }>>
  const calls = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { requestBody }]) =>
      method === 'get' || method === 'head' || requestBody
        ? []
        : [`${method.toUpperCase()} ${path.replaceAll(/\{\w+\}/g, 'x')} HTTP/1.1`]
    )
  )
  for (const call of [
    'POST /tasks/x/commit',
    'POST /tasks/x/rollback',
    'POST /tasks/x/check',
    'DELETE /tasks/x'
  ])
    t.ok(calls.includes(`${call} HTTP/1.1`), call)
  for (const call of calls) {
    const seen: unknown[] = []
    for (const [, headers, body] of empty) {
      const { all } = await talk(port, request(call, [host, ...headers], body))
      seen.push([all[0]?.status, (JSON.parse(all[0]?.body || '{}') as { code?: string }).code])
    }
    t.not((seen[0] as [number])[0], 415, call)
    for (const [at, one] of seen.entries()) t.same(one, seen[0], `${call}, ${empty[at]?.[0]}`)
  }
})

t.test('a call that needs a body says that it is empty, not that its type is wrong', async t => {
  const { port } = await listening(t)
  for (const [what, headers, body] of empty) {
    const { all } = await talk(port, request('POST /tasks HTTP/1.1', [host, ...headers], body))
    t.match(all[0], { status: 400, body: /"NOT_JSON".*the body is empty/ }, what)
  }
})

t.test('content of another type is refused, and is not read to its end', async t => {
  const { port } = await listening(t)
  const rows: [what: string, headers: string[], body: string][] = [
    ['a form', [form, 'Content-Length: 3'], 'a=b'],
    ['a form in chunks', [form, chunked], '3\r\na=b\r\n'],
    ['no type', ['Content-Length: 100000'], 'a'],
    ['no type, in chunks', [chunked], '1\r\na\r\n']
  ]
  for (const call of ['POST /tasks', 'POST /tasks/x/commit', 'POST /tasks/x/redeliver'])
    for (const [what, headers, body] of rows) {
      const { all } = await talk(port, request(`${call} HTTP/1.1`, [host, ...headers], body))
      t.match(all[0], { status: 415, body: /UNSUPPORTED_MEDIA_TYPE/ }, `${call}, ${what}`)
    }
})

t.test('spaces and tabs around the values of headers mean nothing, and names have any case', async t => {
  const { port, receipts } = await listening(t)
  const json = JSON.stringify({ ...order, taskNo: 'spaces' })
  const { all } = await talk(
    port,
    request(
      'POST /tasks HTTP/1.1',
      ['HOST:ackbox.test', 'content-TYPE: \t application/json \t', `Content-Length:${json.length} `, 'x-a:'],
      json
    )
  )
  t.equal(all[0]?.status, 201)
  const receipt = JSON.stringify({ taskNo: 'spaces', messageCode: order.messageCode })
  await talk(
    port,
    request(
      'POST /callback HTTP/1.1',
      [
        host,
        'Content-Type: application/json',
        `Content-Length: ${receipt.length}`,
        'ackbox-callback-token: \t good \t'
      ],
      receipt
    )
  )
  t.match(receipts.at(-1), { token: 'good' })
})

t.test('a continued header line is refused: a proxy in front may have read two lines', async t => {
  const { port } = await listening(t)
  const { all } = await talk(port, request('GET /healthz HTTP/1.1', [host, 'x-a: b\r\n c']))
  t.equal(all[0]?.status, 400)
})
