import type { Test } from 'tap'
import type { Accepted, Transport } from '../../src/transport/types.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { sendContext } from './send-context.ts'

/** A message as a downstream of any transport received it: the payload and the headers (attachments, properties). */
export interface Seen {
  headers: Record<string, string>
  body: Buffer
}

/** The behaviour of the downstream from now on. `echo` answers with the body that it received, so that mix-ups show. */
export type Mood = 'take' | 'echo' | 'fail' | 'refuse' | 'hang' | 'too large'

export interface DownstreamUnderTest<Request> {
  transport: Transport<Request>
  /** The transport's `accepted` for `echo` and `refuse`, if it needs one. */
  accepted?: Accepted
  seen: Seen[]
  request(payload: { body: string | Uint8Array; headers?: Record<string, string> }): Request
  /** The signed bytes, if they are not the body itself. */
  signed?(body: string | Uint8Array): string | Uint8Array
  /** The body in an answer of `echo`, if the answer is not the body itself. */
  echoed?(answer: string): string
  mood(mood: Mood): void
  /** Kills it: connections are reset, and new ones refused, until `start` restores it at the same address. */
  stop(): Promise<void>
  start(): Promise<void>
  /** Resolves when a request has arrived and has no answer. */
  hanging(): Promise<void>
  /** Resolves when the connection of the request that hung is gone. */
  letGo(): Promise<void>
}

/** The rules for every transport. `make` returns a downstream that is up and accepts all; it ends with the test. */
export function conformance<Request>(
  t: Test,
  make: (t: Test) => Promise<DownstreamUnderTest<Request>>
): void {
  const text = (outcome: object): string =>
    Buffer.from('answer' in outcome ? (outcome.answer as Uint8Array) : []).toString()

  t.test('what is taken is delivered', async t => {
    const d = await make(t)
    t.match(await d.transport.send(d.request({ body: '{"a":1}' }), sendContext()), {
      kind: 'delivered',
      address: /./
    })
  })

  t.test('what is refused for good is refused, and what fails may be tried again', async t => {
    const d = await make(t)
    d.mood('refuse')
    t.match(await d.transport.send(d.request({ body: 'x' }), sendContext(), d.accepted), {
      kind: 'refused',
      reason: /./
    })
    d.mood('fail')
    t.match(await d.transport.send(d.request({ body: 'x' }), sendContext()), { kind: 'failed', reason: /./ })
    d.mood('take')
    t.match(
      await d.transport.send(d.request({ body: 'x' }), sendContext()),
      { kind: 'delivered' },
      'the next send works'
    )
  })

  t.test('body and headers arrive byte for byte', async t => {
    const d = await make(t)
    const bodies = [
      '{"n": 1.0,\n "big":12345678901234567890, "e":"é你\u{1f600}" }',
      '',
      ' ',
      Buffer.from([0, 255, 13, 10, 0])
    ]
    const ours = {
      'webhook-id': 'msg_1',
      'webhook-signature': `v1,${'a+/='.repeat(11)}`,
      'ackbox-task-no': 'order.paid:vip:0',
      'ackbox-attempt': '3'
    }
    let signed: unknown
    for (const body of bodies) {
      const headers = (payload: string | Uint8Array) => {
        signed = payload
        return ours
      }
      t.match(
        await d.transport.send(
          d.request({ body, headers: { 'x-latin1': 'Gr\u00fc\u00dfe' } }),
          sendContext({ headers })
        ),
        { kind: 'delivered' }
      )
      t.equal(signed, d.signed?.(body) ?? body, 'signed over the very payload')
      const last = d.seen.at(-1)
      t.strictSame(last?.body, Buffer.from(body))
      t.match(last?.headers, { ...ours, 'x-latin1': 'Gr\u00fc\u00dfe' })
    }
  })

  t.test(
    'a send that ends at its signature sends nothing: so a request is made without sending it',
    async t => {
      const d = await make(t)
      const stop = new Error('made, not sent')
      const headers = (): never => {
        throw stop
      }
      await t.rejects(d.transport.send(d.request({ body: '{}' }), sendContext({ headers })), stop)
      t.match(await d.transport.send(d.request({ body: '{"a":1}' }), sendContext()), { kind: 'delivered' })
      t.strictSame(
        d.seen.map(({ body }) => String(body)),
        ['{"a":1}']
      )
    }
  )

  t.test('1,000 at once: each gets its own answer, and each arrives once', async t => {
    const d = await make(t)
    d.mood('echo')
    const bodies = Array.from({ length: 1_000 }, (_, i) => JSON.stringify({ i, pad: 'x'.repeat(i % 300) }))
    const outcomes = await Promise.all(
      bodies.map(body => d.transport.send(d.request({ body }), sendContext({ timeoutMs: 120_000 })))
    )
    t.same(
      outcomes.filter(({ kind }) => kind !== 'delivered'),
      []
    )
    t.strictSame(
      outcomes.map(each => (d.echoed ? d.echoed(text(each)) : text(each))),
      bodies
    )
    t.strictSame(d.seen.map(each => each.body.toString()).toSorted(), bodies.toSorted())
  })

  t.test('a downstream that is down at the start is a failure, and is served once it is up', async t => {
    const d = await make(t)
    await d.stop()
    t.match(await d.transport.send(d.request({ body: 'x' }), sendContext()), { kind: 'failed', reason: /./ })
    await d.start()
    t.match(await d.transport.send(d.request({ body: 'x' }), sendContext()), { kind: 'delivered' })
  })

  t.test(
    'a downstream killed while it works on ten: ten failures, and all is well when it is back',
    async t => {
      const d = await make(t)
      d.mood('hang')
      const sends = Array.from({ length: 10 }, () =>
        d.transport.send(d.request({ body: 'x' }), sendContext())
      )
      await d.hanging()
      await d.stop()
      for (const outcome of await Promise.all(sends)) t.match(outcome, { kind: 'failed', reason: /./ })
      d.mood('take')
      await d.start()
      t.match(await d.transport.send(d.request({ body: 'x' }), sendContext()), { kind: 'delivered' })
    }
  )

  t.test('a downstream that hangs costs its deadline, and frees what it held', async t => {
    const d = await make(t)
    d.mood('hang')
    const started = performance.now()
    const counted = stopwatch(t)
    const outcome = await d.transport.send(d.request({ body: 'x' }), sendContext({ timeoutMs: 300 }))
    const took = performance.now() - started
    t.match(outcome, { kind: 'failed', reason: 'timeout' })
    t.ok(took >= 299 && counted() < 1_300, `${Math.round(took)} ms`)
    d.mood('take')
    t.match(await d.transport.send(d.request({ body: 'x' }), sendContext()), { kind: 'delivered' })
    await d.letGo()
  })

  t.test('an answer that is too large is cut', async t => {
    const d = await make(t)
    d.mood('too large')
    const outcome = await d.transport.send(d.request({ body: 'x' }), sendContext())
    t.match(outcome, { kind: 'delivered', warning: 'answer_too_long' })
    const kept = 'answer' in outcome ? (outcome.answer?.length ?? 0) : 0
    t.ok(kept > 0 && kept <= 16_384, `${kept} bytes are kept`)
    d.mood('take')
    t.match(await d.transport.send(d.request({ body: 'x' }), sendContext()), { kind: 'delivered' })
  })

  t.test('a shutdown lets go at once of what hangs, and sends nothing more', async t => {
    const d = await make(t)
    d.mood('hang')
    const stop = new AbortController()
    const sent = d.transport.send(d.request({ body: 'x' }), sendContext({ signal: stop.signal }))
    await d.hanging()
    stop.abort()
    t.match(await sent, { kind: 'failed', reason: 'shutdown' })
    const before = d.seen.length
    t.match(await d.transport.send(d.request({ body: 'x' }), sendContext({ signal: stop.signal })), {
      kind: 'failed',
      reason: 'shutdown'
    })
    t.equal(d.seen.length, before)
  })

  t.test('closing the transport ends what is in flight', async t => {
    const d = await make(t)
    d.mood('hang')
    const sent = d.transport.send(d.request({ body: 'x' }), sendContext())
    await d.hanging()
    await d.transport.close()
    t.match(await sent, { kind: 'failed', reason: 'shutdown' })
  })
}
