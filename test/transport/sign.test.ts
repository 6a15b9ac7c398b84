import { Webhook } from 'standardwebhooks'
import t from 'tap'
import { signer } from '../../src/transport/sign.ts'

const secret = (seed: number): string => `whsec_${Buffer.alloc(32, seed).toString('base64')}`
const now = (): number => Math.floor(Date.now() / 1_000)

t.test('a stranger with the Standard Webhooks library and our secret believes us', async t => {
  const payload = '{"text":"Grüße, 你好 \\ud83d\\ude00"}'
  for (const body of [payload, Buffer.from(payload)]) {
    const timestamp = now()
    const headers = {
      'webhook-id': 'msg_1',
      'webhook-timestamp': String(timestamp),
      'webhook-signature': signer([secret(1)])('msg_1', timestamp, body)
    }
    t.strictSame(new Webhook(secret(1)).verify(payload, headers), JSON.parse(payload))
    t.throws(() => new Webhook(secret(2)).verify(payload, headers), 'another secret does not fit')
    t.throws(() => new Webhook(secret(1)).verify(`${payload} `, headers), 'nor another body')
    t.throws(
      () => new Webhook(secret(1)).verify(payload, { ...headers, 'webhook-id': 'msg_2' }),
      'nor another id'
    )
  }
})

t.test('during a rotation the old secret and the new one both verify', async t => {
  const timestamp = now()
  const signature = signer([secret(2), secret(1)])('msg_1', timestamp, 'x')
  const headers = {
    'webhook-id': 'msg_1',
    'webhook-timestamp': String(timestamp),
    'webhook-signature': signature
  }
  for (const seed of [1, 2]) new Webhook(secret(seed)).verify('x', headers, { jsonParse: false })
  t.throws(() => new Webhook(secret(3)).verify('x', headers, { jsonParse: false }))
  t.equal(signature.split(' ').length, 2)
})

t.test('a secret that is no secret stops the start, and is not repeated', async t => {
  for (const bad of ['', 'whsec_', 'whsec_not base64!', 'whsec_päss']) {
    t.throws(() => signer([bad]), { message: /^a signing secret must be/ })
  }
  t.throws(() => signer([]))
})
