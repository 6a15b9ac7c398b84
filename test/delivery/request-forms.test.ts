// The one form in which the requests of all transports are stored. test/transport/conformance.ts shows that they sign the body they send.
import t from 'tap'
import { headersOf, sentRequest, shapeOf } from '../../src/delivery/sent-request.ts'
import type { Requests } from '../../src/handler/define.ts'

const requests: { [Name in keyof Requests]: [Requests[Name], target: string | undefined, names: string[]] } =
  {
    http: [
      { url: new URL('https://a.test/x?key=k1'), headers: { 'X-a': '1' } },
      'https://a.test/x?key=[masked]',
      ['X-a', 'content-type']
    ],
    dubbo: [
      { broker: 'east', service: 'com.acme.Points', method: 'add', args: [], attachments: { a: '1' } },
      'east com.acme.Points add',
      ['a', 'content-type']
    ],
    dubbo2: [{ service: 'com.acme.Points', method: 'add', types: [], args: [] }, 'com.acme.Points add', []],
    custom: [{ send: () => undefined }, undefined, []],
    rabbitmq: [{ exchange: '', routingKey: 'orders', headers: { a: '1' } }, 'orders', ['a']],
    kafka: [{ topic: 'orders', key: 'k', headers: { a: '1' } }, 'orders', ['a']],
    rocketmq: [{ topic: 'orders', tag: 'paid', properties: { a: '1' } }, 'orders paid', ['a']],
    nats: [{ subject: 'orders.paid', headers: { a: '1' } }, 'orders.paid', ['a']],
    'redis-stream': [{ stream: 'orders', fields: { body: '{}', a: '1' } }, 'orders', ['a']]
  }

for (const [name, [request, target, names]] of Object.entries(requests)) {
  t.test(`${name}: its target, the names of its headers, and the body that is signed`, async t => {
    const transport = name as keyof Requests
    const ours = { 'webhook-id': 'msg_1', a: 'of Ackbox' }
    const sent = sentRequest(transport, { request, payload: Buffer.from('é'), ours }, [])
    t.same(sent, {
      transport,
      ...(transport === 'http' ? { method: 'POST' } : {}),
      ...(target === undefined ? {} : { target }),
      headerNames: [...names, 'webhook-id', ...(names.includes('a') ? [] : ['a'])],
      body: {
        bytes: 2,
        sha256: Buffer.from('4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c', 'hex')
      }
    })
    t.match(
      headersOf(transport, { request, ours: undefined }).map(([header]) => header),
      names
    )
  })
}

t.test('whatever a handler in plain JavaScript returned, an attempt is stored', async t => {
  const throws = {
    get url(): string {
      throw new Error('no')
    }
  }
  for (const request of [null, undefined, 7, 'text', [], throws, new Proxy({}, { get: () => 7 })])
    t.doesNotThrow(() => sentRequest('http', { request, payload: undefined, ours: undefined }, []))
  const odd = sentRequest(
    'http',
    { request: { url: 7, method: {}, headers: 'x' }, payload: '', ours: {} },
    []
  )
  t.match(odd, { method: 'POST', target: undefined, body: { bytes: 0 } })
  const many = Object.fromEntries(Array.from({ length: 500 }, (_, n) => [`${n}`.repeat(300), '']))
  const long = sentRequest(
    'http',
    { request: { url: `https://a.test/${'x'.repeat(9_000)}`, headers: many }, payload: '', ours: {} },
    []
  )
  t.equal(long?.target?.length, 2_048)
  t.equal(long?.headerNames.length, 100)
})

t.test(
  'requests that differ in method or names have other shapes, and those of one form have one',
  async t => {
    const of = { messageCode: 'order.paid', downstream: 'warehouse', handlerVersion: -1 }
    const id = (headers: object, method = 'POST', handlerVersion = -1) => {
      const sent = sentRequest(
        'http',
        { request: { url: 'https://a.test/', method, headers }, payload: '', ours: {} },
        []
      )
      return sent && shapeOf({ ...of, handlerVersion }, sent).id
    }
    t.equal(id({ a: '1' }), id({ a: '2' }))
    const all = [id({ a: '1' }), id({ b: '1' }), id({ a: '1' }, 'PUT'), id({ a: '1' }, 'POST', 7)]
    t.equal(new Set(all).size, all.length)
    t.ok(all.every(Number.isSafeInteger))
  }
)
