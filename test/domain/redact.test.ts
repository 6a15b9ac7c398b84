import t from 'tap'
import { redact, redactBytes } from '../../src/domain/redact.ts'
import { tokens } from '../../src/domain/tokens.ts'
import { signer } from '../../src/transport/sign.ts'
import { workedMs } from '../support/stopwatch.ts'

const token = tokens({ current: 'a secret' }).issue({
  taskNo: 'order-1',
  downstream: 'warehouse',
  attempt: 12,
  at: new Date('2026-11-20T10:00:00Z')
})
const mac = token.slice(token.lastIndexOf('.') + 1)
const sign = signer([`whsec_${Buffer.alloc(32, 7).toString('base64')}`])

/** A signature whose base64 has a plus and a slash, which encodings change. */
function signature(): string {
  for (let n = 0; ; n++) {
    const made = sign('msg', 1_700_000_000 + n, '{}')
    if (/\+.*\//.test(made)) return made
  }
}

t.test('an echoed callback token loses its proof and keeps what tells whose it was', async t => {
  const echoes: [string, string][] = [
    ['an echo in JSON', JSON.stringify({ headers: { 'ackbox-callback-token': token } })],
    ['one in HTML', `<td>${token}</td>`],
    ['two in a row', `${token} ${token}`],
    ['one cut off by the limit of what is kept', `x ${token}`.slice(0, -5)]
  ]
  for (const [story, echo] of echoes) {
    const shown = redact(echo)
    t.notMatch(shown, mac.slice(0, 10), story)
    t.match(shown, '.warehouse.12.[masked]', story)
    t.notMatch(Buffer.from(redactBytes(Buffer.from(echo))).toString(), mac.slice(0, 10), `${story}, as bytes`)
  }
})

t.test('an API key loses all but its kind', async t => {
  const key = 'ack_C6q8miC2rFt8zznr-FQ8BEMOUgEMHKdKnNtIsXbtNw8'
  t.equal(redact(`{"authorization":"Bearer ${key}"}`), '{"authorization":"Bearer ack_[masked]"}')
  t.equal(redact('back_to_the_one_before_this ack_no'), 'back_to_the_one_before_this ack_no')
})

t.test('an echoed signature is hidden however the echo escapes it', async t => {
  const made = signature()
  const secret = made.slice(3)
  for (const echo of [
    made,
    `${made} ${made}`,
    made.replaceAll('/', '\\/'),
    made.replace('=', '\\u003d'),
    encodeURIComponent(made),
    encodeURIComponent(made).toLowerCase()
  ]) {
    const shown = redact(`{"sig":"${echo}"}`)
    t.notMatch(shown.toLowerCase(), secret.slice(0, 12).toLowerCase(), echo)
    t.match(shown, /^\{"sig":"(v1,\[masked\] ?)+"\}$/)
  }
})

const key = 'ack_C6q8miC2rFt8zznr-FQ8BEMOUgEMHKdKnNtIsXbtNw8'
const utf16: [name: string, encode: (text: string) => Buffer][] = [
  ['little-endian', text => Buffer.from(text, 'utf16le')],
  ['big-endian', text => Buffer.from(text, 'utf16le').swap16()]
]

for (const [name, encode] of utf16) {
  t.test(
    `proofs and keys that come back in UTF-16, ${name}, are hidden, and not a byte beside them changes`,
    t => {
      for (const [secret, shown] of [
        [token, `${token.slice(0, token.lastIndexOf('.'))}.[masked]`],
        [signature(), 'v1,[masked]'],
        [key, 'ack_[masked]']
      ] as const) {
        const around: [before: Buffer, after: Buffer][] = [
          [Buffer.alloc(0), Buffer.alloc(0)],
          [encode('\uFEFF{"\u00e9\u4e2d": "'), encode('"}\r\n')],
          [Buffer.from('in ASCII: <'), Buffer.from('> and so on')],
          [Buffer.from([0, 0, 0xff, 0xd8]), Buffer.from([0xd8, 0, 0, 0])],
          [Buffer.from('odd'), encode(' \u{1f600} ')],
          [encode(`${key} `), Buffer.from(` ${key}`)]
        ]
        for (const [before, after] of around) {
          const bytes = Buffer.concat([before, encode(secret), after])
          const expected = Buffer.concat([redactBytes(before), encode(shown), redactBytes(after)])
          t.same(
            Buffer.from(redactBytes(bytes)).toString('hex'),
            expected.toString('hex'),
            before.toString('latin1')
          )
        }
        // The secret is cut off anywhere, also inside a character. Its rest must not be shown either.
        const whole = encode(secret)
        for (let cut = 1; cut < 24; cut++) {
          const left = Buffer.from(redactBytes(whole.subarray(0, -cut)))
            .toString('latin1')
            .replaceAll('\0', '')
          t.notMatch(left, secret.slice(-22, -14), `${cut} bytes are missing`)
        }
      }
      const none = encode('v1, v2 {"version":"v1.0.0-beta.1"} back_to_the_one ack_no \u4e2d')
      t.equal(redactBytes(none), none)
      t.equal(redact(encode(token).toString('latin1')).includes(mac.slice(0, 10)), false, 'in a text as well')
      t.end()
    }
  )
}

t.test(
  'what only looks a little like one, and bytes of no encoding at all, come out as they went in',
  async t => {
    for (const text of [
      '',
      'v1, v2',
      '/api/v1/orders',
      'v1.2.3',
      '{"version":"v1.0.0-beta.1"}',
      'v1,short',
      'whatever v1.abc'
    ])
      t.equal(redact(text), text)
    const bytes = Uint8Array.from({ length: 512 }, (_, i) => i % 256)
    t.equal(redactBytes(bytes), bytes)
    const mixed = Buffer.concat([bytes, Buffer.from(token), bytes])
    t.same(Buffer.from(redactBytes(mixed)).subarray(-512), Buffer.from(bytes))
  }
)

t.test('16 kB made to be slow are masked at once', async t => {
  for (const unit of [
    'v1,',
    'v1.',
    'v1,%2',
    'v1,aaaaaaaaaaaaaaaaaa ',
    'v1.aaaaaaaa.a.a.1.',
    'v1%2Cv1',
    'v\0' + '1\0.\0',
    '\0v\0' + '1\0,',
    'a\0',
    'a\0\0'
  ]) {
    t.ok(workedMs(() => redact(unit.repeat(16_384 / unit.length))) < 50, JSON.stringify(unit))
  }
})
