import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { readReceipts, receiptOf } from '../../src/transport/rabbitmq/receipts.ts'
import { receiptQueue as queue, type TakeReceipt, type ReceiptMessage } from '../../src/transport/receipts.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { broker, rabbit, said, skip, type Rabbit } from './rabbit.ts'
import { freePorts } from './server.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { until } from '../support/until.ts'
import { only } from '../support/only.ts'

const allowed = () => guard({ allow: undefined, embedded: true, deny: [] })

/** A consumer that runs until `stop`, or the end of the test. */
function running(t: Test, url: string, handle: TakeReceipt, gate = allowed()) {
  const { lines, log } = said()
  const end = new AbortController()
  const over = readReceipts({ broker: broker(url), guard: gate, log }, handle, end.signal)
  const clock = stopwatch(t)
  const stop = async (): Promise<number> => {
    const began = clock()
    end.abort()
    await over
    return clock() - began
  }
  t.teardown(stop)
  return { lines, stop }
}

/** A handler that records its messages. */
type Answer = 'done' | 'later'
function ledger(answer: (text: string) => Answer | Promise<Answer> = () => 'done') {
  const replies: ReceiptMessage[] = []
  const handle: TakeReceipt = async reply => {
    replies.push(reply)
    return answer(Buffer.from(reply.body).toString())
  }
  const texts = () => replies.map(each => Buffer.from(each.body).toString())
  return { replies, handle, texts }
}

const publish = (server: Rabbit, bodies: (string | Buffer)[], headers: Record<string, unknown> = {}) =>
  server.as(async connection => {
    const publisher = connection.createPublisher({ confirm: true })
    let lost = 0
    publisher.on('basic.return', () => lost++)
    const envelope = { routingKey: queue, durable: true, mandatory: true, headers }
    await Promise.all(
      bodies.map(body => publisher.send({ ...envelope, contentType: 'application/json' }, Buffer.from(body)))
    )
    await turn()
    await publisher.close()
    if (lost > 0) throw new Error(`${lost} had no queue`)
  })

const waiting = (server: Rabbit): Promise<number> =>
  server.as(async connection => (await connection.queueDeclare({ queue, passive: true })).messageCount)
const isThere = (server: Rabbit): Promise<boolean> =>
  waiting(server).then(
    () => true,
    () => false
  )

t.test('receipts by RabbitMQ', { skip }, async t => {
  const server = await rabbit(t)

  await t.test('the queue is made, a receipt is handled once, its bytes as they came', async t => {
    const { replies, handle } = ledger()
    const { stop, lines } = running(t, server.url(), handle)
    await until('the queue is there', () => isThere(server))
    const body = '{"taskNo": "a",\n "data":{"n":9007199254740993, "d": 1.0}}'
    await publish(server, [body, Buffer.from([255, 0, 123])], {
      'Ackbox-Callback-Token': 'v1.abc',
      count: 7,
      list: ['a']
    })
    await until('both are handled', () => replies.length === 2)
    t.equal(Buffer.from(replies[0]!.body).toString(), body)
    t.strictSame(replies[0]!.headers, { 'ackbox-callback-token': 'v1.abc', count: '7' })
    t.strictSame(Buffer.from(replies[1]!.body), Buffer.from([255, 0, 123]))
    t.ok((await stop()) < 15_000)
    t.equal(await waiting(server), 0)
    t.equal(replies.length, 2)
    t.same(lines, [])
  })

  await t.test('what is put off comes again, and what throws, and neither stops the others', async t => {
    let offs = 0
    let throws = 0
    const others = Array.from({ length: 300 }, (_, i) => `m${i}`)
    const haveCome = (): boolean => others.every(each => texts().includes(each))
    const { texts, handle } = ledger(text => {
      if (text === 'throws' && throws++ < 1) throw new Error('a fault of ours')
      return text === 'off' && (offs++ < 2 || !haveCome()) ? 'later' : 'done'
    })
    const { stop, lines } = running(t, server.url(), handle)
    const began = performance.now()
    await publish(server, ['off', 'throws', ...others])
    await until('all have come', haveCome)
    await until('one came again and again', () => offs > 2)
    await until('what threw came again', () => texts().filter(each => each === 'throws').length === 2)
    t.ok(performance.now() - began >= 1_900, 'not at once')
    await stop()
    t.equal(texts().length, 300 + 2 + offs)
    t.equal(await waiting(server), 0)
    t.match(lines, only(['receipt.failed', {}]))
  })

  await t.test('no more than a hundred at a time', async t => {
    let now = 0
    let most = 0
    const { texts, handle } = ledger(async () => {
      most = Math.max(most, ++now)
      // None is done before a hundred have arrived, since the speed depends on the machine.
      await until('a hundred are in hand', () => most >= 100)
      await sleep(20)
      now--
      return 'done' as const
    })
    const { stop } = running(t, server.url(), handle)
    await publish(
      server,
      Array.from({ length: 500 }, (_, i) => `m${i}`)
    )
    await until('all are handled', () => texts().length === 500)
    await stop()
    t.equal(most, 100)
  })

  await t.test('an end: what is nearly handled is finished, what hangs comes again', async t => {
    let release = () => {}
    const held = new Promise<void>(resolve => (release = resolve))
    const { texts, handle } = ledger(async text => {
      if (text === 'slow') await sleep(200)
      else if (text === 'hangs') await held
      return 'done' as const
    })
    const { stop } = running(t, server.url(), handle)
    await until('the queue is there', () => isThere(server))
    await publish(server, ['slow', 'hangs'])
    await until('both are in hand', () => texts().length === 2)
    t.ok((await stop()) < 15_000)
    release()
    const next = ledger()
    const again = running(t, server.url(), next.handle)
    await until('they come to the next one', () => next.texts().length > 0)
    await again.stop()
    t.same(next.texts(), ['hangs'])
  })

  await t.test('kill -9 of the broker loses nothing, and is said once', async t => {
    let open = (): void => {}
    const killed = new Promise<void>(resolve => (open = resolve))
    const { texts, handle } = ledger(async () => {
      // Most are still in the queue when the broker is killed, even if they are published slowly.
      await (texts().length > 300 ? killed : sleep(50))
      return 'done' as const
    })
    const { stop, lines } = running(t, server.url(), handle)
    const bodies = Array.from({ length: 2_000 }, (_, i) => `k${i}`)
    await publish(server, bodies)
    await until('some are handled', () => texts().length > 300)
    await server.server.kill()
    open()
    const before = new Set(texts()).size
    t.ok(before < 2_000, `${before} before the kill`)
    await sleep(1_500)
    await server.server.start()
    const back = stopwatch(t)
    await until('all are handled after the restart', () => new Set(texts()).size === 2_000)
    t.ok(back() < 30_000)
    await sleep(200)
    await stop()
    t.equal(await waiting(server), 0)
    // Handled messages may be unacknowledged.
    t.ok(texts().length <= 2_000 + 500, `${texts().length - 2_000} came twice`)
    t.match(lines, [
      ['receipts.unavailable', { reason: /^connection_closed/ }],
      ['receipts.available', { address: `127.0.0.1:${server.port}` }]
    ])
    t.equal(lines.length, 2)
  })

  await t.test('a broker that is down at the start, and up later', async t => {
    await server.server.kill()
    const { texts, handle } = ledger()
    const { stop, lines } = running(t, server.url(), handle)
    await sleep(1_000)
    await server.server.start()
    const back = stopwatch(t)
    await publish(server, ['late'])
    // Messages that were acknowledged just before the kill may arrive again with it
    await until('it is handled once the broker is up', () => texts().includes('late'))
    t.ok(back() < 20_000)
    t.ok((await stop()) < 15_000)
    t.match(
      lines,
      only(['receipts.unavailable', { reason: /^connection_refused/ }], ['receipts.available', {}])
    )
  })

  // This test is after the kills: if RabbitMQ 3.10 is killed right after a queue replaced a quorum queue of the same name, it loses
  // the new queue with its confirmed messages.
  await t.test('a queue of another kind is used as it is; one that is deleted is made again', async t => {
    const other = { queue, durable: true, arguments: { 'x-queue-type': 'quorum' } } as const
    await server.as(async connection => {
      await connection.queueDelete(queue)
      await connection.queueDeclare(other)
    })
    const { texts, handle } = ledger()
    const { stop, lines } = running(t, server.url(), handle)
    await publish(server, ['to a quorum'])
    await until('it is handled', () => texts().length === 1)
    await server.as(connection => connection.queueDelete(queue))
    await until('the queue is there again', () => isThere(server))
    await publish(server, ['to the new one'])
    await until('it is handled again', () => texts().length === 2)
    t.match(
      lines,
      only(
        ['receipts.unavailable', { queue, reason: 'target_missing: the queue was deleted' }],
        ['receipts.available', { queue }]
      )
    )
    await stop()
  })

  await t.test('a queue that limits deliveries loses nothing while PostgreSQL is away', async t => {
    await server.as(async connection => {
      await connection.queueDelete(queue)
      await connection.queueDeclare({
        queue,
        durable: true,
        arguments: { 'x-queue-type': 'quorum', 'x-delivery-limit': 2 }
      })
    })
    const away = ledger(() => 'later')
    const first = running(t, server.url(), away.handle)
    await publish(server, ['a', 'b'])
    const tries = (text: string): number => away.texts().filter(each => each === text).length
    await until('both are tried again', () => tries('a') >= 5 && tries('b') >= 5)
    t.equal(await waiting(server), 0, 'both are kept here')
    await first.stop()
    const back = ledger()
    const second = running(t, server.url(), back.handle)
    await until('both come to the next one', () => back.texts().length === 2)
    await second.stop()
    t.same(back.texts().toSorted(), ['a', 'b'], 'the stopped reader gave them back')
    t.equal(await waiting(server), 0)
    t.same([...first.lines, ...second.lines], [])
  })

  await t.test('a wrong password is said once, without it, and the end is at once', async t => {
    const { stop, lines } = running(t, server.url({ login: 'guest:wrong-one' }), ledger().handle)
    await until('the trouble is told', () => lines.length > 0)
    await sleep(1_500)
    t.match(lines, [['receipts.unavailable', { reason: /^credentials/ }]])
    t.equal(lines.length, 1)
    t.notMatch(JSON.stringify(lines), 'wrong-one')
    t.ok((await stop()) < 15_000)
  })
})

t.test('a broker at a denied address is not asked for receipts', async t => {
  const [port] = await freePorts(1)
  const denying = guard({ allow: [], embedded: false, deny: [] })
  const { lines, stop } = running(t, `amqp://127.0.0.1:${port}`, ledger().handle, denying)
  await until('the trouble is told', () => lines.length > 0)
  t.match(lines, only(['receipts.unavailable', { reason: /^blocked_target/ }]))
  t.ok((await stop()) < 15_000)
})

t.test('headers as other clients send them', async t => {
  const sent = {
    'Ackbox-Callback-Token': 'v1',
    b: Buffer.from('bytes'),
    n: 7,
    yes: true,
    t: { a: 1 },
    l: ['a']
  }
  t.strictSame(receiptOf({ body: Buffer.from('{}'), headers: sent }), {
    body: Buffer.from('{}'),
    headers: { 'ackbox-callback-token': 'v1', b: 'bytes', n: '7', yes: 'true' }
  })
  t.strictSame(receiptOf({ body: Buffer.alloc(0) }).headers, {})
})
