import t, { type Test } from 'tap'
import { without } from '../support/program.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { dubboTransport, type DubboRequest } from '../../src/transport/dubbo/triple.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { sendContext } from '../transport/send-context.ts'
import { freePorts, server, type Server } from './server.ts'

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
      transport.send({ service, method, args }, sendContext(more), accepted)
  }
}
type Send = (
  method: string,
  args: DubboRequest['args'],
  more?: Parameters<typeof sendContext>[0],
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
      t.match(await transport.send(request, sendContext()), {
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
      sendContext({ ours })
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
    const began = stopwatch(t)
    t.match(await send('slow', [1_500], { timeoutMs: 500 }), { kind: 'failed', reason: /^timeout/ })
    t.ok(began() < 1_400)
  })

  await t.test('1,000 at once: each gets its own answer', async t => {
    const ids = Array.from({ length: 1_000 }, (_, i) => `order-${i}`)
    // On a busy machine some of the 1,000 connections take longer than the 5 s that a connection may take.
    const notify = async (id: string) => {
      for (;;) {
        const outcome = await send('notify', [{ orderId: id }], { timeoutMs: 300_000 })
        if (outcome.kind !== 'failed' || outcome.reason !== 'connect_timeout') return outcome
      }
    }
    const outcomes = await Promise.all(ids.map(notify))
    t.same(
      outcomes.filter(
        (each, i) => each.kind !== 'delivered' || !text(each).includes(`"orderId":"${ids[i]}"`)
      ),
      []
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
