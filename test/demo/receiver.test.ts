import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { Webhook } from 'standardwebhooks'
import { demoEnv, startReceiver, type ReceiverOptions } from '../../src/demo/receiver.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { until } from '../support/until.ts'

const secret = `whsec_${Buffer.alloc(32, 5).toString('base64')}`

interface Got {
  headers: IncomingMessage['headers']
  body: Record<string, unknown>
}

/** A /callback that records its requests. It answers with the statuses in `answers` first, then with 200. */
async function callback(t: Test, answers: number[] = []) {
  const got: Got[] = []
  let heard = () => {}
  const server = createServer((request, response) => {
    void text(request).then(body => {
      got.push({ headers: request.headers, body: JSON.parse(body) as Record<string, unknown> })
      response.writeHead(answers.shift() ?? 200).end()
      heard()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  const received = async (count: number) => {
    while (got.length < count)
      await new Promise<void>(resolve => {
        heard = resolve
      })
    return got
  }
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return { origin, url: `${origin}/callback`, got, received }
}

async function receiver(t: Test, options: ReceiverOptions = {}) {
  const started = await startReceiver(options)
  t.teardown(() => started.close())
  return started
}

function send(
  url: string,
  path: string,
  over: { id?: string; attempt?: number; callback?: string; headers?: Record<string, string> } = {}
) {
  const { id = 'w-1', attempt = 3, headers = {} } = over
  const body = '{"orderId":"x"}'
  const at = new Date()
  return fetch(url + path, {
    method: 'POST',
    body,
    headers: {
      'content-type': 'application/json',
      'webhook-id': id,
      'webhook-timestamp': String(Math.floor(at.getTime() / 1_000)),
      'webhook-signature': new Webhook(secret).sign(id, at, body),
      'ackbox-task-no': 'A-1',
      'ackbox-message-code': 'order.paid',
      'ackbox-attempt': String(attempt),
      ...(over.callback ? { 'ackbox-callback-url': over.callback, 'ackbox-callback-token': 'tok' } : {}),
      ...headers
    }
  })
}

t.test('every path that the samples build has somebody behind it, and no other path has', async t => {
  const { url } = await receiver(t)
  for (const path of [
    '/orders/A%2F1/paid',
    '/materials/m/review',
    '/materials/m',
    '/index/m',
    '/facts',
    '/events'
  ]) {
    t.equal((await send(url, path, { id: path })).status, 200, path)
  }
  for (const path of ['/', '/orders/paid', '/callback']) t.equal((await send(url, path)).status, 404, path)
  t.ok(Object.values(demoEnv(url)).every(each => each === url))
})

t.test('it checks signatures as the makers of Standard Webhooks sign', async t => {
  const { url, counts } = await receiver(t, { secretOf: () => secret })
  t.equal((await send(url, '/events')).status, 200)
  const bad = [
    { 'webhook-signature': `v1,${Buffer.alloc(32).toString('base64')}` },
    { 'webhook-signature': 'v1,' },
    { 'webhook-id': 'w-other' },
    { 'webhook-timestamp': '1' },
    { 'webhook-timestamp': 'now' }
  ]
  for (const headers of bad)
    t.equal((await send(url, '/events', { headers })).status, 401, JSON.stringify(headers))
  t.equal(counts.badSignatures, bad.length)
})

t.test('during a rotation the second signature counts as well', async t => {
  const { url } = await receiver(t, { secretOf: () => secret })
  const at = new Date()
  const signature = `v1,${Buffer.alloc(32).toString('base64')} ${new Webhook(secret).sign('w-1', at, '{"orderId":"x"}')}`
  t.equal((await send(url, '/events', { headers: { 'webhook-signature': signature } })).status, 200)
})

t.test(
  'it sends the receipt it owes, with the token, and brings it again when the service is away',
  async t => {
    const back = await callback(t, [503])
    const { url } = await receiver(t, { callbackOrigin: back.origin })
    t.equal((await send(url, '/orders/AGAIN-1/paid', { attempt: 1, callback: back.url })).status, 200)
    const got = await back.received(2)
    for (const { headers, body } of got) {
      t.match(headers, { 'ackbox-callback-token': 'tok', 'content-type': 'application/json' })
      t.match(body, { taskNo: 'A-1', messageCode: 'order.paid', result: 'RETRY' })
    }
  }
)

t.test('a repeated delivery is not worked on twice, but its receipt comes again', async t => {
  const back = await callback(t)
  const { url, counts } = await receiver(t)
  await send(url, '/orders/LATE-1/paid', { attempt: 1, callback: back.url })
  const headers = { 'ackbox-callback-token': 'again' }
  await send(url, '/orders/LATE-1/paid', { attempt: 2, callback: back.url, headers })
  t.equal(counts.duplicates, 1)
  // The receipt of the first delivery comes too, with its own token.
  const again = () => back.got.find(one => one.headers['ackbox-callback-token'] === 'again')
  await until('the receipt of the repeat comes', () => again() !== undefined)
  t.match(again()?.body, { taskNo: 'A-1', result: 'HANDLED' })
})

t.test('receipts go to the service only, whatever a header says', async t => {
  const elsewhere = await callback(t)
  const home = await callback(t)
  const { url } = await receiver(t, { callbackOrigin: home.origin })
  await send(url, '/orders/BROKEN-1/paid', { id: 'a', callback: elsewhere.url })
  await send(url, '/orders/BROKEN-2/paid', { id: 'b', callback: home.url })
  const got = await home.received(2)
  t.same(
    got.map(({ headers }) => headers['ackbox-callback-token']),
    ['tok', 'tok']
  )
  t.equal(elsewhere.got.length, 0)
})

t.test('poison stays poison, and what it refuses is gone', async t => {
  const { url, counts } = await receiver(t)
  t.equal((await send(url, '/orders/POISON-1/paid', { attempt: 99 })).status, 503)
  t.equal((await send(url, '/orders/REFUSE-1/paid')).status, 410)
  t.match(counts, { requests: 2, failures: 2 })
})

t.test('a body without end is cut off', async t => {
  const { url } = await receiver(t)
  await t.rejects(fetch(`${url}/events`, { method: 'POST', body: 'x'.repeat(3_000_000) }))
})

t.test('closing it does not wait for receipts that are still to come', async t => {
  const back = await callback(t, [503, 503])
  const started = await startReceiver()
  await send(started.url, '/orders/LATE-1/paid', { id: 'late', attempt: 1, callback: back.url })
  await send(started.url, '/orders/AGAIN-1/paid', { id: 'again', attempt: 1, callback: back.url })
  await back.received(1)
  const before = stopwatch(t)
  await started.close()
  t.ok(before() < 1_000)
  // Another receiver repeats its receipt after the same wait: by then the closed one would have repeated its own.
  const other = await receiver(t)
  const headers = { 'ackbox-callback-token': 'other' }
  await send(other.url, '/orders/AGAIN-1/paid', { attempt: 1, callback: back.url, headers })
  const got = await back.received(3)
  t.same(
    got.map(one => one.headers['ackbox-callback-token']),
    ['tok', 'other', 'other']
  )
})

t.test('many receipts at once are no leak and no warning', async t => {
  const back = await callback(t)
  const { url } = await receiver(t)
  const warnings: Error[] = []
  const heard = (warning: Error) => void warnings.push(warning)
  process.on('warning', heard)
  t.teardown(() => process.off('warning', heard))
  await Promise.all(
    Array.from({ length: 30 }, (_, i) =>
      send(url, `/orders/AGAIN-${i}/paid`, { id: `w-${i}`, attempt: 1, callback: back.url })
    )
  )
  await back.received(30)
  t.same(warnings, [])
})

t.test('a request that owes a receipt to nowhere gets its answer, and the receiver lives', async t => {
  const { url } = await receiver(t)
  for (const target of ['', 'nowhere', 'http://']) {
    const headers = { 'ackbox-callback-url': target, 'ackbox-callback-token': 'tok' }
    t.equal((await send(url, '/orders/AGAIN-1/paid', { attempt: 1, headers })).status, 200)
  }
  t.equal((await send(url, '/events')).status, 200)
})
