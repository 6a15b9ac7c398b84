import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import type { Transport } from '../../src/transport/types.ts'
import { sendContext } from '../transport/send-context.ts'
import { freePorts, type Server } from './server.ts'
import { only } from '../support/only.ts'
import { stopwatch } from '../support/stopwatch.ts'

/** A message as a consumer reads it. */
export interface Stored {
  body: Buffer
  headers: Record<string, string>
}

export interface BrokerUnderTest<Request> {
  server: Server
  /** The broker's URL with that host and port, or other credentials. */
  url(more?: { port?: number; login?: string }): string
  /** A transport whose only broker is at that URL, under its default name. */
  transport(url: string): Transport<Request>
  /** A request to the target of the test, which exists and is empty. */
  request(payload: { body?: string | Uint8Array; headers?: Record<string, string> }): Request
  /** A request to a target that does not exist. Undefined: the first message creates a target. */
  missing: (() => Request) | undefined
  /** A size above the limit of the server or its client. Undefined: there is no limit. */
  tooLarge: number | undefined
  /** Undefined: the server requires no login. */
  wrongLogin: string | undefined
  /** Reads all messages of the target from its beginning. Waits for at least `count`. */
  stored(count: number): Promise<Stored[]>
  /** The time that the client may need to find a restarted server, ms by a stopwatch. */
  backMs: number
}

/** The tests that every transport to a broker must pass, against the real broker. The server ends with the test. */
export function brokerConformance<Request>(
  t: Test,
  make: (t: Test) => Promise<BrokerUnderTest<Request>>
): void {
  const open = (t: Test, broker: BrokerUnderTest<Request>, url = broker.url()): Transport<Request> => {
    const transport = broker.transport(url)
    t.teardown(() => transport.close())
    return transport
  }
  const untilDelivered = async (t: Test, transport: Transport<Request>, broker: BrokerUnderTest<Request>) => {
    for (const began = stopwatch(t); ; await sleep(200)) {
      const context = sendContext({ raw: '{}', timeoutMs: 8_000 })
      const outcome = await transport.send(broker.request({ body: 'x' }), context)
      if (outcome.kind === 'delivered' || began() > broker.backMs) return outcome
    }
  }

  t.test('against a server that stays up', async t => {
    const broker = await make(t)
    const transport = open(t, broker)

    await t.test('what is taken is delivered, and says where to', async t => {
      const outcome = await transport.send(broker.request({ body: 'first' }), sendContext())
      t.match(outcome, { kind: 'delivered', address: /127\.0\.0\.1:\d+/ })
      t.match(await broker.stored(1), only({ body: Buffer.from('first') }))
    })

    await t.test('body and headers arrive byte for byte; by default the body is the posted text', async t => {
      const bodies = [
        '{"n": 1.0,\n "big":12345678901234567890, "e":"é你\u{1f600}" }',
        ' ',
        Buffer.from([0, 255, 13, 10, 0])
      ]
      const ours = {
        'webhook-signature': `v1,${'a+/='.repeat(11)}`,
        'ackbox-task-no': 'order.paid:vip:0',
        'ackbox-attempt': '3'
      }
      const before = (await broker.stored(1)).length
      let n = 0
      let signed: unknown
      const headers = (payload: string | Uint8Array) => {
        signed = payload
        return { ...ours, 'webhook-id': `msg_${++n}` }
      }
      for (const body of bodies) {
        const request = broker.request({ body, headers: { 'x-own': 'value' } })
        t.match(await transport.send(request, sendContext({ headers })), { kind: 'delivered' })
        t.equal(signed, body, 'signed over the very payload')
      }
      t.match(await transport.send(broker.request({}), sendContext({ headers, raw: '{"raw": 1.0}' })), {
        kind: 'delivered'
      })
      const stored = (await broker.stored(before + 4)).slice(before)
      t.strictSame(
        stored.map(each => each.body.toString('hex')),
        [...bodies, '{"raw": 1.0}'].map(body => Buffer.from(body).toString('hex'))
      )
      for (const [i, each] of stored.entries())
        t.match(each.headers, { ...ours, 'webhook-id': `msg_${i + 1}` })
      t.match(stored[0]?.headers, { 'x-own': 'value' })
    })

    const { missing } = broker
    await t.test(
      'a target that is not there says so, costs no time, and harms no neighbour',
      { skip: missing === undefined && 'targets are made by their first message' },
      async t => {
        if (!missing) return
        const began = stopwatch(t)
        const [good, bad, alsoGood] = await Promise.all([
          transport.send(broker.request({ body: 'x' }), sendContext()),
          transport.send(missing(), sendContext({ raw: '{}' })),
          transport.send(broker.request({ body: 'x' }), sendContext())
        ])
        t.match(bad, { kind: /failed|refused/, reason: /^target_missing/ })
        t.match(good, { kind: 'delivered' })
        t.match(alsoGood, { kind: 'delivered' })
        t.ok(began() < 4_000)
        t.match(await transport.send(broker.request({ body: 'x' }), sendContext()), { kind: 'delivered' })
      }
    )

    if (broker.tooLarge !== undefined) {
      const size = broker.tooLarge
      await t.test('what is too large is refused, and the next send works', async t => {
        const outcome = await transport.send(broker.request({ body: Buffer.alloc(size, 97) }), sendContext())
        t.match(outcome, { kind: 'refused', reason: /^too_large/ })
        t.match(await transport.send(broker.request({ body: 'x' }), sendContext()), { kind: 'delivered' })
      })
    }

    await t.test('1,000 at once: each arrives once', async t => {
      const before = (await broker.stored(1)).length
      const bodies = Array.from({ length: 1_000 }, (_, i) => JSON.stringify({ i, pad: 'x'.repeat(i % 300) }))
      const outcomes = await Promise.all(
        bodies.map(body => transport.send(broker.request({ body }), sendContext({ timeoutMs: 120_000 })))
      )
      t.same(new Set(outcomes.map(each => each.kind)), new Set(['delivered']))
      const stored = (await broker.stored(before + 1_000)).slice(before)
      t.strictSame(stored.map(each => each.body.toString()).toSorted(), bodies.toSorted())
    })

    if (broker.wrongLogin !== undefined) {
      const login = broker.wrongLogin
      await t.test('wrong credentials are said, and never shown', async t => {
        const outcome = await open(t, broker, broker.url({ login })).send(
          broker.request({ body: 'x' }),
          sendContext()
        )
        t.match(outcome, { kind: 'failed', reason: /^credentials/ })
        t.notMatch(JSON.stringify(outcome), login.split(':')[1]!)
      })
    }

    await t.test('nobody there: a failure soon, and the transport still closes', async t => {
      const [port] = await freePorts(1)
      const began = stopwatch(t)
      const outcome = await open(t, broker, broker.url({ port: port! })).send(
        broker.request({ body: 'x' }),
        sendContext({ timeoutMs: 6_000 })
      )
      t.match(outcome, { kind: 'failed', reason: /^(connection_refused|connect_timeout|timeout)/ })
      t.ok(began() < 7_000)
    })

    await t.test('a server that hangs costs the deadline, and is served again when it is back', async t => {
      broker.server.freeze()
      // The threads of a JVM stop one after the other; a send of 3 ms might still succeed.
      await sleep(100)
      const sent = performance.now()
      const began = stopwatch(t)
      const outcome = await transport.send(broker.request({ body: 'x' }), sendContext({ timeoutMs: 600 }))
      const took = performance.now() - sent
      const late = began()
      broker.server.thaw()
      t.match(outcome, { kind: 'failed', reason: 'timeout' })
      t.ok(took >= 599 && late < 4_000, `${Math.round(took)} ms`)
      t.match(await untilDelivered(t, transport, broker), { kind: 'delivered' })
    })

    await t.test('a shutdown lets go at once of what hangs, and sends nothing more', async t => {
      const own = open(t, broker)
      t.match(await own.send(broker.request({ body: 'x' }), sendContext()), { kind: 'delivered' })
      broker.server.freeze()
      const stop = new AbortController()
      const sent = own.send(broker.request({ body: 'x' }), sendContext({ signal: stop.signal }))
      await sleep(100)
      stop.abort()
      const began = stopwatch(t)
      t.match(await sent, { kind: 'failed', reason: 'shutdown' })
      t.ok(began() < 3_000)
      broker.server.thaw()
      const again = own.send(broker.request({ body: 'x' }), sendContext({ signal: stop.signal }))
      t.match(await again, { kind: 'failed', reason: 'shutdown' })
    })

    await t.test('closing ends what is in flight, and ends in time', async t => {
      const own = broker.transport(broker.url())
      t.match(await own.send(broker.request({ body: 'x' }), sendContext()), { kind: 'delivered' })
      broker.server.freeze()
      const sent = own.send(broker.request({ body: 'x' }), sendContext())
      await sleep(100)
      const began = stopwatch(t)
      await own.close()
      t.match(await sent, { kind: 'failed', reason: 'shutdown' })
      t.ok(began() < 3_000)
      broker.server.thaw()
    })
  })

  t.test('a server that is down at the start is a failure, and is served once it is up', async t => {
    const broker = await make(t)
    await broker.server.kill()
    const transport = open(t, broker)
    t.match(await transport.send(broker.request({ body: 'x' }), sendContext({ timeoutMs: 3_000 })), {
      kind: 'failed',
      reason: /./
    })
    await broker.server.start()
    t.match(await untilDelivered(t, transport, broker), { kind: 'delivered' })
  })

  t.test('killed in the middle and back: what was acknowledged is stored', async t => {
    const broker = await make(t)
    const transport = open(t, broker)
    const acknowledged: string[] = []
    const failed: string[] = []
    let n = 0
    let stop = false
    const sender = async () => {
      while (!stop) {
        const body = `m${n++}`
        const outcome = await transport.send(broker.request({ body }), sendContext({ timeoutMs: 3_000 }))
        if (outcome.kind === 'delivered') acknowledged.push(body)
        else failed.push(outcome.reason)
        await sleep(10)
      }
    }
    const senders = Array.from({ length: 8 }, sender)
    const untilAcknowledged = async (count: number) => {
      const began = stopwatch(t)
      while (acknowledged.length < count && began() < broker.backMs) await sleep(50)
    }
    await untilAcknowledged(50)
    await broker.server.kill()
    const before = acknowledged.length
    await sleep(500)
    await broker.server.start()
    await untilAcknowledged(before + 50)
    stop = true
    await Promise.all(senders)
    t.ok(before > 0, `${before} were acknowledged before the kill`)
    t.ok(
      acknowledged.length >= before + 50,
      `${acknowledged.length - before} after it; the last that failed: ${failed.at(-1)}`
    )
    t.ok(failed.length > 0, `${failed.length} failed`)
    const stored = (await broker.stored(acknowledged.length)).map(each => each.body.toString())
    const missing = acknowledged.filter(body => !stored.includes(body))
    t.same(missing, [], `${acknowledged.length} acknowledged, ${stored.length} stored`)
  })
}
