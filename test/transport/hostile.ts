// Deliberate attacks by a downstream: shapes of an answer that a parser could read without end, or read wrongly.
import type { Socket } from 'node:net'
import { bodyMs, broken, delivered, failed, flood, head, kept, ok, says, type Row } from './downstreams.ts'

/** Writes the opening, and then the same block as fast as the socket takes it. */
const pours =
  (opening: string, block: string) =>
  (socket: Socket): void => {
    const bytes = Buffer.from(block.repeat(Math.ceil(65_536 / block.length)), 'latin1')
    const more = (): void => {
      while (!socket.destroyed && socket.write(bytes));
    }
    socket.on('drain', more)
    if (socket.write(opening)) more()
  }

/** One byte in each packet. */
const drips =
  (bytes: string) =>
  (socket: Socket): void => {
    let at = 0
    const timer = setInterval(() => {
      if (at === bytes.length || socket.destroyed) return clearInterval(timer)
      socket.write(bytes[at++] ?? '')
    }, 1)
    socket.on('close', () => clearInterval(timer))
  }

const chunked = `${head('200 OK', 'transfer-encoding: chunked')}\r\n`
const chunks = (bytes: string, outcome: object, name: string): Row => ({
  name,
  does: says(`${chunked}${bytes}`),
  outcome
})

export const rows: Row[] = [
  broken('garbage behind a whole answer', `${ok}\0\0\0\0 SSH-2.0 canary`, delivered({ status: 200 })),
  {
    name: 'an endless pipeline of answers',
    does: pours('', ok),
    outcome: delivered({ answer: Buffer.from('fine') })
  },
  broken(
    'a body behind a 204, which has none',
    `${head('204 No Content', 'content-length: 6')}\r\ncanary`,
    delivered({ status: 204, answer: undefined })
  ),
  broken(
    'a body behind a 304, which has none',
    `${head('304 Not Modified', 'content-length: 6')}\r\ncanary`,
    failed('http_304')
  ),
  {
    name: 'a status line without end',
    does: pours('HTTP/1.1 200 ', 'x'),
    outcome: failed('headers_too_long')
  },
  { name: 'empty lines without end', does: pours('', '\r\n'), outcome: failed(/./) },
  {
    name: 'headers without end',
    does: pours(head('200 OK'), 'x-more: of them\r\n'),
    outcome: failed('headers_too_long')
  },
  {
    name: 'a header name without end',
    does: pours(head('200 OK'), 'x'),
    outcome: failed('headers_too_long')
  },
  {
    name: 'spaces before a header value without end',
    does: pours(`${head('200 OK')}x-a:`, ' '),
    outcome: failed('headers_too_long')
  },
  {
    name: 'ten 103 of 60 kB each, and one more',
    does: says(
      `${head('103 Early Hints', ...Array<string>(60).fill(`x: ${'y'.repeat(1_000)}`))}\r\n`.repeat(11)
    ),
    outcome: failed(/^(?:protocol|headers_too_long)/)
  },
  {
    name: 'a 103 whose headers have no end',
    does: pours(head('103 Early Hints'), 'x-more: of them\r\n'),
    outcome: failed('headers_too_long')
  },
  {
    name: 'a 103 with a body',
    does: says(`${head('103 Early Hints', 'content-length: 6')}\r\ncanary${ok}`),
    outcome: failed(/^protocol/)
  },
  {
    name: 'a flood of 103 with bodies',
    does: pours('', `${head('103 Early Hints', 'content-length: 6')}\r\ncanary`),
    outcome: failed(/^protocol/)
  },
  {
    name: 'headers, and then silence',
    does: says(`${head('200 OK', 'content-length: 100')}\r\nfine`),
    outcome: delivered({ warning: 'timeout', answer: Buffer.from('fine') }),
    byMs: bodyMs
  },
  {
    name: 'a Content-Length of 8 EiB and an early close',
    does: socket => socket.end(`${head('200 OK', 'content-length: 9223372036854775807')}\r\nfine`),
    outcome: delivered({ warning: 'connection_closed', answer: Buffer.from('fine') })
  },
  {
    name: 'a reset in the middle of the body',
    does: socket => {
      socket.write(`${head('200 OK', 'content-length: 100')}\r\nfine`)
      setTimeout(() => socket.resetAndDestroy(), 20)
    },
    outcome: delivered({ warning: 'connection_closed' })
  },
  {
    name: 'a half-closed connection: FIN in the middle of the body, and it still reads',
    does: socket => {
      socket.allowHalfOpen = true
      socket.end(`${head('200 OK', 'content-length: 100')}\r\nfine`)
    },
    outcome: delivered({ warning: 'connection_closed' })
  },
  {
    name: 'a half-closed connection: FIN after an answer without a length',
    does: socket => {
      socket.allowHalfOpen = true
      socket.end(`${head('200 OK')}\r\nfine`)
    },
    outcome: delivered({ warning: undefined, answer: Buffer.from('fine') })
  },
  { name: 'an answer in packets of one byte', does: drips(ok), outcome: delivered(), destroyed: false },
  {
    name: 'header bytes one by one until far beyond the deadline',
    does: socket => {
      socket.write(head('200 OK'))
      flood(socket, 'x-a: b\r\n', 20)
    },
    outcome: failed('timeout')
  },
  {
    name: 'trailers without end',
    does: pours(`${chunked}4\r\nfine\r\n0\r\n`, 'x-more: of them\r\n'),
    outcome: delivered({ warning: 'headers_too_long' })
  },
  {
    name: 'a trailer of 2 MB',
    does: says(`${chunked}4\r\nfine\r\n0\r\nx: ${'y'.repeat(2 << 20)}\r\n\r\n`),
    outcome: delivered({ warning: 'headers_too_long' })
  },
  {
    name: 'a chunk extension without end',
    does: pours(`${chunked}4;`, 'x'),
    outcome: delivered({ warning: 'answer_too_long' })
  },
  {
    name: 'one byte in each chunk, and a long extension to each',
    does: pours(chunked, `1;${'x'.repeat(1_000)}\r\ny\r\n`),
    outcome: delivered({ warning: 'answer_too_long' })
  },
  {
    name: 'a chunk size of zeros without end',
    does: pours(chunked, '0'),
    outcome: delivered({ warning: /./ })
  },
  chunks('1FFFFFFFFFFFFFFFF\r\nfine', delivered({ warning: /^protocol/ }), 'a chunk size beyond 64 bits'),
  {
    name: 'a chunk size of 64 bits, and an early close',
    does: socket => socket.end(`${chunked}FFFFFFFFFFFFFFFE\r\nfine`),
    outcome: delivered({ warning: /^(?:protocol|connection_closed)/ })
  },
  chunks('-4\r\nfine\r\n0\r\n\r\n', delivered({ warning: /^protocol/ }), 'a chunk size below zero'),
  chunks('0x4\r\nfine\r\n0\r\n\r\n', delivered({ warning: /^protocol/ }), 'a chunk size as C writes it'),
  chunks('4\r\nfineXX0\r\n\r\n', delivered({ warning: /^protocol/ }), 'a chunk longer than it said'),
  broken(
    'a coding that nobody knows around the chunks',
    `${head('200 OK', 'transfer-encoding: chunked, other')}\r\n4\r\nfine\r\n0\r\n\r\n`,
    { kind: /delivered|failed/ }
  ),
  broken('a NUL in a header', `${head('200 OK', 'x-a: b\0c', 'content-length: 0')}\r\n`, failed(/^protocol/)),
  kept(
    'a header of bytes that are no UTF-8',
    `${head('200 OK', 'x-a: \xff\xfe', 'content-length: 4')}\r\nfine`,
    delivered({ status: 200 })
  ),
  {
    name: 'an upgrade that nobody asked for, with 200',
    does: says(`${head('200 OK', 'connection: upgrade', 'upgrade: other', 'content-length: 4')}\r\nfine`),
    outcome: { kind: /delivered|failed/ }
  },
  {
    name: 'an absurd Keep-Alive',
    does: says(`${head('200 OK', 'keep-alive: timeout=1e999, max=-1', 'content-length: 4')}\r\nfine`),
    outcome: delivered({ answer: Buffer.from('fine') }),
    destroyed: false
  },
  {
    name: 'a close that was announced and does not come',
    does: says(`${head('200 OK', 'connection: close', 'content-length: 4')}\r\nfine`),
    outcome: delivered({ answer: Buffer.from('fine') })
  },
  {
    name: 'an HTTP/1.0 answer without a length, and the connection left open',
    does: says('HTTP/1.0 200 OK\r\n\r\nfine'),
    outcome: delivered({ warning: 'timeout', answer: Buffer.from('fine') }),
    byMs: bodyMs
  }
]
