// Everything a downstream may do to us, and the outcome that must follow. downstreams.test.ts runs each row on a real TCP server.
import { deflateRawSync, gzipSync } from 'node:zlib'
import type { Socket } from 'node:net'
import type { Accepted } from '../../src/transport/types.ts'
import { answer } from './raw-server.ts'

export interface Row {
  name: string
  does: (socket: Socket) => void
  /** The outcome must match this. */
  outcome: object
  accepted?: Accepted
  body?: string
  /** The expected time until the outcome; a busy machine gets some grace. By default the deadline. */
  byMs?: number
  /** false: this connection may be reused. */
  destroyed?: false
}

export const ok = answer(200, 'fine')
export const head = (status: string, ...headers: string[]): string =>
  `HTTP/1.1 ${status}\r\n${headers.map(each => `${each}\r\n`).join('')}`
export const failed = (reason: string | RegExp, more: object = {}): object => ({
  kind: 'failed',
  reason,
  ...more
})
export const delivered = (more: object = {}): object => ({ kind: 'delivered', ...more })
const codeIsZero: Accepted = ({ json }) => (json as { code?: number } | undefined)?.code === 0

const bomb = gzipSync(Buffer.alloc(64 << 20))

export const says =
  (bytes: string) =>
  (socket: Socket): void => {
    socket.write(bytes)
  }

/** The deadline of a send, and the deadline of a body after its headers. */
export const timeoutMs = 600
export const bodyMs = 200

/** Writes again and again until the other side is gone. */
export function flood(socket: Socket, bytes: string | Buffer, everyMs: number): void {
  const timer = setInterval(() => (socket.destroyed ? clearInterval(timer) : socket.write(bytes)), everyMs)
  socket.on('close', () => clearInterval(timer))
}

/** A well-formed answer, after which the connection may be reused. */
export const kept = (name: string, bytes: string, outcome: object, accepted?: Accepted): Row => ({
  name,
  does: says(bytes),
  outcome,
  destroyed: false,
  ...(accepted && { accepted })
})

/** An answer after which the connection must be closed. */
export const broken = (name: string, bytes: string, outcome: object): Row => ({
  name,
  does: says(bytes),
  outcome
})

export const rows: Row[] = [
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
  broken('D8 speaks SSH', 'SSH-2.0-OpenSSH_9.6\r\n', failed(/^protocol/)),
  {
    name: 'D9 says HTTP/2.0 on HTTP/1',
    does: socket => socket.end('HTTP/2.0 200 OK\r\ncontent-length: 4\r\n\r\nfine'),
    outcome: delivered({ status: 200 })
  },
  broken('D10 status 99', head('99 Odd', 'content-length: 0') + '\r\n', failed(/^protocol/)),
  kept('D11 status 600', answer(600), failed('http_600', { status: 600 })),
  kept('D11 status 999', answer(999), failed('http_999')),
  broken('D12 status 2000', answer(2000), failed(/^protocol/)),
  broken(
    'D13 a body longer than its Content-Length',
    head('200 OK', 'content-length: 2') + '\r\nfine, and more than was said',
    delivered({ answer: Buffer.from('fi') })
  ),
  broken(
    'D15 two different Content-Length',
    head('200 OK', 'content-length: 4', 'content-length: 5') + '\r\nfine!',
    failed(/^protocol/)
  ),
  broken('D16 Content-Length -1', head('200 OK', 'content-length: -1') + '\r\n', failed(/^protocol/)),
  broken(
    'D16 Content-Length 10^20',
    head('200 OK', `content-length: 1${'0'.repeat(20)}`) + '\r\nx',
    failed(/^protocol/)
  ),
  {
    name: 'D17 Content-Length and Transfer-Encoding',
    does: says(
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
  kept(
    'a few 103 and then the answer',
    (head('103 Early Hints', 'link: </x>') + '\r\n').repeat(3) + ok,
    delivered({ status: 200, answer: Buffer.from('fine') })
  ),
  {
    name: 'D24 101 Switching Protocols',
    does: socket =>
      socket.write(head('101 Switching Protocols', 'connection: upgrade', 'upgrade: websocket') + '\r\n'),
    outcome: failed(/^protocol/)
  },
  broken(
    'D25 a header of 20 kB',
    answer(200, '', { 'x-long': 'x'.repeat(20_480) }),
    failed('headers_too_long')
  ),
  {
    name: 'D25 headers of 200 kB',
    does: says(
      head('200 OK', ...Array.from({ length: 200 }, (_, i) => `x-${i}: ${'y'.repeat(1_000)}`)) + '\r\n'
    ),
    outcome: failed('headers_too_long')
  },
  broken('D28 bare LF line ends', 'HTTP/1.1 200 OK\ncontent-length: 0\n\n', failed(/^protocol/)),
  broken('D29 a space in a header name', head('200 OK', 'bad name: x', 'content-length: 0') + '\r\n', {
    kind: /delivered|failed/
  }),
  kept('D29 a folded header', head('200 OK', 'x-a: b\r\n  c', 'content-length: 0') + '\r\n', delivered()),
  kept('D31 302 without Location', answer(302), failed('http_302')),
  kept(
    'D31 302 to the metadata service',
    answer(302, '', { location: 'http://169.254.169.254/latest/' }),
    failed('http_302', { alarm: undefined }),
    () => true
  ),
  {
    name: 'D32 a gzip bomb',
    does: socket => {
      socket.write(head('200 OK', 'content-encoding: gzip', `content-length: ${bomb.length}`) + '\r\n')
      socket.write(bomb)
    },
    outcome: delivered({ answer: undefined, warning: 'answer_too_long' }),
    destroyed: false
  },
  kept(
    'D34 a text that claims to be gzip',
    answer(200, 'no gzip', { 'content-encoding': 'gzip' }),
    delivered({ answer: Buffer.from('no gzip') })
  ),
  {
    name: 'D34 deflate',
    does: socket => {
      const raw = deflateRawSync('{"code":0}')
      socket.write(head('200 OK', 'content-encoding: deflate', `content-length: ${raw.length}`) + '\r\n')
      socket.write(raw)
    },
    outcome: delivered({ answer: Buffer.from('{"code":0}') }),
    destroyed: false
  },
  kept(
    'D38 429 with Retry-After',
    answer(429, '', { 'retry-after': '120' }),
    failed('http_429', { retryAfterMs: 120_000 })
  ),
  kept(
    'D38 503 with an absurd Retry-After',
    answer(503, '', { 'retry-after': '9'.repeat(10_000) }),
    failed('http_503', { retryAfterMs: 3_600_000 })
  ),
  kept(
    'D40 200 and a failure in the body, unasked',
    answer(200, '{"code":500}'),
    delivered({ answer: Buffer.from('{"code":500}') })
  ),
  kept(
    'D40 200 and a failure in the body that the handler knows',
    answer(200, '{"code":500}'),
    failed('not_accepted', { status: 200 }),
    codeIsZero
  ),
  {
    name: 'D40 the handler needs a body beyond 64 kB',
    does: says(answer(200, `{"code":0,"x":"${'y'.repeat(70_000)}"}`)),
    accepted: codeIsZero,
    outcome: failed('answer_too_long')
  },
  {
    name: 'D42 cookies and policies',
    does: says(
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
  kept('204', 'HTTP/1.1 204 No Content\r\n\r\n', delivered({ status: 204 })),
  kept(
    'the answer is the receipt',
    answer(200, '', { 'Ackbox-Result': 'HANDLED' }),
    delivered({ handled: true })
  ),
  kept('a receipt in an answer of 500', answer(500, '', { 'ackbox-result': 'HANDLED' }), failed('http_500')),
  kept('500 and a handler that forgot the status', answer(500), failed('http_500'), () => true),
  kept('410', answer(410), { kind: 'refused', reason: 'http_410' }),
  kept('404', answer(404), failed('http_404')),
  kept(
    '422 that the handler calls final',
    answer(422),
    { kind: 'refused', reason: 'http_422' },
    ({ status }) => (status === 422 ? 'refused' : true)
  ),
  kept(
    'accepted throws',
    answer(200, 'null'),
    failed(/^accepted_threw: TypeError/),
    ({ json }) => (json as { code: number }).code === 0
  ),
  kept(
    'accepted returns null, as JavaScript allows',
    answer(200, 'null'),
    failed('not_accepted'),
    (({ json }) => json && (json as { ok: boolean }).ok) as Accepted
  ),
  kept('accepted returns an object', ok, failed('not_accepted'), (() => ({})) as unknown as Accepted),
  kept('accepted is async and rejects', ok, failed('accepted_async'), (async () => {
    throw new Error('unhandled')
  }) as unknown as Accepted),
  kept(
    'accepted reads headers',
    answer(200, '', { 'X-Code': '0', __proto__x: '1' }),
    delivered(),
    ({ headers }) => headers['x-code'] === '0'
  )
]
