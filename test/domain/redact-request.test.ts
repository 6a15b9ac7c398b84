import t from 'tap'
import { answerLimit, redact, redactRequestSecrets, shownRequest } from '../../src/domain/redact.ts'
import type { Outcome } from '../../src/domain/types.ts'

const secret = 'k/1+"quoted"-8f3a'
const failed = (answer: string): Outcome => ({
  kind: 'failed',
  reason: `http_500 ${secret}`,
  status: 500,
  answer: Buffer.from(answer),
  headers: [['x-echo', `Bearer ${secret}`]]
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
    const shown = redactRequestSecrets(failed(echo), request)
    const text = JSON.stringify({ ...shown, answer: Buffer.from(shown.answer ?? '').toString() })
    t.notMatch(text, /8f3a/, echo)
    t.match(text, /\[masked\]/)
  }
  t.match(
    Buffer.from(redactRequestSecrets(failed(echoes[3] ?? ''), request).answer ?? '').toString(),
    /text\/html/
  )
  t.end()
})

t.test('attachments of an RPC count as well, and what is no secret stays', t => {
  t.match(redactRequestSecrets({ ...failed(''), warning: secret }, { attachments: { token: secret } }), {
    warning: '[masked]'
  })
  const binary = Uint8Array.from({ length: 256 }, (_, i) => i)
  const outcome: Outcome = { kind: 'delivered', status: 200, answer: binary }
  t.same(redactRequestSecrets(outcome, { headers: { 'x-api-key': secret } }).answer, binary)
  for (const request of [
    undefined,
    null,
    {},
    { headers: null },
    { headers: { cookie: 'short' } },
    { headers: { a: secret } }
  ])
    t.equal(redactRequestSecrets(outcome, request), outcome)
  t.end()
})

t.test('half a surrogate pair in a login is no reason to lose an outcome', t => {
  t.match(redactRequestSecrets(failed(''), { headers: { 'x-author': 'Zo\u00eb Miller \ud83d' } }), {
    kind: 'failed',
    status: 500
  })
  t.end()
})

t.test('a login in the query counts as well', t => {
  const shown = (echo: string, url: unknown) =>
    Buffer.from(redactRequestSecrets(failed(echo), { url }).answer ?? '').toString()
  const url = 'https://hooks.example/send?access_token=s3cr3t-0f-the-hook&to=42'
  t.equal(shown('no such token: s3cr3t-0f-the-hook', url), 'no such token: [masked]')
  t.equal(
    shown('GET /send?to=42&access_token=s3cr3t-0f-the-hook', new URL(url)),
    'GET /send?to=42&access_token=[masked]'
  )
  t.equal(shown('to 42', url), 'to 42')
  t.end()
})

t.test(
  'a login that comes back in UTF-16, or in UTF-8 beyond ASCII, is hidden, and no byte beside it changes',
  t => {
    const password = 's3cr\u00e9t-\u4e2d-0f-the-hook'
    const encodings: [name: string, encode: (text: string) => Buffer][] = [
      ['UTF-8', text => Buffer.from(text)],
      ['UTF-16 LE', text => Buffer.from(text, 'utf16le')],
      ['UTF-16 BE', text => Buffer.from(text, 'utf16le').swap16()]
    ]
    for (const login of [secret, password]) {
      const request = { headers: { 'x-api-key': login } }
      for (const [name, encode] of encodings) {
        for (const [before, after] of [
          [encode('\uFEFFkey=\u00e9'), encode('.')],
          [Buffer.from('odd'), Buffer.from([0, 0xff])]
        ] as const) {
          const shown = (bytes: Buffer) =>
            Buffer.from(
              redactRequestSecrets({ ...failed(''), answer: bytes }, request).answer ?? ''
            ).toString('hex')
          const expected = Buffer.concat([before, encode('[masked]'), after]).toString('hex')
          t.equal(shown(Buffer.concat([before, encode(login), after])), expected, `${name}, ${login}`)
          const last = Buffer.concat([before, encode(login)])
          t.equal(
            shown(last),
            Buffer.concat([before, encode('[masked]')]).toString('hex'),
            `${name}, at the end`
          )
          // At the limit of an answer the beginning of the secret goes, whatever its length.
          for (let length = 1; length < encode(login).length; length++) {
            const part = Buffer.concat([Buffer.alloc(answerLimit, '.'), encode(login).subarray(0, length)])
            t.match(shown(part.subarray(-answerLimit)), /^(?:2e)+$/, `${name}, ${length} bytes of it`)
          }
        }
      }
    }
    t.end()
  }
)

t.test('a guess of the beginning of a login is shown as any other text', t => {
  const login = 'Bearer s3cr3t-0f-the-hook'
  const request = { url: 'https://a/b', headers: { authorization: login } }
  const wrong = (length: number) => login.slice(0, length - 1) + '~'
  const kept = (outcome: Outcome) => {
    const { answer, ...rest } = redactRequestSecrets(outcome, request)
    return { ...rest, answer: Buffer.from(answer ?? '').toString() }
  }
  for (let length = 8; length < login.length; length++) {
    const guess = login.slice(0, length)
    const url = `https://a/b?order=${encodeURIComponent(guess)}`
    t.equal(shownRequest({ ...request, url }, [login]).url, url)
    const echoed: Outcome = {
      kind: 'failed',
      reason: `no order ${guess}`,
      answer: Buffer.from(`no order ${guess}`),
      headers: [['location', guess]]
    }
    t.same(kept(echoed), { ...echoed, answer: `no order ${guess}` }, 'what is whole stays as it is')
    // What was cut loses as much whether the guess is right or not.
    const cut = (end: string): Outcome => ({
      kind: 'failed',
      reason: `exception: ${'no such order '.repeat(20)}${end}`.slice(-200),
      warning: 'connection_reset',
      answer: Buffer.from(end.padStart(answerLimit, 'x'))
    })
    t.same(kept(cut(guess)), kept(cut(wrong(length))))
    t.notMatch(JSON.stringify(kept(cut(guess))), /s3/)
    t.match(kept(cut(guess)), { reason: /no such order .*\.\.\.$/, answer: /^x{16000}/ })
  }
  t.end()
})

t.test('the end of a cut reason goes, as far as it may be a part of a login of several words', t => {
  for (const password of ['correct horse battery staple', 'correct horsebatterystaple']) {
    const reason = `${'x '.repeat(100)}${password.slice(0, 17)}`
    const shown = redactRequestSecrets({ kind: 'failed', reason }, { headers: { 'x-password': password } })
    t.match(shown, { reason: /^[x ]+\.\.\.$/ })
  }
  t.end()
})

t.test('a key for access is a credential in whatever word it ends, and a key that only orders is not', t => {
  const secret = 's3cr3t-0f-the-hook'
  const shown = (name: string) =>
    redactRequestSecrets({ kind: 'failed', reason: `it was ${secret}` }, { headers: { [name]: secret } })
  for (const name of [
    'Ocp-Apim-Subscription-Key',
    'x-functions-key',
    'X-Access-Key',
    'accessKey',
    'X-Signature',
    'x-ca-sign',
    'sign',
    'x-pwd'
  ])
    t.match(shown(name), { reason: 'it was [masked]' }, name)
  for (const name of [
    'idempotency-key',
    'Idempotency-Key',
    'x-ordering-key',
    'partitionKey',
    'x-monkey-id',
    'x-design'
  ])
    t.match(shown(name), { reason: `it was ${secret}` }, name)
  for (const name of ['subscription-key', 'sign']) {
    const url = `https://a/?${name}=${secret}`
    t.match(redactRequestSecrets({ kind: 'failed', reason: secret }, { url }), { reason: '[masked]' }, name)
    t.match(shownRequest({ url }, []), { url: `https://a/?${name}=[masked]` }, name)
  }
  t.match(shownRequest({ url: 'https://a/?design=blue-and-white' }, []), { url: /=blue-and-white$/ })
  t.end()
})

t.test('300 kB made to be slow are masked at once', t => {
  const request = { headers: { authorization: 'Bearer s3cr3t-0f-the-hook' } }
  for (const unit of [
    '?auth',
    '&auth',
    '?key',
    '&api_key?api-key',
    '?a&token&',
    '?sigsignature',
    '?tokentoken',
    '? ',
    'v1,',
    'v1,aaaaaaaa',
    'v1%2C%2B',
    'v1.aaaaaaaa.1.a.1.',
    'ack_',
    '-ack_',
    '%2back_',
    'a\0',
    'Bearer ',
    'a '
  ]) {
    const text = unit.repeat(Math.ceil(300_000 / unit.length))
    const { url } = shownRequest({ ...request, url: text, body: { [text]: text } }, ['s3cr3t-0f-a-setting'])
    t.ok(typeof url === 'string' && url.length > 0, unit)
    t.ok(redact(text).length > 0)
    t.ok(redactRequestSecrets(failed(text), { headers: { 'x-token': text }, url: text }).answer)
  }
  t.match(shownRequest({ url: 'https://a/b?x?my_token=1?2&key=3&keys=4&n=5#c' }, []), {
    url: 'https://a/b?x?my_token=[masked]&key=[masked]&keys=4&n=5#c'
  })
  t.end()
})
