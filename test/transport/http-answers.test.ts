// What HTTP allows a server to send: RFC 9110 (semantics) and RFC 9112 (HTTP/1.1), row by row.
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from 'node:zlib'
import t from 'tap'
import type { Outcome } from '../../src/domain/types.ts'
import { monitor } from '../../fuzz/monitor.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { contentDecoder } from '../../src/transport/http/content-coding.ts'
import { httpTransport } from '../../src/transport/http/http.ts'
import type { Accepted } from '../../src/transport/types.ts'
import { answer, rawServer } from './raw-server.ts'
import { sendContext } from './send-context.ts'

const open = guard({ allow: undefined, embedded: true, deny: [] })
const good = '{"code":0}'
const accepted: Accepted = ({ json }) => (json as { code?: unknown } | undefined)?.code === 0

const head = (status: string, ...headers: string[]): string =>
  `HTTP/1.1 ${[status, ...headers].join('\r\n')}\r\n\r\n`
const ok = answer(200, good)
const coded = (coding: string | string[], body: Uint8Array): Buffer =>
  Buffer.concat([
    Buffer.from(
      head(
        '200 OK',
        ...[coding].flat().map(one => `content-encoding: ${one}`),
        `content-length: ${body.length}`
      )
    ),
    body
  ])
const brotli = (text: string | Uint8Array): Buffer => brotliCompressSync(text)
const bomb = 'x'.repeat(50_000_000)
const random = (length: number): Buffer => {
  const bytes = Buffer.alloc(length)
  for (let i = 0, state = 1; i < length; i++) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    bytes[i] = state >>> 24
  }
  return bytes
}

interface Row {
  what: string
  /** The bytes of the answer. The parts are written one after the other. */
  sent: string | Uint8Array | (string | Uint8Array)[]
  expected: Record<string, unknown>
  /** False: the server ends the connection, so that no answer can come behind this one. */
  lasts?: false
  judge?: Accepted | null
}

const delivered = { kind: 'delivered' }
const failed = (reason: string | RegExp) => ({ kind: 'failed', reason })

const rows: Row[] = [
  // Informational answers: RFC 9110, section 15.2
  { what: 'a 100 that nobody asked for', sent: head('100 Continue') + ok, expected: delivered },
  { what: 'a 100 in a packet of its own', sent: [head('100 Continue'), ok], expected: delivered },
  {
    what: 'a 100 with headers',
    sent: head('100 Continue', 'x-a: 1', 'content-length: 0') + ok,
    expected: delivered
  },
  {
    what: 'a 102, two 103 and a 100',
    sent: [
      head('102 Processing'),
      head('103 Early Hints', 'link: </x>').repeat(2) + head('100 Continue'),
      ok
    ],
    expected: delivered
  },
  { what: 'a 1xx that nobody knows', sent: head('199 Whatever') + ok, expected: delivered },
  {
    what: '1xx without an end',
    sent: head('103 Early Hints').repeat(12),
    expected: failed('protocol: endless 1xx'),
    lasts: false
  },
  { what: 'a 100 and no answer', sent: head('100 Continue'), expected: failed('timeout'), lasts: false },
  {
    what: 'a 101 that nobody asked for',
    sent: head('101 Switching Protocols', 'connection: upgrade', 'upgrade: h2c'),
    expected: failed('protocol: 101'),
    lasts: false
  },
  {
    what: 'a 101 without an upgrade',
    sent: head('101 Switching Protocols') + ok,
    expected: failed('protocol: 101'),
    lasts: false
  },

  // Content codings: RFC 9110, section 8.4
  {
    what: 'gzip',
    sent: coded('gzip', gzipSync(good)),
    expected: { ...delivered, answer: Buffer.from(good) }
  },
  { what: 'x-gzip, in upper case', sent: coded('X-GZIP', gzipSync(good)), expected: delivered },
  {
    what: 'deflate',
    sent: coded('deflate', deflateSync(good)),
    expected: { ...delivered, answer: Buffer.from(good) }
  },
  {
    what: 'deflate without the header of zlib',
    sent: coded('deflate', deflateRawSync(good)),
    expected: delivered
  },
  { what: 'br', sent: coded('br', brotli(good)), expected: { ...delivered, answer: Buffer.from(good) } },
  { what: 'identity', sent: coded('identity', Buffer.from(good)), expected: delivered },
  { what: 'an empty coding', sent: coded('', Buffer.from(good)), expected: delivered },
  {
    what: 'two codings',
    sent: coded('gzip, br', brotli(gzipSync(good))),
    expected: { ...delivered, answer: Buffer.from(good) }
  },
  {
    what: 'two codings in two headers',
    sent: coded(['deflate', 'gzip'], gzipSync(deflateSync(good))),
    expected: delivered
  },
  {
    what: 'three codings',
    sent: coded('gzip,gzip,gzip', gzipSync(good)),
    expected: failed('content_coding: more than two')
  },
  {
    what: 'a coding that nobody knows',
    sent: coded('zstd', Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0xff])),
    expected: failed('content_coding: zstd')
  },
  {
    what: 'the same, for who looks at the status only',
    sent: coded('zstd', Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0xff])),
    expected: { ...delivered, warning: 'content_coding: zstd' },
    judge: null
  },
  {
    what: 'a text that claims to be gzip',
    sent: coded('gzip', Buffer.from(good)),
    expected: { ...delivered, answer: Buffer.from(good) }
  },
  { what: 'a text that claims to be br', sent: coded('br', Buffer.from(good)), expected: delivered },
  {
    what: 'gzip that breaks off',
    sent: coded('gzip', gzipSync(good).subarray(0, -8)),
    expected: { ...failed('content_coding: gzip'), answer: Buffer.from(good) }
  },
  {
    what: 'gzip without a word of it',
    sent: answer(200, '', { 'content-encoding': 'gzip' }),
    expected: delivered,
    judge: null
  },
  {
    what: 'gzip in chunks',
    sent: [
      head('200 OK', 'content-encoding: gzip', 'transfer-encoding: chunked'),
      '1e\r\n',
      gzipSync(good).subarray(0, 30),
      '\r\n0\r\n\r\n'
    ],
    expected: { ...delivered, answer: Buffer.from(good) }
  },
  { what: 'a bomb in gzip', sent: coded('gzip', gzipSync(bomb)), expected: failed('answer_too_long') },
  {
    what: 'a bomb in br',
    sent: coded('br', brotli(bomb)),
    expected: failed('answer_too_long')
  },
  {
    what: 'a bomb in a bomb',
    sent: coded('gzip, gzip', gzipSync(gzipSync(bomb))),
    expected: failed('answer_too_long')
  },
  {
    what: 'noise that claims to be br',
    sent: coded('br', random(60_000)),
    expected: failed('content_coding: br')
  },
  {
    what: 'HANDLED beside a coding',
    sent: Buffer.from(
      coded('br', brotli(good)).toString('latin1').replace('\r\n', '\r\nackbox-result: HANDLED\r\n'),
      'latin1'
    ),
    expected: { ...delivered, handled: true }
  },

  // Field lines: RFC 9112, section 5
  {
    what: 'spaces and tabs around a value',
    sent: answer(200, good, { 'ackbox-result': ' \t HANDLED \t ' }),
    expected: {
      ...delivered,
      handled: true,
      headers: [
        ['content-length', '10'],
        ['ackbox-result', 'HANDLED']
      ]
    }
  },
  {
    what: 'no space before a value',
    sent: head('200 OK', 'ackbox-result:HANDLED', 'content-length:10') + good,
    expected: { ...delivered, handled: true }
  },
  {
    what: 'another case of the name',
    sent: answer(200, good, { 'ACKBOX-Result': 'HANDLED' }),
    expected: { ...delivered, handled: true }
  },
  {
    what: 'spaces around retry-after',
    sent: answer(503, '', { 'retry-after': '  7\t' }),
    expected: { kind: 'failed', retryAfterMs: 7_000 }
  },
  {
    what: 'a continued line',
    sent:
      head('200 OK', 'x-a: one', '\t two', ' three', 'ackbox-result: HANDLED', 'content-length: 10') + good,
    expected: {
      ...delivered,
      handled: true,
      headers: [
        ['x-a', 'one\t two three'],
        ['ackbox-result', 'HANDLED'],
        ['content-length', '10']
      ]
    }
  },
  {
    what: 'a value that begins on the next line',
    sent: head('200 OK', 'ackbox-result:', ' HANDLED', 'content-length: 10') + good,
    expected: { ...delivered, handled: true }
  },
  { what: 'a continued length', sent: head('200 OK', 'content-length:', ' 10') + good, expected: delivered },
  { what: 'an empty value', sent: answer(200, good, { 'x-a': '' }), expected: delivered },
  {
    what: 'a repeated header',
    sent: head('200 OK', 'x-a: 1', 'X-A: 2', 'content-length: 10') + good,
    expected: delivered,
    judge: ({ headers }) => headers['x-a'] === '1, 2'
  },
  { what: 'bytes above ASCII', sent: answer(200, good, { 'x-a': 'caf\u00e9' }), expected: delivered },
  {
    what: 'a NUL in a value',
    sent: answer(200, good, { 'x-a': 'a\0b' }),
    expected: failed(/^protocol: /),
    lasts: false
  },
  {
    what: 'a bell in a value',
    sent: answer(200, good, { 'x-a': 'a\u0007b' }),
    expected: failed(/^protocol: /),
    lasts: false
  },
  {
    what: 'one header of 16 KiB and more',
    sent: answer(200, good, { 'x-a': 'x'.repeat(16_400) }),
    expected: failed('headers_too_long'),
    lasts: false
  },
  {
    what: 'no reason phrase',
    sent: `HTTP/1.1 200\r\ncontent-length: 10\r\n\r\n${good}`,
    expected: delivered
  },

  // Lengths: RFC 9112, section 6
  { what: '200 without content', sent: answer(200), expected: delivered, judge: null },
  { what: '204', sent: head('204 No Content'), expected: delivered, judge: null },
  {
    what: '204 with a length of 0',
    sent: head('204 No Content', 'content-length: 0'),
    expected: delivered,
    judge: null
  },
  {
    what: '204 with the length of a body that it has not',
    sent: head('204 No Content', 'content-length: 5'),
    expected: { ...delivered, warning: undefined },
    judge: null
  },
  {
    what: '204 in chunks',
    sent: head('204 No Content', 'transfer-encoding: chunked') + '0\r\n\r\n',
    expected: delivered,
    // Its chunk is no part of it, and is not what the next answer may begin with.
    lasts: false,
    judge: null
  },
  {
    what: '205 with a length of 0',
    sent: head('205 Reset Content', 'content-length: 0'),
    expected: delivered,
    judge: null
  },
  {
    what: '205 in chunks',
    sent: head('205 Reset Content', 'transfer-encoding: chunked') + '0\r\n\r\n',
    expected: delivered,
    judge: null
  },
  {
    what: '304 with the length of what it stands for',
    sent: head('304 Not Modified', 'content-length: 500'),
    expected: failed('http_304')
  },
  { what: '304', sent: head('304 Not Modified', 'etag: "a"'), expected: failed('http_304') },
  {
    what: 'chunks without content',
    sent: head('200 OK', 'transfer-encoding: chunked') + '0\r\n\r\n',
    expected: delivered,
    judge: null
  },
  {
    what: 'chunks with extensions and a trailer',
    sent:
      head('200 OK', 'Transfer-Encoding: Chunked') +
      'a;a=b;c="d"\r\n{"code":0}\r\n0\r\nx-sum: 1\r\nackbox-result: HANDLED\r\n\r\n',
    expected: { ...delivered, handled: undefined }
  },
  {
    what: 'sizes of chunks that are filled up with spaces',
    sent: head('200 OK', 'transfer-encoding: chunked ') + `a   \r\n${good}\r\n0   \r\n\r\n`,
    expected: delivered
  },
  {
    what: 'a space behind a length',
    sent: head('200 OK', 'content-length: 10 ') + good,
    expected: delivered
  },
  // The parser takes no tab there. Nobody is known to send one.
  {
    what: 'a tab behind a length',
    sent: head('200 OK', 'content-length: 10\t') + good,
    expected: failed(/^protocol: /),
    lasts: false
  },
  {
    what: 'leading zeros of a length',
    sent: head('200 OK', 'content-length: 0010') + good,
    expected: delivered
  },
  {
    what: 'two lengths',
    sent: head('200 OK', 'content-length: 10', 'content-length: 11') + good,
    expected: failed(/^protocol: /),
    lasts: false
  },
  {
    what: 'a negative length',
    sent: head('200 OK', 'content-length: -1') + good,
    expected: failed(/^protocol: /),
    lasts: false
  },
  {
    what: 'a length and chunks',
    sent: head('200 OK', 'content-length: 3', 'transfer-encoding: chunked') + '0\r\n\r\n',
    expected: failed(/^protocol: /),
    lasts: false
  },

  // Types: RFC 9110, section 8.3. JSON is UTF-8, whatever the type says.
  { what: 'no type', sent: ok, expected: delivered },
  {
    what: 'text/html with JSON in it',
    sent: answer(200, good, { 'content-type': 'text/html' }),
    expected: delivered
  },
  {
    what: 'a charset in quotes',
    sent: answer(200, good, { 'content-type': 'application/json; charset="UTF-8"' }),
    expected: delivered
  },
  {
    what: 'another charset',
    sent: answer(200, good, { 'content-type': 'application/json;charset=gbk' }),
    expected: delivered
  },
  { what: 'a byte order mark', sent: answer(200, `\uFEFF${good}`), expected: delivered },
  { what: 'a type that is none', sent: answer(200, good, { 'content-type': ';;' }), expected: delivered },

  // Dates: RFC 9110, section 5.6.7
  ...['Fri, 20 Nov 2026 10:02:00 GMT', 'Friday, 20-Nov-26 10:02:00 GMT', 'Fri Nov 20 10:02:00 2026'].map(
    (date): Row => ({
      what: `retry-after: ${date}`,
      sent: answer(503, '', { date: 'Fri, 20 Nov 2026 10:00:00 GMT', 'retry-after': date }),
      expected: { kind: 'failed', retryAfterMs: 120_000 }
    })
  ),
  {
    what: 'retry-after: two days',
    sent: answer(503, '', { 'retry-after': '172800' }),
    expected: { kind: 'failed', retryAfterMs: 3_600_000 }
  }
]

for (const pipelining of [1, 4]) {
  t.test(`what HTTP allows a server to send is read, ${pipelining} requests on a connection`, async t => {
    for (const { what, sent, expected, lasts, judge = accepted } of rows) {
      let written: Promise<unknown> = Promise.resolve()
      const server = await rawServer(t, (socket, _request, nth) => {
        const parts = nth === 1 ? [sent].flat() : [answer(200, good, { 'x-next': '1' })]
        for (const part of parts)
          written = written.then(() => {
            socket.write(part)
            return new Promise(resolve => setImmediate(resolve))
          })
      })
      const http = httpTransport({ guard: open })
      const context = {
        ...sendContext({ timeoutMs: what.includes('no answer') ? 300 : 5_000 }),
        limit: { concurrency: pipelining, pipelining }
      }
      const send = (verdict?: Accepted): Promise<Outcome> =>
        http.send({ url: server.url, body: '{}' }, context, verdict)
      const first = send(judge ?? undefined)
      // The answer behind it begins where this one ends.
      const next = pipelining > 1 && lasts !== false ? send(accepted) : undefined
      const outcome = await first
      t.match(outcome, expected, what)
      t.match(await (next ?? send(accepted)), delivered, `the next answer after ${what}`)
      await http.close()
      await server.close()
    }
  })
}

t.test('no coding is asked for, unless the handler asks', async t => {
  const server = await rawServer(t, socket => socket.write(ok))
  const http = httpTransport({ guard: open })
  t.teardown(() => http.close())
  await http.send({ url: server.url }, sendContext())
  await http.send({ url: server.url, headers: { 'Accept-Encoding': 'gzip' } }, sendContext())
  t.same(
    server.received.map(({ headers }) => headers['accept-encoding']),
    ['identity', 'gzip']
  )
})

t.test('a bomb costs neither memory nor turns of the event loop', async t => {
  const bombs = [
    coded('br', brotli(bomb)),
    coded('gzip', gzipSync(bomb)),
    coded('gzip, br', brotli(gzipSync(bomb)))
  ]
  const server = await rawServer(t, (socket, _request, nth) => socket.write(bombs[nth % bombs.length] ?? ''))
  const http = httpTransport({ guard: open })
  t.teardown(() => http.close())
  t.match(await http.send({ url: server.url }, sendContext(), accepted), failed('answer_too_long'))
  const watch = monitor()
  const before = process.memoryUsage().rss
  let peak = before
  const look = setInterval(() => (peak = Math.max(peak, process.memoryUsage().rss)), 10)
  const sends = Array.from({ length: 40 }, () => http.send({ url: server.url }, sendContext(), accepted))
  // Those that wait for the others go on without their bodies.
  for (const outcome of await Promise.all(sends)) t.match(outcome, failed(/^(?:answer_too_long|timeout)$/))
  clearInterval(look)
  t.ok(peak - before < 128e6, `${peak - before} bytes`)
  const blockMs = watch.longestBlockMs()
  t.ok(blockMs < 100, `${blockMs} ms of CPU time`)
})

t.test('the bombs of one downstream keep no answer of another waiting', async t => {
  const decoder = contentDecoder(65_536)
  const sent = brotli(bomb)
  const isWanted = (): boolean => true
  let decoded = 0
  const bombs = Array.from({ length: 20 }, async () => {
    const { broken } = await decoder(sent, ['br'], { downstream: 'bombs', isWanted })
    decoded++
    return broken
  })
  const { body } = await decoder(gzipSync(good), ['gzip'], { downstream: 'warehouse', isWanted })
  t.equal(body.toString(), good)
  t.ok(decoded < bombs.length, `${decoded} bombs were decoded before it`)
  t.same(new Set(await Promise.all(bombs)), new Set(['answer_too_long']))
})
