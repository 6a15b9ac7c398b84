import fc from 'fast-check'
import t from 'tap'
import { Webhook } from 'standardwebhooks'
import { signingSecret, tokens } from '../../src/domain/tokens.ts'

const at = new Date('2026-11-20T10:00:00Z')
const made = { taskNo: 'order-1', downstream: 'warehouse', attempt: 3, at }
const day = 24 * 3_600_000
const later = (ms: number) => new Date(at.getTime() + ms)
const ours = tokens({ current: 'a master secret of ours, long enough' })
const theirs = tokens({ current: 'a master secret of theirs, as long as ours' })
const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.'.split('')

const anyMade = fc.record({
  taskNo: fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/),
  downstream: fc.stringMatching(/^[a-z][a-z0-9-]{0,31}$/),
  attempt: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
  at: fc.date({ min: new Date('2020-01-01'), max: new Date('2100-01-01'), noInvalidDate: true })
})

t.test('a token names the delivery and the attempt that it was made for', async t => {
  fc.assert(
    fc.property(anyMade, made => {
      const token = ours.issue(made)
      t.same(ours.check(token, made.taskNo, made.at), {
        downstream: made.downstream,
        attempt: made.attempt,
        issuedMs: Math.floor(made.at.getTime() / 1_000) * 1_000
      })
      t.ok(token.length <= 200)
      t.match(token, /^[\w.-]+$/, 'it is safe in a header and in a URL')
    })
  )
})

t.test('a token fits its own task only, even where dots could move from one field to the next', async t => {
  fc.assert(
    fc.property(anyMade, anyMade, (one, two) => {
      fc.pre(one.taskNo !== two.taskNo)
      t.equal(ours.check(ours.issue(one), two.taskNo, one.at), null)
    })
  )
  const token = ours.issue({ ...made, taskNo: '3.x', attempt: 1 })
  const [version, key, issued, downstream, , mac] = token.split('.')
  t.equal(ours.check(`${version}.${key}.${issued}.${downstream}.13.${mac}`, 'x', at), null)
  t.equal(ours.check(`${version}.${key}.${issued}.${downstream}.1.3.${mac}`, 'x', at), null)
})

t.test('a token for another downstream or attempt of the same task cannot be cut out of one', async t => {
  const token = ours.issue(made)
  for (const [from, to] of [
    ['warehouse', 'points'],
    ['.3.', '.4.'],
    ['.3.', '.03.'],
    ['v1', 'v2']
  ] as const) {
    t.equal(ours.check(token.replace(from, to), 'order-1', at), null)
  }
})

t.test('no single character of a token can be changed, left out or put in', async t => {
  const token = ours.issue(made)
  for (let i = 0; i < token.length; i++) {
    for (const char of alphabet) {
      if (char === token[i]) continue
      if (ours.check(token.slice(0, i) + char + token.slice(i + 1), 'order-1', at) !== null)
        t.fail(`changed at ${i}`)
      if (ours.check(token.slice(0, i) + char + token.slice(i), 'order-1', at) !== null)
        t.fail(`put in at ${i}`)
    }
    t.equal(ours.check(token.slice(0, i) + token.slice(i + 1), 'order-1', at), null)
    t.equal(ours.check(token.slice(0, i), 'order-1', at), null)
  }
})

t.test('what is no token is refused, whatever it is', async t => {
  const token = ours.issue(made)
  for (const wrong of [
    undefined,
    null,
    '',
    1,
    true,
    {},
    [token],
    Buffer.from(token),
    ' ',
    `${token}=`,
    `${token}\n`,
    `${token}\r\n`,
    ` ${token}`,
    `${token} `,
    `${token}, ${token}`,
    `Bearer ${token}`,
    `"${token}"`,
    token.toUpperCase(),
    `${token}.`,
    `.${token}`,
    '.....',
    'x'.repeat(1_000_000),
    token.replace('v', '\u0475'),
    `${token}\u0000`,
    token.replace('.', '\u3002'),
    token.replace(/[^.]+$/, ''),
    token.replace(/[^.]+$/, 'A'.repeat(43)),
    token.replace(/[^.]+$/, '\ud800'.repeat(43))
  ])
    t.equal(ours.check(wrong, 'order-1', at), null)
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 300 }), wrong =>
      t.equal(ours.check(wrong, 'order-1', at), null)
    )
  )
  t.equal(ours.check(token, '', at), null)
  t.equal(ours.check(token, 'order-1\n', at), null)
  t.ok(ours.check(token, 'order-1', at), 'and the right one still passes')
})

t.test('a token is good for 90 days, and for a clock that is behind', async t => {
  const token = ours.issue(made)
  t.ok(ours.check(token, 'order-1', later(90 * day)))
  t.equal(ours.check(token, 'order-1', later(90 * day + 1_000)), null)
  t.ok(ours.check(token, 'order-1', later(-day)))
})

t.test('a token made with the previous secret passes during a rotation, and not after it', async t => {
  const before = ours.issue(made)
  const rotating = tokens({
    current: 'a brand new secret, of fitting length',
    previous: 'a master secret of ours, long enough'
  })
  t.same(rotating.check(before, 'order-1', at), {
    downstream: 'warehouse',
    attempt: 3,
    issuedMs: at.getTime()
  })
  t.equal(ours.check(rotating.issue(made), 'order-1', at), null, 'new ones are made with the new secret')
  t.equal(tokens({ current: 'a brand new secret, of fitting length' }).check(before, 'order-1', at), null)
  t.equal(theirs.check(before, 'order-1', at), null)
  const unchanged = tokens({ current: 'one secret', previous: 'one secret' })
  t.ok(unchanged.check(unchanged.issue(made), 'order-1', at))
})

t.test('in each step of a rotation every process takes the tokens of every other', async t => {
  const [old, brandNew] = ['a master secret of ours, long enough', 'a brand new secret, of fitting length']
  const steps = [
    { current: old },
    { current: old, previous: brandNew },
    { current: brandNew, previous: old },
    { current: brandNew }
  ].map(tokens)
  // Processes of two steps run side by side while one after the other restarts.
  for (const [step, before] of steps.slice(0, 2).entries())
    for (const [issuer, taker] of [
      [before, steps[step + 1]],
      [steps[step + 1], before]
    ])
      t.ok(taker?.check(issuer?.issue(made), 'order-1', at), `step ${step + 1}`)
  // Before the last step the old tokens have run out.
  t.ok(steps[3]?.check(steps[2]?.issue(made), 'order-1', at))
  t.ok(steps[2]?.check(steps[3]?.issue(made), 'order-1', at))
})

t.test('a token says nothing about the secret or the task', async t => {
  const token = tokens({ current: 'planted-canary-planted-canary' }).issue({
    ...made,
    taskNo: 'order-1-canary'
  })
  t.notMatch(token, /canary/)
  t.notMatch(Buffer.from(token, 'base64url').toString('latin1'), /canary/)
})

t.test('each downstream has a signing secret of its own that Standard Webhooks libraries take', async t => {
  const secret = signingSecret('master', 'warehouse')
  t.match(secret, /^whsec_[A-Za-z0-9+/]{43}=$/)
  t.equal(signingSecret('master', 'warehouse'), secret)
  t.equal(new Set([secret, signingSecret('master', 'points'), signingSecret('other', 'warehouse')]).size, 3)
  const webhook = new Webhook(secret)
  const now = new Date()
  const headers = {
    'webhook-id': 'x',
    'webhook-timestamp': String(Math.floor(now.getTime() / 1_000)),
    'webhook-signature': webhook.sign('x', now, '{}')
  }
  t.same(webhook.verify('{}', headers), {})
})
