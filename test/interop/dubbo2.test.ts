import t, { type Test } from 'tap'
import { without } from '../support/program.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { dubbo2Transport } from '../../src/transport/dubbo/classic.ts'
import type { Dubbo2Request } from '../../src/transport/dubbo/hessian.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import type { Accepted, Transport } from '../../src/transport/types.ts'
import { sendContext } from '../transport/send-context.ts'
import { freePorts, server, type Server } from './server.ts'

const skip = without('java', 'mvn')
const notice = 'ackbox.interop.OrderNotice'
const order = { orderId: 'A-1', amountCents: 9_007_199_254_740_993n }

async function provider(
  t: Test,
  more: Record<string, string> = {}
): Promise<{ server: Server; call: Call; transport: Transport<Dubbo2Request> }> {
  const [tri = 0, dubbo = 0] = await freePorts(2)
  const running = await server(t, {
    name: 'dubbo',
    env: { TRI_PORT: `${tri}`, DUBBO_PORT: `${dubbo}`, ...more },
    ready: /READY tri=/
  })
  const broker = parseBroker('dubbo2', `dubbo://127.0.0.1:${dubbo}`)
  if (typeof broker === 'string') throw new Error(broker)
  const transport = dubbo2Transport({
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
    brokers: new Map<string, Broker>([['dubbo2', broker]]),
    log: { info: () => {}, warn: () => {} }
  })
  t.teardown(() => transport.close())
  return {
    server: running,
    transport,
    call: (method, types, args, { more = {}, given = {}, accepted } = {}) =>
      transport.send(
        { service: 'ackbox.interop.OrderNotifyService', method, types, args, ...more },
        sendContext(given),
        accepted
      )
  }
}
type Call = (
  method: string,
  types: string[],
  args: unknown[],
  how?: { more?: Partial<Dubbo2Request>; given?: Parameters<typeof sendContext>[0]; accepted?: Accepted }
) => ReturnType<Transport<Dubbo2Request>['send']>

const text = (outcome: { answer?: Uint8Array }): string => Buffer.from(outcome.answer ?? []).toString()

t.test('a Java provider over the classic protocol', { skip }, async t => {
  const { server: running, call } = await provider(t)

  await t.test('gets the call, its 64-bit numbers and our headers as attachments', async t => {
    const outcome = await call('notify', [notice], [order], { given: { ours: { 'webhook-id': 'msg_1' } } })
    t.match(outcome, { kind: 'delivered', address: /^127\.0\.0\.1:/ })
    t.match(text(outcome), '9007199254740993')
    t.match(text(outcome), '"webhook-id":"String:msg_1"')
  })

  await t.test('version and group are heeded', async t => {
    const blue = await call('notify', [notice], [order], { more: { version: '2.0.0', group: 'blue' } })
    t.match(text(blue), 'accepted by blue/2.0.0')
    t.match(text(await call('notify', [notice], [order])), 'accepted by default')
    t.match(await call('notify', [notice], [order], { more: { version: '9.9.9' } }), {
      kind: 'failed',
      reason: /^target_missing/
    })
  })

  await t.test('has its say by its result', async t => {
    const code =
      (wanted: number): Accepted =>
      ({ json }) =>
        (json as { code: number }).code === wanted
    t.match(await call('notify', [notice], [order], { accepted: code(7) }), {
      kind: 'failed',
      reason: 'not_accepted'
    })
    t.match(await call('notify', [notice], [order], { accepted: code(0) }), { kind: 'delivered' })
    t.match(await call('ping', [], []), { kind: 'delivered' }, 'void too')
  })

  await t.test('says what went wrong', async t => {
    const one = ['java.lang.String']
    t.match(await call('nothing', [], []), { kind: 'failed', reason: /^target_missing/ })
    t.match(await call('reject', one, ['A-1']), {
      kind: 'failed',
      reason: 'exception: ackbox.interop.OrderRejectedException: order A-1 is closed'
    })
    t.match(await call('crash', one, ['A-1']), {
      kind: 'failed',
      reason: /^exception: .*IllegalStateException: boom A-1/
    })
    const wrong = await call('notify', [notice], [{ amountCents: 'hunter2' }])
    t.match(wrong, { kind: 'refused', reason: /^bad_arguments/ })
    t.notMatch(JSON.stringify(wrong) + text(wrong), 'hunter2')
    t.match(await call('crash', one, ['x'.repeat(8_500_000)]), { kind: 'refused', reason: /^too_large/ })
    t.match(await call('ping', [], []), { kind: 'delivered' }, 'the next call works')
  })

  await t.test('any text survives, and what is posted names no Java class', async t => {
    const orderId = `${'a'.repeat(32_767)}\u{1f600}\0\u00e9`
    t.match(text(await call('notify', [notice], [{ orderId }])), JSON.stringify(orderId).slice(0, 16_000))
    const end = await call('crash', ['java.lang.String'], ['\u{1f600}\u00e9'])
    t.match(end, { reason: /boom \u{1f600}\u00e9$/u })
    const accepted: Accepted = ({ json }) => (json as { echo: { orderId: string } }).echo.orderId === orderId
    t.match(await call('notify', [notice], [{ orderId }], { accepted }), { kind: 'delivered' })
    const gadget = { $class: 'javax.swing.JTree', $: { orderId: 'inner' }, orderId: 'outer' }
    t.match(text(await call('notify', [notice], [gadget])), '"orderId":"outer"')
    const two = { extra: { high: 1, low: 2 } }
    t.match(text(await call('notify', [notice], [two])), /"high":1/)
  })

  await t.test('a class that the provider does not allow may be allowed later', async t => {
    const outcome = await call('notify', [notice], [{ class: 'com.acme.Nope' }])
    t.match(outcome, { kind: 'failed', reason: 'provider: service error' })
    t.match(await call('notify', ['com.acme.Nope'], [{}]), { kind: 'failed', reason: /^target_missing/ })
  })

  await t.test('one that hangs costs the deadline, and is served again when it is back', async t => {
    running.freeze()
    const began = stopwatch(t)
    const outcome = await call('ping', [], [], { given: { timeoutMs: 400 } })
    running.thaw()
    t.match(outcome, { kind: 'failed', reason: 'timeout' })
    t.ok(began() < 1_400)
    t.match(await call('ping', [], []), { kind: 'delivered' })
  })

  await t.test('too slow: the deadline is ours', async t => {
    const began = stopwatch(t)
    const slow = await call('slow', ['long'], [1_500], { given: { timeoutMs: 500 } })
    t.match(slow, { kind: 'failed', reason: /^timeout/ })
    t.ok(began() < 1_400)
  })

  await t.test('1,000 at once over one connection: each gets its own answer', async t => {
    const ids = Array.from({ length: 1_000 }, (_, i) => `order-${i}`)
    const outcomes = await Promise.all(
      ids.map(id => call('notify', [notice], [{ orderId: id }], { given: { timeoutMs: 30_000 } }))
    )
    t.ok(
      outcomes.every((each, i) => each.kind === 'delivered' && text(each).includes(`"orderId":"${ids[i]}"`))
    )
  })

  await t.test('killed: failures; back: calls go on', async t => {
    const flying = Array.from({ length: 10 }, () => call('slow', ['long'], [3_000]))
    await new Promise(resolve => setTimeout(resolve, 300))
    await running.kill()
    for (const outcome of await Promise.all(flying))
      t.match(outcome, { kind: 'failed', reason: /^connection_closed/ })
    t.match(await call('ping', [], []), { kind: 'failed', reason: 'connection_refused' })
    await running.start()
    await new Promise(resolve => setTimeout(resolve, 600))
    t.match(await call('ping', [], []), { kind: 'delivered' })
  })
})

t.test(
  'a Java provider that stops: what is on its way ends well, and nothing new is lost',
  { skip },
  async t => {
    const { server: running, call } = await provider(t)
    t.match(await call('ping', [], []), { kind: 'delivered' })
    const flying = call('slow', ['long'], [1_000])
    await new Promise(resolve => setTimeout(resolve, 200))
    running.ask()
    await new Promise(resolve => setTimeout(resolve, 200))
    const next = await call('ping', [], [])
    t.match(next.kind, /^(?:delivered|failed)$/)
    t.match(await flying, { kind: 'delivered' })
  }
)

t.test('a Java provider closes what is idle: the next call does not notice', { skip }, async t => {
  const { call } = await provider(t, { HEARTBEAT_MS: '1000' })
  t.match(await call('ping', [], []), { kind: 'delivered' })
  // It closes a connection after three heartbeats without a byte; our heartbeats are sent every 20 s.
  await new Promise(resolve => setTimeout(resolve, 5_000))
  t.match(await call('ping', [], []), { kind: 'delivered' })
})
