import { createHmac, randomBytes } from 'node:crypto'
import { fastify } from 'fastify'
import t from 'tap'
import { AdapterError, verifier } from '../../src/producer/producer.ts'

const [own, former] = [randomBytes(32), randomBytes(32)]
const textOf = (secret: Buffer): string => `whsec_${secret.toString('base64')}`
const body = '{"taskNo":"order-1",  "preparedAt":"2026-11-23T20:00:00.000Z"}'

function signed(secret: Buffer, agoMs = 0): Record<string, string> {
  const timestamp = String(Math.floor((Date.now() - agoMs) / 1_000))
  const signature = createHmac('sha256', secret).update(`check_1.${timestamp}.${body}`).digest('base64')
  return {
    'content-type': 'application/json',
    'webhook-id': 'check_1',
    'webhook-timestamp': timestamp,
    'webhook-signature': `v1,${signature}`
  }
}

t.test('a check is answered only if Ackbox has signed its very bytes, a short time ago', async t => {
  const isSigned = verifier([textOf(own), textOf(former)])
  for (const secret of [own, former])
    t.equal(isSigned({ headers: signed(secret), body: Buffer.from(body) }), true)
  t.equal(isSigned({ headers: new Headers(signed(own)), body }), true, 'with the headers of a Request')
  t.equal(isSigned({ headers: signed(randomBytes(32)), body }), false, 'another secret')
  t.equal(isSigned({ headers: signed(own), body: body.replace('order-1', 'order-2') }), false, 'another body')
  t.equal(isSigned({ headers: signed(own, 400_000), body }), false, 'an old one')
  t.equal(verifier([textOf(own)], { toleranceMs: 500_000 })({ headers: signed(own, 400_000), body }), true)
  t.equal(isSigned({ headers: {}, body }), false, 'none')
})

t.test('a secret that is not there is left out, and one must be there', async t => {
  t.equal(verifier([undefined, textOf(own)])({ headers: signed(own), body }), true)
  for (const secrets of [[], [undefined], [''], ['whsec_short'], ['', textOf(own)]])
    t.throws(() => verifier(secrets), AdapterError)
})

t.test('the route of the documentation takes the bytes, whatever their spaces', async t => {
  const app = fastify()
  const isSigned = verifier([textOf(own)])
  app.register(async checks => {
    checks.addContentTypeParser(
      'application/json',
      { parseAs: 'buffer' },
      async (_: unknown, bytes: Buffer) => bytes
    )
    checks.post<{ Body: Buffer }>('/ackbox/check', async ({ headers, body }, reply) => {
      if (!isSigned({ headers, body })) return await reply.code(401).send()
      return JSON.parse(body.toString()) as unknown
    })
  })
  const ask = (headers: Record<string, string>) =>
    app.inject({ method: 'POST', url: '/ackbox/check', headers, payload: body })
  t.match((await ask(signed(own))).json(), { taskNo: 'order-1' })
  t.equal((await ask(signed(former))).statusCode, 401)
})
