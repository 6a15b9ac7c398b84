import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { guard } from '../../src/transport/egress/guard.ts'
import type { Transport } from '../../src/transport/types.ts'
import { httpTransport } from '../../src/transport/http/http.ts'
import { setup } from '../support/setup.ts'

t.test('the log does not show the proofs either: the reason of a failure may quote them', async t => {
  let proof = ''
  const transport: Transport = {
    name: 'quoting',
    send: async (_request, { headers }) => {
      const { 'ackbox-callback-token': token = '' } = headers('')
      proof = token.slice(token.lastIndexOf('.') + 1)
      return { kind: 'failed', reason: `no place for ${token}`, warning: `and ${token}` }
    },
    close: async () => {}
  }
  const { post, read, quiet, logged } = await setup(t, { transport, downstream: { needCallback: true } })
  const taskNo = await post()
  await quiet()
  t.ok(proof.length > 40)
  t.match(logged('attempt.done')[0], { reason: /no place for v1.*\[masked\]$/, warning: /\[masked\]$/ })
  for (const shown of [logged('attempt.done'), await read(taskNo)])
    t.notMatch(JSON.stringify(shown), new RegExp(proof))
})

t.test('a downstream that echoes all it got does not make us show the proofs that we sent', async t => {
  const sent: string[] = []
  const server = createServer((request, response) => {
    const { 'ackbox-callback-token': token, 'webhook-signature': signature } = request.headers
    sent.push(String(token), String(signature))
    request.resume()
    // Debug endpoints and many error pages echo the request like this, in the body and in the headers.
    response.writeHead(500, { 'x-echo': `${String(token)} ${String(signature)}`, 'x-kept': 'yes' })
    response.end(JSON.stringify({ headers: request.headers, odd: '\u20ac' }))
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const transport = httpTransport({ guard: guard({ allow: undefined, embedded: true, deny: [] }) })
  t.teardown(async () => {
    await transport.close()
    server.close()
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  const { post, read, quiet, sql } = await setup(t, {
    transport,
    downstream: { needCallback: true, request: ({ raw }) => ({ url, body: raw }) }
  })
  const taskNo = await post()
  await quiet()
  const [token = '', signature = ''] = sent
  const proofs = [token.slice(token.lastIndexOf('.') + 1), signature.slice(3)]
  t.ok(proofs.every(proof => proof.length > 40))
  const task = await read(taskNo)
  const rows = await sql`select encode(answer, 'escape') as answer, headers from attempt`
  for (const shown of [JSON.stringify(task), JSON.stringify(rows)])
    for (const proof of proofs) t.notOk(shown.includes(proof), 'neither shown nor stored')
  t.match(task.deliveries[0]?.attempts?.[0], {
    status: 500,
    answer: /"webhook-id":"[^"]+".*"odd":"\u20ac"/,
    headers: [
      ['x-echo', /warehouse\.1\.\[masked\] v1,\[masked\]$/],
      ['x-kept', 'yes']
    ]
  })
})
