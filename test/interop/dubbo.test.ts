import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { json } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { dubboTransport, type DubboRequest } from '../../src/transport/dubbo.ts'
import { guard } from '../../src/transport/guard.ts'
import { conformance, type DownstreamUnderTest, type Mood, type Seen } from '../transport/conformance.ts'
import { parcel } from '../transport/parcel.ts'
import { freePorts, server, without, type Server } from './server.ts'

const skip = without('java', 'mvn')
const service = 'ackbox.interop.OrderNotifyService'
const order = { orderId: 'A-1', amountCents: 9_007_199_254_740_993n }

function transportTo(t: Test, port: number) {
  const broker = parseBroker('dubbo', `tri://127.0.0.1:${port}`)
  if (typeof broker === 'string') throw new Error(broker)
  const transport = dubboTransport({
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
    brokers: new Map<string, Broker>([['dubbo', broker]]),
    log: { info() {}, warn() {} }
  })
  t.teardown(() => transport.close())
  return transport
}

async function provider(
  t: Test
): Promise<{ server: Server; transport: ReturnType<typeof dubboTransport>; send: Send }> {
  const [tri = 0, dubbo = 0] = await freePorts(2)
  const running = await server(t, {
    name: 'dubbo',
    env: { TRI_PORT: `${tri}`, DUBBO_PORT: `${dubbo}` },
    ready: /READY tri=/
  })
  const transport = transportTo(t, tri)
  return {
    server: running,
    transport,
    send: (method, args, more = {}, accepted) =>
      transport.send({ service, method, args }, parcel(more), accepted)
  }
}
type Send = (
  method: string,
  args: DubboRequest['args'],
  more?: Parameters<typeof parcel>[0],
  accepted?: Parameters<ReturnType<typeof dubboTransport>['send']>[2]
) => ReturnType<ReturnType<typeof dubboTransport>['send']>

const text = (outcome: { answer?: Uint8Array }): string => Buffer.from(outcome.answer ?? []).toString()

t.test('a Java provider', { skip }, async t => {
  const { server: running, transport, send } = await provider(t)

  await t.test('gets the call, its 64-bit numbers and our headers as attachments', async t => {
    const outcome = await send('notify', [order], { ours: { 'webhook-id': 'msg_1' } })
    t.match(outcome, { kind: 'delivered', address: /./ })
    t.match(text(outcome), '"amountCents":9007199254740993')
    t.match(text(outcome), '"webhook-id":"String:msg_1"')
  })

  await t.test('gets a posted text byte for byte: no number on the way was one of JavaScript', async t => {
    const raw = '{"orderId":"A-2","amountCents":9223372036854775807,"price":12345678901234567890.10}'
    const outcome = await send('notifyTwo', `[${raw}, "x", 9007199254740993]`)
    t.match(outcome, { kind: 'delivered' })
    t.match(text(outcome), '"amountCents":9223372036854775807')
    t.match(text(outcome), '"price":12345678901234567890.10')
    t.match(text(outcome), '"message":"x/9007199254740993"')
  })

  await t.test(
    'runs a method with nulls when arguments are missing: `parameters` keeps that at home',
    async t => {
      const blind = await send('notifyTwo', [order, 'x'])
      t.match(blind, { kind: 'delivered' })
      t.match(text(blind), '"message":"null/0"')
      t.notMatch(text(blind), '9007199254740993')
      const request = { service, method: 'notifyTwo', args: [order, 'x'], parameters: 3 }
      t.match(await transport.send(request, parcel()), {
        kind: 'failed',
        reason: /^bad_request: args holds 2/
      })
    }
  )

  await t.test('gets our proofs and attachments as they are, and one that ends in -bin decoded', async t => {
    const attachments = { 'X-Trace-Id': 'T1', 'note-bin': Buffer.from('hello').toString('base64') }
    const ours = { 'webhook-signature': `v1,${'a+/='.repeat(11)}`, 'ackbox-callback-token': 'v1.t' }
    const outcome = await transport.send(
      { service, method: 'notify', args: [order], attachments },
      parcel({ ours })
    )
    t.match(outcome, { kind: 'delivered' })
    const { attachments: seen } = JSON.parse(text(outcome)) as { attachments: Record<string, string> }
    t.match(seen, {
      'X-Trace-Id': 'String:T1',
      'webhook-signature': `String:${ours['webhook-signature']}`,
      'ackbox-callback-token': 'String:v1.t',
      note: /^byte\[\]:/
    })
  })

  await t.test('has its say by its result', async t => {
    const no = await send('notify', [order], {}, ({ json }) => (json as { code: number }).code === 7)
    t.match(no, { kind: 'failed', reason: 'not_accepted' })
    const yes = await send(
      'notifyTwo',
      [order, 'x', 5],
      {},
      ({ json }) => (json as { message: string }).message === 'x/5'
    )
    t.match(yes, { kind: 'delivered' })
    t.match(await send('ping', []), { kind: 'delivered' }, 'void too')
  })

  await t.test('says what went wrong', async t => {
    t.match(await send('nothing', []), { kind: 'failed', reason: /^target_missing/ })
    t.match(await send('reject', ['A-1']), { kind: 'failed', reason: 'exception: order A-1 is closed' })
    t.match(await send('crash', ['A-1']), { kind: 'failed', reason: 'exception: boom A-1' })
    const wrong = await send('notify', [{ amountCents: 'hunter2' }])
    t.match(wrong, { kind: 'refused', reason: /^bad_arguments/ })
    t.notMatch(JSON.stringify(wrong) + text(wrong), 'hunter2')
    const large = await send('crash', ['x'.repeat(8_400_000)], { timeoutMs: 20_000 })
    t.match(large, { kind: 'refused', reason: /^too_large/ })
    t.match(await send('ping', []), { kind: 'delivered' }, 'the next call works')
  })

  await t.test('too slow: the deadline is ours, and it is told', async t => {
    const began = performance.now()
    t.match(await send('slow', [1_500], { timeoutMs: 500 }), { kind: 'failed', reason: /^timeout/ })
    t.ok(performance.now() - began < 1_500)
  })

  await t.test('1,000 at once: each gets its own answer', async t => {
    const ids = Array.from({ length: 1_000 }, (_, i) => `order-${i}`)
    const outcomes = await Promise.all(
      ids.map(id => send('notify', [{ orderId: id }], { timeoutMs: 30_000 }))
    )
    t.ok(
      outcomes.every((each, i) => each.kind === 'delivered' && text(each).includes(`"orderId":"${ids[i]}"`))
    )
  })

  await t.test('killed: failures; back: calls go on', async t => {
    const flying = Array.from({ length: 10 }, () => send('slow', [3_000]))
    await new Promise(resolve => setTimeout(resolve, 300))
    await running.kill()
    for (const outcome of await Promise.all(flying))
      t.match(outcome, { kind: 'failed', reason: /^connection_closed/ })
    t.match(await send('ping', []), { kind: 'failed', reason: 'connection_refused' })
    await running.start()
    t.match(await send('ping', []), { kind: 'delivered' })
  })
})

/** In front of the provider, since Java hides connections: whether they are open, and how many there were. */
async function door(t: Test, port: number) {
  const open = new Set<Socket>()
  const listener = createServer(near => {
    const far = connect(port, '127.0.0.1')
    open.add(near)
    for (const [socket, other] of [
      [near, far],
      [far, near]
    ] as const) {
      socket.on('error', () => {}).on('close', () => other.destroy())
      socket.pipe(other)
    }
    near.on('close', () => open.delete(near))
  })
  async function close(): Promise<void> {
    for (const socket of open) socket.resetAndDestroy()
    if (listener.listening) await new Promise(done => listener.close(done))
  }
  async function start(at: number): Promise<number> {
    listener.listen(at, '127.0.0.1')
    await once(listener, 'listening')
    return (listener.address() as AddressInfo).port
  }
  t.teardown(close)
  return { open, close, start, port: await start(0) }
}

const textOf = (body: string | Uint8Array): string =>
  typeof body === 'string' ? body : Buffer.from(body).toString('latin1')

t.test('over dubbo, as every transport whose downstream answers', { skip }, async t => {
  let mood: Mood = 'take'
  let seen: Seen[] = []
  let hung = (): void => {}
  const script = createHttpServer((request, response) => {
    void json(request).then(told => {
      const { body, headers } = told as { body: string; headers: Record<string, string> }
      seen.push({ headers, body: Buffer.from(body, headers['x-bytes'] === undefined ? 'utf8' : 'latin1') })
      response.end(mood)
      if (mood === 'hang') hung()
    })
  }).listen(0, '127.0.0.1')
  await once(script, 'listening')
  t.teardown(() => {
    script.closeAllConnections()
    script.close()
  })

  const [tri = 0, dubbo = 0] = await freePorts(2)
  const running = await server(t, {
    name: 'dubbo',
    env: {
      TRI_PORT: `${tri}`,
      DUBBO_PORT: `${dubbo}`,
      SCRIPT_URL: `http://127.0.0.1:${(script.address() as AddressInfo).port}`
    },
    ready: /READY tri=/
  })

  conformance(t, async (t): Promise<DownstreamUnderTest<DubboRequest>> => {
    mood = 'take'
    const mine: Seen[] = (seen = [])
    const hanging = new Promise<void>(resolve => (hung = resolve))
    const way = await door(t, tri)
    const transport = transportTo(t, way.port)
    return {
      transport,
      seen: mine,
      accepted: ({ json }) => {
        const { code } = json as { code: number }
        return code === 9 ? 'refused' : code === 0
      },
      // JSON has no bytes: a handler says how they become text.
      request: ({ body, headers = {} }) => ({
        service: 'ackbox.interop.ScriptedService',
        method: 'call',
        args: [textOf(body)],
        parameters: 1,
        attachments: { ...headers, ...(typeof body !== 'string' && { 'x-bytes': 'latin1' }) }
      }),
      signed: body => JSON.stringify([textOf(body)]),
      echoed: answer => JSON.parse(answer) as string,
      mood: next => {
        mood = next
      },
      stop: async () => {
        await running.kill()
        await way.close()
      },
      start: async () => {
        await running.start()
        await way.start(way.port)
      },
      hanging: () => hanging,
      letGo: async () => {
        // The one that serves now stays.
        for (const end = Date.now() + 5_000; way.open.size > 1; await sleep(10))
          if (Date.now() > end) throw new Error(`${way.open.size} connections`)
      }
    }
  })
})
