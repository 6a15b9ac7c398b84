import fc from 'fast-check'
import t from 'tap'
import { api, inject, listening, order } from './fake.ts'
import { talk } from './socket.ts'

const text = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.string(),
  fc.constantFrom('__proto__', 'constructor', '\u0000', '\ud800', '../..', '%00', '%zz')
)
const member = fc.constantFrom(
  'taskNo',
  'messageCode',
  'sceneType',
  'messageBody',
  'deliverStartTime',
  'delay',
  'deliverBefore',
  'needCallback',
  'retryTimes',
  'extend',
  'downstream',
  'result',
  'reason',
  'data',
  'force',
  'tasks'
)
const value = fc.oneof(
  fc.jsonValue({ maxDepth: 4 }),
  text,
  fc.constantFrom('order.paid', 'warehouse', 'HANDLED', '2026-02-30T00:00:00Z', 1e308, -1)
)
const envelope = fc.dictionary(
  fc.oneof({ weight: 4, arbitrary: member }, { weight: 1, arbitrary: text }),
  value,
  { maxKeys: 8 }
)

// A URL cannot contain lone surrogates.
const wellFormed = (one: string) => Buffer.from(one).toString()

t.test('I43: no body makes any route answer 5xx', async t => {
  const { app, bugs } = await api(t)
  const urls = ['/tasks', '/tasks/batch', '/callback', '/tasks/one/redeliver', '/downstreams/warehouse/pause']
  await inject(app, '/tasks', { ...order, taskNo: 'one' })
  const bodies = fc.oneof(
    envelope.map(one => JSON.stringify({ ...order, ...one })),
    envelope.map(one => JSON.stringify(one)),
    fc.array(envelope, { maxLength: 5 }).map(tasks => JSON.stringify({ tasks })),
    fc.json(),
    text,
    fc.uint8Array({ maxLength: 200 }).map(bytes => Buffer.from(bytes))
  )
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...urls), bodies, async (url, body) => {
      const answer = await inject(app, url, body, { 'ackbox-callback-token': 'good' })
      if (answer.statusCode >= 400) JSON.parse(answer.body)
      return answer.statusCode < 500 && bugs.length === 0
    }),
    { numRuns: 1_500 }
  )
  t.equal((Object.prototype as { polluted?: unknown }).polluted, undefined)
})

t.test('I43: no path, query or header makes any route answer 5xx', async t => {
  const { app, bugs } = await api(t)
  const paths = fc.oneof(
    fc
      .tuple(
        fc.constantFrom(
          '/tasks',
          '/tasks/',
          '/deliveries',
          '/alarms',
          '/downstreams/',
          '/docs/',
          '/handlers'
        ),
        text,
        text
      )
      .map(
        ([path, part, query]) =>
          `${path}${encodeURIComponent(wellFormed(part))}?${encodeURIComponent(wellFormed(query))}=1`
      ),
    fc
      .dictionary(
        fc.constantFrom('limit', 'from', 'to', 'cursor', 'status', 'wait', 'timeout', 'messageCode'),
        text,
        { maxKeys: 4 }
      )
      .map(
        query =>
          `/tasks?${Object.entries(query)
            .map(([name, one]) => `${name}=${encodeURIComponent(wellFormed(one))}`)
            .join('&')}`
      )
  )
  const headers = fc.dictionary(
    fc.constantFrom(
      'accept',
      'authorization',
      'content-type',
      'traceparent',
      'x-forwarded-for',
      'range',
      'if-none-match',
      'ackbox-callback-token'
    ),
    fc.string({ maxLength: 50 }).map(one => one.replace(/[^\x20-\x7e]/g, ''))
  )
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom('GET', 'POST', 'PUT', 'DELETE', 'HEAD', 'OPTIONS', 'PATCH'),
      paths,
      headers,
      async (method, url, sent) => {
        const answer = await app.inject({ method: method as 'GET', url, headers: sent })
        return answer.statusCode < 500 && bugs.length === 0
      }
    ),
    { numRuns: 1_500 }
  )
  t.pass()
})

t.test('I43: no bytes on a connection end the process, and what is answered is below 500', async t => {
  const { port, origin } = await listening(t)
  const line = fc.tuple(
    fc.constantFrom('GET', 'POST', 'FOO', 'CONNECT', ''),
    fc.constantFrom('/tasks', '*', 'http://x/tasks', '//', 'tasks', '/%'),
    fc.constantFrom('HTTP/1.1', 'HTTP/1.0', 'HTTP/2.0', 'HTTP/9', '')
  )
  const more = fc.array(
    fc.constantFrom(
      'Host: ackbox.test',
      'Host:',
      'Content-Length: 5',
      'Content-Length: x',
      'Transfer-Encoding: chunked',
      'Transfer-Encoding: gzip',
      'Upgrade: websocket',
      'Connection: upgrade',
      'Content-Type: application/json',
      ': x',
      'a b: c',
      'Expect: 100-continue'
    ),
    { maxLength: 5 }
  )
  let answered = 0
  await fc.assert(
    fc.asyncProperty(
      line,
      more,
      fc.constantFrom('', '{}', '5\r\nhello\r\n0\r\n\r\n', '\0'),
      async (first, headers, body) => {
        const bytes = [first.join(' '), ...headers, 'Connection: close', '', body].join('\r\n')
        const { all } = await talk(port, bytes, { last: true })
        answered += all.length
        return all.every(answer => answer.status < 500)
      }
    ),
    { numRuns: 200 }
  )
  t.ok(answered > 100, `of 200 it answered ${answered}`)
  t.equal((await fetch(`${origin}/healthz`)).status, 200)
})
