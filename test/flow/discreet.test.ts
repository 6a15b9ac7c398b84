import t from 'tap'
import { discreet } from '../../src/flow/discreet.ts'
import type { Outcome } from '../../src/task/task.ts'

const secret = 'k/1+"quoted"-8f3a'
const failed = (answer: string): Outcome => ({
  kind: 'failed',
  reason: `http_500 ${secret}`,
  status: 500,
  answer: Buffer.from(answer),
  headers: [['x-echo', `Bearer ${secret}`]],
  warning: secret
})

t.test('what a downstream echoes of its own login is not kept, however it writes it', t => {
  const request = { headers: { Authorization: `Bearer ${secret}`, accept: 'text/html' } }
  const echoes = [
    JSON.stringify({ authorization: `Bearer ${secret}` }),
    JSON.stringify({ key: secret }).replaceAll('/', '\\/'),
    `<td>${secret}</td>`,
    `key=${encodeURIComponent(secret)}&a=text/html`
  ]
  for (const echo of echoes) {
    const shown = discreet(failed(echo), request)
    const text = JSON.stringify({ ...shown, answer: Buffer.from(shown.answer ?? '').toString() })
    t.notMatch(text, /8f3a/, echo)
    t.match(text, /\[masked\]/)
  }
  t.match(Buffer.from(discreet(failed(echoes[3] ?? ''), request).answer ?? '').toString(), /text\/html/)
  t.end()
})

t.test('attachments of an RPC count as well, and what is no secret stays', t => {
  t.match(discreet(failed(''), { attachments: { token: secret } }), { warning: '[masked]' })
  const binary = Uint8Array.from({ length: 256 }, (_, i) => i)
  const outcome: Outcome = { kind: 'delivered', status: 200, answer: binary }
  t.same(discreet(outcome, { headers: { 'x-api-key': secret } }).answer, binary)
  for (const request of [
    undefined,
    null,
    {},
    { headers: null },
    { headers: { cookie: 'short' } },
    { headers: { a: secret } }
  ])
    t.equal(discreet(outcome, request), outcome)
  t.end()
})

t.test('half a surrogate pair in a login is no reason to lose an outcome', t => {
  t.match(discreet(failed(''), { headers: { 'x-author': 'Zo\u00eb Miller \ud83d' } }), {
    kind: 'failed',
    status: 500
  })
  t.end()
})

t.test('a login in the query counts as well, and so does the beginning of one that was cut off', t => {
  const shown = (echo: string, url: unknown) =>
    Buffer.from(discreet(failed(echo), { url }).answer ?? '').toString()
  const url = 'https://hooks.example/send?access_token=s3cr3t-0f-the-hook&to=42'
  t.equal(shown('no such token: s3cr3t-0f-the-hook', url), 'no such token: [masked]')
  t.equal(
    shown('GET /send?to=42&access_token=s3cr3t-0f-the', new URL(url)),
    'GET /send?to=42&access_token=[masked]'
  )
  t.equal(shown('to 42', url), 'to 42')
  t.end()
})
