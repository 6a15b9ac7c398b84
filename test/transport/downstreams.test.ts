// Every row of what a downstream may do to us, done by a real TCP server. Deadlines are short, so that the whole takes seconds.
import { deflateRawSync, gzipSync } from 'node:zlib'
import type { Socket } from 'node:net'
import t from 'tap'
import { guard } from '../../src/transport/guard.ts'
import { httpTransport } from '../../src/transport/http.ts'
import type { Accepted } from '../../src/transport/transport.ts'
import { parcel } from './parcel.ts'
import { answer, rawServer } from './raw-server.ts'

const timeoutMs = 600
const bodyMs = 200

const open = (): ReturnType<typeof httpTransport> =>
  httpTransport({
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
    limits: { bodyMs, connectMs: 300 }
  })

interface Row {
  name: string
  does: (socket: Socket) => void
  /** What the outcome must match. */
  outcome: object
  accepted?: Accepted
  body?: string
  /** What may pass until the outcome: past the deadline, so much of grace for a busy machine. */
  byMs?: number
  /** false: this connection may serve again. */
  destroyed?: false
}

const ok = answer(200, 'fine')
const head = (status: string, ...headers: string[]): string =>
  `HTTP/1.1 ${status}\r\n${headers.map(each => `${each}\r\n`).join('')}`
const failed = (reason: string | RegExp, more: object = {}): object => ({ kind: 'failed', reason, ...more })
const delivered = (more: object = {}): object => ({ kind: 'delivered', ...more })
const codeIsZero: Accepted = ({ json }) => (json as { code?: number } | undefined)?.code === 0

const bomb = gzipSync(Buffer.alloc(64 << 20))

/** Writes again and again until the other side is gone. */
function flood(socket: Socket, bytes: string | Buffer, everyMs: number): void {
  const timer = setInterval(() => (socket.destroyed ? clearInterval(timer) : socket.write(bytes)), everyMs)
  socket.on('close', () => clearInterval(timer))
}

const rows: Row[] = [
  { name: 'D1 closes without a byte', does: socket => socket.end(), outcome: failed('connection_closed') },
  {
    name: 'D2 resets after the request',
    does: socket => socket.resetAndDestroy(),
    outcome: failed('connection_closed')
  },
  { name: 'D3 is silent for ever', does: () => {}, outcome: failed('timeout') },
  {
    name: 'D7 sends a status line, then FIN',
    does: socket => socket.end('HTTP/1.1 200 OK\r\n'),
    outcome: failed('connection_closed')
  },
  {
    name: 'D8 speaks HTTP/0.9',
    does: socket => socket.end('<html>hello</html>'),
    outcome: failed(/^protocol/)
  },
  {
    name: 'D8 speaks SSH',
    does: socket => socket.write('SSH-2.0-OpenSSH_9.6\r\n'),
    outcome: failed(/^protocol/)
  },
  {
    name: 'D9 says HTTP/2.0 on HTTP/1',
    does: socket => socket.end('HTTP/2.0 200 OK\r\ncontent-length: 4\r\n\r\nfine'),
    outcome: delivered({ status: 200 })
  },
  {
    name: 'D10 status 99',
    does: socket => socket.write(head('99 Odd', 'content-length: 0') + '\r\n'),
    outcome: failed(/^protocol/)
  },
  {
    name: 'D11 status 600',
    does: socket => socket.write(answer(600)),
    outcome: failed('http_600', { status: 600 }),
    destroyed: false
  },
  {
    name: 'D11 status 999',
    does: socket => socket.write(answer(999)),
    outcome: failed('http_999'),
    destroyed: false
  },
  { name: 'D12 status 2000', does: socket => socket.write(answer(2000)), outcome: failed(/^protocol/) },
  {
    name: 'D13 a body longer than its Content-Length',
    does: socket => socket.write(head('200 OK', 'content-length: 2') + '\r\nfine, and more than was said'),
    outcome: delivered({ answer: Buffer.from('fi') })
  },
  {
    name: 'D15 two different Content-Length',
    does: socket => socket.write(head('200 OK', 'content-length: 4', 'content-length: 5') + '\r\nfine!'),
    outcome: failed(/^protocol/)
  },
  {
    name: 'D16 Content-Length -1',
    does: socket => socket.write(head('200 OK', 'content-length: -1') + '\r\n'),
    outcome: failed(/^protocol/)
  },
  {
    name: 'D16 Content-Length 10^20',
    does: socket => socket.write(head('200 OK', `content-length: 1${'0'.repeat(20)}`) + '\r\nx'),
    outcome: failed(/^protocol/)
  },
  {
    name: 'D17 Content-Length and Transfer-Encoding',
    does: socket =>
      socket.write(
        head('200 OK', 'content-length: 4', 'transfer-encoding: chunked') + '\r\n4\r\nfine\r\n0\r\n\r\n'
      ),
    outcome: failed(/^protocol/)
  },
  {
    name: 'D19 chunked, never ended',
    does: socket => socket.end(head('200 OK', 'transfer-encoding: chunked') + '\r\n4\r\nfine\r\n'),
    outcome: delivered({ warning: 'connection_closed', answer: Buffer.from('fine') })
  },
  {
    name: 'D19 chunked, never ended, and the handler needs the body',
    does: socket => socket.end(head('200 OK', 'transfer-encoding: chunked') + '\r\na\r\n{"code":0}\r\n'),
    accepted: codeIsZero,
    outcome: failed('connection_closed', { status: 200 })
  },
  {
    name: 'D20 an endless body at full speed',
    does: socket => {
      const block = Buffer.alloc(65_536, 'x')
      socket.write(head('200 OK') + '\r\n')
      const more = (): void => {
        while (!socket.destroyed && socket.write(block));
      }
      socket.on('drain', more)
      more()
    },
    outcome: delivered({ warning: 'answer_too_long', answer: Buffer.alloc(16_384, 'x') }),
    byMs: bodyMs
  },
  {
    name: 'D20 a body that trickles for ever',
    does: socket => {
      socket.write(head('200 OK') + '\r\n')
      flood(socket, 'x', 20)
    },
    outcome: delivered({ warning: 'timeout' }),
    byMs: bodyMs
  },
  {
    name: 'D22 header bytes one by one',
    does: socket => {
      socket.write('HTTP/1.1 200 OK\r\nx')
      flood(socket, 'x', 50)
    },
    outcome: failed('timeout')
  },
  {
    name: 'D23 endless 103 at full speed',
    does: socket => flood(socket, head('103 Early Hints', 'link: </x>') + '\r\n', 1),
    outcome: failed(/^protocol/)
  },
  {
    name: 'D23 endless 102, slowly',
    does: socket => flood(socket, head('102 Processing') + '\r\n', 100),
    outcome: failed('timeout')
  },
  {
    name: 'D23 endless 100',
    does: socket => flood(socket, head('100 Continue') + '\r\n', 1),
    outcome: failed(/^protocol/)
  },
  {
    name: 'a few 103 and then the answer',
    does: socket => socket.write((head('103 Early Hints', 'link: </x>') + '\r\n').repeat(3) + ok),
    outcome: delivered({ status: 200, answer: Buffer.from('fine') }),
    destroyed: false
  },
  {
    name: 'D24 101 Switching Protocols',
    does: socket =>
      socket.write(head('101 Switching Protocols', 'connection: upgrade', 'upgrade: websocket') + '\r\n'),
    outcome: failed(/^protocol/)
  },
  {
    name: 'D25 a header of 20 kB',
    does: socket => socket.write(answer(200, '', { 'x-long': 'x'.repeat(20_480) })),
    outcome: failed('headers_too_long')
  },
  {
    name: 'D25 headers of 200 kB',
    does: socket =>
      socket.write(
        head('200 OK', ...Array.from({ length: 200 }, (_, i) => `x-${i}: ${'y'.repeat(1_000)}`)) + '\r\n'
      ),
    outcome: failed('headers_too_long')
  },
  {
    name: 'D28 bare LF line ends',
    does: socket => socket.write('HTTP/1.1 200 OK\ncontent-length: 0\n\n'),
    outcome: failed(/^protocol/)
  },
  {
    name: 'D29 a space in a header name',
    does: socket => socket.write(head('200 OK', 'bad name: x', 'content-length: 0') + '\r\n'),
    outcome: { kind: /delivered|failed/ }
  },
  {
    name: 'D29 a folded header',
    does: socket => socket.write(head('200 OK', 'x-a: b\r\n  c', 'content-length: 0') + '\r\n'),
    outcome: { kind: /delivered|failed/ }
  },
  {
    name: 'D31 302 without Location',
    does: socket => socket.write(answer(302)),
    outcome: failed('http_302'),
    destroyed: false
  },
  {
    name: 'D31 302 to the metadata service',
    does: socket => socket.write(answer(302, '', { location: 'http://169.254.169.254/latest/' })),
    accepted: () => true,
    outcome: failed('http_302', { alarm: undefined }),
    destroyed: false
  },
  {
    name: 'D32 a gzip bomb',
    does: socket => {
      socket.write(head('200 OK', 'content-encoding: gzip', `content-length: ${bomb.length}`) + '\r\n')
      socket.write(bomb)
    },
    outcome: delivered({ answer: bomb.subarray(0, 16_384) }),
    destroyed: false
  },
  {
    name: 'D34 invalid gzip',
    does: socket => socket.write(answer(200, 'no gzip', { 'content-encoding': 'gzip' })),
    outcome: delivered({ answer: Buffer.from('no gzip') }),
    destroyed: false
  },
  {
    name: 'D34 deflate stays as it is',
    does: socket => {
      const raw = deflateRawSync('{"code":0}')
      socket.write(head('200 OK', 'content-encoding: deflate', `content-length: ${raw.length}`) + '\r\n')
      socket.write(raw)
    },
    outcome: delivered({ answer: deflateRawSync('{"code":0}') }),
    destroyed: false
  },
  {
    name: 'D38 429 with Retry-After',
    does: socket => socket.write(answer(429, '', { 'retry-after': '120' })),
    outcome: failed('http_429', { retryAfterMs: 120_000 }),
    destroyed: false
  },
  {
    name: 'D38 503 with an absurd Retry-After',
    does: socket => socket.write(answer(503, '', { 'retry-after': '9'.repeat(10_000) })),
    outcome: failed('http_503', { retryAfterMs: undefined }),
    destroyed: false
  },
  {
    name: 'D40 200 and a failure in the body, unasked',
    does: socket => socket.write(answer(200, '{"code":500}')),
    outcome: delivered({ answer: Buffer.from('{"code":500}') }),
    destroyed: false
  },
  {
    name: 'D40 200 and a failure in the body that the handler knows',
    does: socket => socket.write(answer(200, '{"code":500}')),
    accepted: codeIsZero,
    outcome: failed('not_accepted', { status: 200 }),
    destroyed: false
  },
  {
    name: 'D40 the handler needs a body beyond 64 kB',
    does: socket => socket.write(answer(200, `{"code":0,"x":"${'y'.repeat(70_000)}"}`)),
    accepted: codeIsZero,
    outcome: failed('answer_too_long')
  },
  {
    name: 'D42 cookies and policies',
    does: socket =>
      socket.write(
        answer(200, '', {
          'set-cookie': 'session=canary',
          'alt-svc': 'h3=":443"',
          'clear-site-data': '"*"',
          'strict-transport-security': 'max-age=1'
        })
      ),
    outcome: delivered({ status: 200 }),
    destroyed: false
  },
  {
    name: '204',
    does: socket => socket.write('HTTP/1.1 204 No Content\r\n\r\n'),
    outcome: delivered({ status: 204 }),
    destroyed: false
  },
  {
    name: 'the answer is the receipt',
    does: socket => socket.write(answer(200, '', { 'Ackbox-Result': 'HANDLED' })),
    outcome: delivered({ handled: true }),
    destroyed: false
  },
  {
    name: 'a receipt in an answer of 500',
    does: socket => socket.write(answer(500, '', { 'ackbox-result': 'HANDLED' })),
    outcome: failed('http_500'),
    destroyed: false
  },
  {
    name: '500 and a handler that forgot the status',
    does: socket => socket.write(answer(500)),
    accepted: () => true,
    outcome: failed('http_500'),
    destroyed: false
  },
  {
    name: '410',
    does: socket => socket.write(answer(410)),
    outcome: { kind: 'refused', reason: 'http_410' },
    destroyed: false
  },
  { name: '404', does: socket => socket.write(answer(404)), outcome: failed('http_404'), destroyed: false },
  {
    name: '422 that the handler calls final',
    does: socket => socket.write(answer(422)),
    accepted: ({ status }) => (status === 422 ? 'refused' : true),
    outcome: { kind: 'refused', reason: 'http_422' },
    destroyed: false
  },
  {
    name: 'accepted throws',
    does: socket => socket.write(answer(200, 'null')),
    accepted: ({ json }) => (json as { code: number }).code === 0,
    outcome: failed(/^accepted_threw: TypeError/),
    destroyed: false
  },
  {
    name: 'accepted is async and rejects',
    does: socket => socket.write(ok),
    accepted: (async () => {
      throw new Error('unhandled')
    }) as unknown as Accepted,
    outcome: failed('accepted_async'),
    destroyed: false
  },
  {
    name: 'accepted reads headers',
    does: socket => socket.write(answer(200, '', { 'X-Code': '0', __proto__x: '1' })),
    accepted: ({ headers }) => headers['x-code'] === '0',
    outcome: delivered(),
    destroyed: false
  }
]

for (const row of rows) {
  t.test(row.name, async t => {
    const server = await rawServer(t, (socket, _request, nth) =>
      nth === 1 ? row.does(socket) : socket.write(ok)
    )
    const http = open()
    t.teardown(() => http.close())
    const started = performance.now()
    const outcome = await http.send({ url: server.url, body: '{}' }, parcel({ timeoutMs }), row.accepted)
    const took = performance.now() - started
    t.match(outcome, row.outcome)
    t.ok(took < (row.byMs ?? timeoutMs) + 400, `ended by its deadline: ${Math.round(took)} ms`)
    if ('answer' in outcome) t.ok((outcome.answer?.length ?? 0) <= 16_384)
    t.notMatch(JSON.stringify(outcome), /canary/)

    const first = [...server.open][0]
    if (row.destroyed !== false && first) await new Promise(resolve => first.once('close', resolve))
    t.match(
      await http.send({ url: server.url, body: '{}' }, parcel({ timeoutMs })),
      { kind: 'delivered', answer: Buffer.from('fine') },
      'and the next send works'
    )
  })
}

t.test('D26 1,900 small headers are accepted, and a few of them kept', async t => {
  const many = Object.fromEntries(Array.from({ length: 1_900 }, (_, i) => [`x-${i}`, 'some value']))
  const server = await rawServer(t, socket => socket.write(answer(200, '', many)))
  const http = open()
  t.teardown(() => http.close())
  const outcome = await http.send({ url: server.url }, parcel())
  t.match(outcome, { kind: 'delivered', headers: { length: 50 } })

  const big = await rawServer(t, socket =>
    socket.write(
      answer(200, '', Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`x-${i}`, 'y'.repeat(1_000)])))
    )
  )
  const kept = await http.send({ url: big.url }, parcel())
  t.ok(JSON.stringify(kept.kind === 'delivered' && kept.headers).length < 9_000)
})

t.test('D31 a redirect loop costs one request', async t => {
  const server = await rawServer(t, socket => socket.write(answer(307, '', { location: '/hook' })))
  const http = open()
  t.teardown(() => http.close())
  t.match(await http.send({ url: server.url }, parcel()), {
    kind: 'failed',
    reason: 'http_307',
    headers: [
      ['content-length', '0'],
      ['location', '/hook']
    ]
  })
  t.equal(server.received.length, 1)
})

t.test('D35 an answer that nobody asked for is never taken for the next one', async t => {
  const evil = answer(200, 'EVIL')
  // In one piece with the real answer, and while the connection lies idle.
  for (const name of ['with it', 'while idle']) {
    const server = await rawServer(t, socket => {
      socket.write(name === 'with it' ? ok + evil : ok)
      if (name === 'while idle') setTimeout(() => socket.write(evil), 5)
    })
    const http = open()
    t.teardown(() => http.close())
    for (let i = 0; i < 20; i++) {
      const outcome = await http.send({ url: server.url }, parcel())
      t.match(outcome, { kind: 'delivered', answer: Buffer.from('fine') }, name)
      if (name === 'while idle') await new Promise(resolve => setTimeout(resolve, 15))
    }
  }
})

t.test('D37 a status that comes while we still write counts', async t => {
  const server = await rawServer(t, () => {})
  const early = await earlyAnswer(t)
  const http = open()
  t.teardown(() => http.close())
  t.match(await http.send({ url: early, body: 'x'.repeat(8 << 20) }, parcel({ timeoutMs })), {
    kind: 'failed',
    reason: 'http_413'
  })
  t.equal(server.received.length, 0)
})

/** Answers 413 at the first byte and reads on slowly. */
async function earlyAnswer(t: Parameters<typeof rawServer>[0]): Promise<string> {
  const server = await rawServer(t, () => {})
  await server.close()
  const { createServer } = await import('node:net')
  const early = createServer(socket =>
    socket
      .on('error', () => {})
      .once('data', () => {
        socket.pause()
        socket.write(answer(413))
      })
  )
  await new Promise<void>(resolve => early.listen(server.port, '127.0.0.1', resolve))
  t.teardown(() => early.close())
  return server.url
}

t.test('D39 a downstream that was down is served as soon as it is well', async t => {
  const server = await rawServer(t, (socket, _request, nth) => socket.write(nth <= 5 ? answer(503) : ok))
  const http = open()
  t.teardown(() => http.close())
  for (let i = 0; i < 5; i++)
    t.match(await http.send({ url: server.url }, parcel()), { kind: 'failed', reason: 'http_503' })
  t.match(await http.send({ url: server.url }, parcel()), { kind: 'delivered' })
  t.ok(server.open.size <= 2, 'over kept connections')
})
