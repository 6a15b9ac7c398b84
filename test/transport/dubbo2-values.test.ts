import hessian from 'hessian.js'
import t, { type Test } from 'tap'
import { callBody, javaArgs, readResponse } from '../../src/transport/dubbo/hessian.ts'
import { frameOf, type Frame } from '../../src/transport/dubbo/classic-frame.ts'
import { jsonOf } from '../../src/transport/dubbo/hessian-json.ts'
import type { Accepted } from '../../src/transport/types.ts'
import { workedMs } from '../support/stopwatch.ts'
import { provider } from './dubbo2-provider.ts'
import { sendContext } from './send-context.ts'

/** The first argument as a provider reads it. With `withType`, each value comes with its Java type. */
function arrived(arg: unknown, withType = false): unknown {
  const body = callBody({ service: 'a.B', method: 'm', types: ['x'], args: [] }, javaArgs([arg]), {})
  const decoder = new hessian.DecoderV2(body)
  for (let i = 0; i < 7; i++) decoder.read()
  const args = (decoder.read as (withType: boolean) => unknown[] | { $: unknown[] }).call(decoder, withType)
  return Array.isArray(args) ? args[0] : args.$[0]
}

t.test('a producer cannot choose a Java class by what he posts', async t => {
  const gadget = { $class: 'com.evil.Gadget', $: { a: 1 } }
  t.match(arrived(gadget, true), { $class: 'java.util.HashMap', $: { $class: 'com.evil.Gadget' } })
  const bytes = callBody({ service: 'a.B', method: 'm', types: ['x'], args: [] }, javaArgs([gadget]), {})
  // C opens the definition of a class; a map has none.
  t.notOk(bytes.includes(Buffer.from('C\u000fcom.evil.Gadget')))
  t.ok(bytes.includes(Buffer.from('\u0006$class\u000fcom.evil.Gadget')), 'a text among texts')
})

t.test('values arrive as what they are', async t => {
  t.same(arrived({ high: 1, low: 2 }), { high: 1, low: 2 }, 'no number made of two')
  t.same(arrived(9_007_199_254_740_993n), '9007199254740993')
  t.same(arrived(-(2n ** 63n)), '-9223372036854775808')
  t.same(arrived(new Uint8Array([1, 2, 255])), Buffer.from([1, 2, 255]))
  t.same(arrived(new Date(Number.NaN)), null)
  t.same(arrived([undefined, Number.NaN, null]), [null, null, null])
  const text = `${'a'.repeat(32_767)}\u{1f600}\0é`
  t.equal(arrived(text), text)
})

t.test('what hessian has not is the handler’s mistake, and is not sent', async t => {
  const { send, received } = await provider(t, () => {})
  const round: { self?: unknown } = {}
  round.self = round
  for (const arg of [2n ** 63n, round])
    t.match(await send({ types: ['x'], args: [arg] }), { kind: 'failed', reason: /^bad_request: args has/ })
  t.equal(received.length, 0)
})

t.test('20,000 objects are written in a moment', async t => {
  const ms = workedMs(() => arrived(Array.from({ length: 20_000 }, (_, i) => ({ i }))))
  t.ok(ms < 2_000, `${ms} ms`)
})

/** Nested lists of two items, the second a reference to the first: each of the `deep` levels doubles the size. */
function doubling(deep: number): Buffer {
  const start = Buffer.alloc(deep, 0x7a)
  const ends = Array.from({ length: deep }, (_, i) => [0x51, 0x90 + deep - i])
  return Buffer.concat([Buffer.from([0x91]), start, Buffer.from([0x78]), Buffer.from(ends.flat())])
}

t.test('a result that stands for more than any memory holds is cut', async t => {
  const returned = readResponse(20, doubling(40))
  if (returned.kind !== 'value') return t.fail('a value')
  const ms = workedMs(() => t.match(jsonOf(returned.value, 65_536), { whole: false }))
  t.ok(ms < 1_000, `${ms} ms`)
})

const answering = async (t: Test, body: Buffer, accepted?: Accepted) => {
  const { transport } = await provider(t, (socket, { id }: Frame) => {
    socket.write(frameOf(0, 20, id, body))
  })
  return transport.send({ service: 'a.B', method: 'm', types: [], args: [] }, sendContext(), accepted)
}

t.test('a result within itself is still a result', async t => {
  const round = Buffer.from([0x91, 0x48, 0x01, 0x61, 0x51, 0x90, 0x5a])
  const outcome = await answering(t, round)
  t.match(outcome, { kind: 'delivered' })
  t.equal(Buffer.from(outcome.answer ?? []).toString(), '{"a":null}')
})

t.test('too long a result: delivered, and not judged by its beginning', async t => {
  const long = doubling(40)
  t.match(await answering(t, long), { kind: 'delivered', warning: 'answer_too_long' })
  t.match(await answering(t, long, ({ status }) => status === 200), { kind: 'delivered' })
  t.match(await answering(t, long, ({ json }) => json === undefined), {
    kind: 'failed',
    reason: 'answer_too_long'
  })
})

t.test('what is no result delivers nothing', async t => {
  for (const body of [
    [0x99],
    [0x01, 0x41],
    [],
    [0x91],
    [0x91, 0x43],
    [0x91, 0x48],
    [0x94, ...Array<number>(9_999).fill(0x79)]
  ])
    t.match(
      await answering(t, Buffer.from(body)),
      { kind: 'failed', reason: /^protocol/ },
      body.slice(0, 3).join(' ')
    )
})

t.test('an async accepted fails the attempt and not the process', async t => {
  const never: unknown = async () => {
    throw new Error('nobody catches this')
  }
  t.match(await answering(t, Buffer.from([0x92]), never as Accepted), {
    kind: 'failed',
    reason: 'accepted_async'
  })
})

t.test('the proofs that went out do not come back in an exception’s message', async t => {
  const token = `v1.AbCdEf12.k3v9xq.points.3.${'s'.repeat(43)}`
  const encoder = new hessian.EncoderV2()
  encoder.write(0)
  encoder.write({
    $class: 'com.alibaba.dubbo.rpc.service.GenericException',
    $: { exceptionClass: 'com.acme.Closed', exceptionMessage: `seen ${token}`, detailMessage: 'other' }
  })
  const outcome = await answering(t, encoder.get())
  t.match(outcome, { kind: 'failed', reason: /^exception: com\.acme\.Closed: seen v1\..*\[masked\]$/ })
  t.notMatch(JSON.stringify(outcome), 's'.repeat(43))
})
