import t from 'tap'
import { masked, maskedBytes } from '../../src/task/mask.ts'
import { tokens } from '../../src/task/token.ts'
import { signer } from '../../src/transport/sign.ts'

const token = tokens({ current: 'a secret' }).issue({
  taskNo: 'order-1',
  downstream: 'warehouse',
  attempt: 12,
  at: new Date('2026-11-20T10:00:00Z')
})
const mac = token.slice(token.lastIndexOf('.') + 1)
const sign = signer([`whsec_${Buffer.alloc(32, 7).toString('base64')}`])

/** One whose base64 has what encodings change, a plus and a slash. */
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
    const shown = masked(echo)
    t.notMatch(shown, mac.slice(0, 10), story)
    t.match(shown, '.warehouse.12.[masked]', story)
    t.notMatch(Buffer.from(maskedBytes(Buffer.from(echo))).toString(), mac.slice(0, 10), `${story}, as bytes`)
  }
})

t.test('an API key loses all but its kind', async t => {
  const key = 'ack_C6q8miC2rFt8zznr-FQ8BEMOUgEMHKdKnNtIsXbtNw8'
  t.equal(masked(`{"authorization":"Bearer ${key}"}`), '{"authorization":"Bearer ack_[masked]"}')
  t.equal(masked('back_to_the_one_before_this ack_no'), 'back_to_the_one_before_this ack_no')
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
    const shown = masked(`{"sig":"${echo}"}`)
    t.notMatch(shown.toLowerCase(), secret.slice(0, 12).toLowerCase(), echo)
    t.match(shown, /^\{"sig":"(v1,\[masked\] ?)+"\}$/)
  }
})

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
      t.equal(masked(text), text)
    const bytes = Uint8Array.from({ length: 512 }, (_, i) => i % 256)
    t.equal(maskedBytes(bytes), bytes)
    const mixed = Buffer.concat([bytes, Buffer.from(token), bytes])
    t.same(Buffer.from(maskedBytes(mixed)).subarray(-512), Buffer.from(bytes))
  }
)

t.test('16 kB made to be slow are masked at once', async t => {
  for (const unit of ['v1,', 'v1.', 'v1,%2', 'v1,aaaaaaaaaaaaaaaaaa ', 'v1.aaaaaaaa.a.a.1.', 'v1%2Cv1']) {
    const began = performance.now()
    masked(unit.repeat(16_384 / unit.length))
    t.ok(performance.now() - began < 50, unit)
  }
})
