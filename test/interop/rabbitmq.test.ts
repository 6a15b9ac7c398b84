import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { stopwatch } from '../support/stopwatch.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { rabbitmqTransport, type RabbitmqRequest } from '../../src/transport/rabbitmq/rabbitmq.ts'
import type { Transport } from '../../src/transport/types.ts'
import { key, selfSigned } from '../transport/certs.ts'
import { sendContext } from '../transport/send-context.ts'
import { brokerConformance } from './conformance.ts'
import { bound, broker, rabbit, said, skip, type Rabbit } from './rabbit.ts'
import { freePorts } from './server.ts'

const most = 1_000_000
const limits = `max_message_size = ${most}`

function transport(url: string, log = said().log): Transport<RabbitmqRequest> {
  return rabbitmqTransport({
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
    brokers: new Map([['rabbitmq', broker(url)]]),
    log
  })
}

const paid = (more: Partial<RabbitmqRequest> = {}): RabbitmqRequest => ({
  exchange: 'events',
  routingKey: 'order.paid',
  ...more
})

async function setup(t: Test): Promise<{ server: Rabbit; ways: Transport<RabbitmqRequest> }> {
  const server = await rabbit(t, limits)
  await server.as(connection => bound(connection, 'events', 'order.*', 'orders'))
  const ways = transport(server.url())
  t.teardown(() => ways.close())
  return { server, ways }
}

t.test('as every broker', { skip }, t => {
  brokerConformance<RabbitmqRequest>(t, async t => {
    const server = await rabbit(t, limits)
    const declare = () => server.as(connection => bound(connection, 'events', 'order.*', 'orders'))
    await declare()
    return {
      server: {
        ...server.server,
        async start() {
          await server.server.start()
          // As consumers do when they reconnect: RabbitMQ may lose a binding that was made a second before a kill.
          await declare()
        }
      },
      url: server.url,
      transport,
      request: paid,
      missing: () => paid({ exchange: 'nobody-made-this' }),
      tooLarge: most + 1,
      wrongLogin: 'guest:not-the-password',
      stored: count => server.stored('orders', count),
      backMs: 20_000
    }
  })
  t.end()
})

t.test('what only RabbitMQ does', { skip }, async t => {
  const { server, ways } = await setup(t)
  const empty = () => server.as(connection => connection.queuePurge('orders'))
  const bodies = async (count: number) =>
    (await server.stored('orders', count)).map(each => each.body.toString())

  await t.test(
    'a message is persistent, JSON unless the handler says otherwise, named by its webhook-id',
    async t => {
      const ours = { 'webhook-id': 'msg_7', 'ackbox-task-no': 'no-7' }
      t.match(await ways.send(paid({ body: '{}' }), sendContext({ ours })), { kind: 'delivered' })
      t.match(
        await ways.send(
          paid({ body: Buffer.from([1]), headers: { 'Content-Type': 'x/y' } }),
          sendContext({ ours })
        ),
        { kind: 'delivered' }
      )
      const [first, second] = await server.stored('orders', 2)
      t.match(first, { messageId: 'msg_7', durable: true, routingKey: 'order.paid' })
      t.strictSame(first?.headers, ours)
      t.strictSame(second?.headers, ours)
      const types = await server.as(async connection => {
        const got = [await connection.basicGet('orders'), await connection.basicGet('orders')]
        return got.map(each => each?.contentType)
      })
      t.same(types, ['application/json', 'x/y'])
      await empty()
    }
  )

  await t.test('what no queue takes is a failure, with 999 others in flight that it is not', async t => {
    const requests = Array.from({ length: 1_000 }, (_, i) =>
      i % 3 === 0
        ? paid({ routingKey: 'nobody.listens', body: `lost ${i}` })
        : i % 3 === 1
          ? { routingKey: 'no-such-queue', body: `lost ${i}` }
          : paid({ body: `kept ${i}` })
    )
    const outcomes = await Promise.all(requests.map(request => ways.send(request, sendContext())))
    for (const [i, outcome] of outcomes.entries()) {
      const wanted =
        i % 3 === 2 ? { kind: 'delivered' } : { kind: 'failed', reason: /^target_missing: .*(queue|bound)/ }
      if (outcome.kind !== wanted.kind) t.match(outcome, wanted, `message ${i}`)
    }
    t.match(outcomes[0], { reason: /exchange events with the key nobody.listens/ })
    t.match(outcomes[1], { reason: /the queue no-such-queue does not exist/ })
    const kept = requests.map(each => String(each.body)).filter(body => body.startsWith('kept'))
    const stored = await bodies(kept.length)
    t.equal(stored.length, kept.length, 'each once')
    t.same(new Set(stored), new Set(kept))
    await empty()
  })

  await t.test(
    'one delivery twice at once, here and to nowhere: nothing is called delivered that is not',
    async t => {
      const pairs = Array.from({ length: 50 }, (_, i) => ({ 'webhook-id': `twin-${i}` }))
      const lost = await Promise.all(
        pairs.flatMap(ours => [
          ways.send(paid({ body: 'kept' }), sendContext({ ours })).then(() => undefined),
          ways.send(paid({ routingKey: 'nobody.listens' }), sendContext({ ours }))
        ])
      )
      for (const outcome of lost) if (outcome) t.match(outcome, { reason: /^target_missing/ })
      await empty()
    }
  )

  await t.test('a missing exchange closes a channel, and no other exchange is harmed by it', async t => {
    const requests = Array.from({ length: 600 }, (_, i) =>
      paid({ body: `m${i}`, ...(i % 4 === 0 && { exchange: 'not-yet' }) })
    )
    const outcomes = await Promise.all(requests.map(request => ways.send(request, sendContext())))
    t.same(new Set(outcomes.filter((_, i) => i % 4 !== 0).map(each => each.kind)), new Set(['delivered']))
    for (const [i, outcome] of outcomes.entries())
      if (i % 4 === 0)
        t.match(outcome, { kind: 'failed', reason: 'target_missing: the exchange not-yet does not exist' })
    t.equal((await bodies(450)).length, 450, 'each once')
    await server.as(connection => bound(connection, 'not-yet', '#', 'orders'))
    t.match(
      await ways.send(paid({ exchange: 'not-yet' }), sendContext()),
      { kind: 'delivered' },
      'made since'
    )
    await empty()
  })

  await t.test(
    'one that is too large closes the channel under 999 neighbours, and they are delivered',
    async t => {
      const fresh = transport(server.url())
      t.teardown(() => fresh.close())
      for (const round of ['unknown yet', 'known by now']) {
        const outcomes = await Promise.all(
          Array.from({ length: 1_000 }, (_, i) =>
            fresh.send(paid({ body: i === 500 ? Buffer.alloc(most + 1) : `n${i}` }), sendContext())
          )
        )
        t.match(outcomes[500], {
          kind: 'refused',
          reason: /^too_large: 1000001 bytes, the broker takes 1000000/
        })
        t.equal(outcomes.filter(each => each.kind === 'delivered').length, 999, round)
        t.equal(new Set(await bodies(999)).size, 999)
        await empty()
      }
    }
  )

  await t.test('a full queue that rejects is a failure, and served when there is room', async t => {
    await server.as(async connection => {
      const arguments_ = { 'x-max-length': 1, 'x-overflow': 'reject-publish' } as const
      await connection.queueDeclare({ queue: 'narrow', arguments: arguments_ })
    })
    const narrow = { routingKey: 'narrow', body: 'x' }
    t.match(await ways.send(narrow, sendContext()), { kind: 'delivered' })
    t.match(await ways.send(narrow, sendContext()), { kind: 'failed', reason: /^rejected/ })
    const some = await Promise.all(
      Array.from({ length: 100 }, (_, i) => ways.send(i % 2 ? narrow : paid(), sendContext()))
    )
    t.same(new Set(some.filter((_, i) => i % 2).map(each => each.kind)), new Set(['failed']))
    t.same(new Set(some.filter((_, i) => i % 2 === 0).map(each => each.kind)), new Set(['delivered']))
    await server.as(connection => connection.queuePurge('narrow'))
    t.match(await ways.send(narrow, sendContext()), { kind: 'delivered' })
    await empty()
  })

  await t.test('more exchanges than channels are kept', async t => {
    const names = Array.from({ length: 150 }, (_, i) => `wide-${i}`)
    await server.as(async connection => {
      for (const exchange of names) await bound(connection, exchange, '#', 'orders')
    })
    for (const round of [1, 2]) {
      const outcomes = await Promise.all(names.map(exchange => ways.send(paid({ exchange }), sendContext())))
      t.same(new Set(outcomes.map(each => each.kind)), new Set(['delivered']), `round ${round}`)
    }
    t.equal((await bodies(300)).length, 300)
    await empty()
  })

  await t.test('a virtual host that is not there, and a second host that is', async t => {
    const nowhere = transport(server.url({ path: 'nowhere' }))
    t.match(await nowhere.send(paid(), sendContext()), {
      kind: 'failed',
      reason: /^target_missing: .*virtual host/
    })
    await nowhere.close()
    const [dead] = await freePorts(1)
    const two = transport(server.url().replace('@', `@127.0.0.1:${dead},`))
    t.match(await two.send(paid(), sendContext()), { kind: 'delivered', address: `127.0.0.1:${server.port}` })
    await two.close()
    await empty()
  })

  await t.test('a user who may not write there, and one who may not use one key', async t => {
    await server.ctl('add_user', 'clerk', 'pass')
    await server.ctl('set_permissions', 'clerk', '.*', '^(events|not-yet)$', '.*')
    await server.ctl('set_topic_permissions', 'clerk', 'events', '^order\\.', '.*')
    const clerk = transport(server.url({ login: 'clerk:pass' }))
    t.teardown(() => clerk.close())
    t.match(await clerk.send({ routingKey: 'orders' }, sendContext()), {
      kind: 'failed',
      reason: /^credentials/
    })
    const outcomes = await Promise.all(
      Array.from({ length: 100 }, (_, i) =>
        clerk.send(paid({ body: `c${i}`, ...(i === 50 && { routingKey: 'secret.paid' }) }), sendContext())
      )
    )
    t.match(outcomes[50], { kind: 'failed', reason: /^credentials: .* with the key secret.paid/ })
    t.equal(outcomes.filter(each => each.kind === 'delivered').length, 99)
    await empty()
  })

  await t.test('a broker that is short of memory takes nothing, and fills nothing of ours', async t => {
    const own = transport(server.url())
    t.teardown(() => own.close())
    t.match(await own.send(paid(), sendContext()), { kind: 'delivered' })
    await server.ctl('set_vm_memory_high_watermark', 'absolute', '1')
    // It notifies its publishers that they are blocked, and their messages wait.
    for (let said = ''; !said.startsWith('blocked'); await sleep(50)) {
      const outcome = await own.send(paid(), sendContext({ timeoutMs: 500 }))
      said = outcome.kind === 'failed' ? outcome.reason : ''
      t.match(outcome.kind === 'failed' ? outcome.reason : 'blocked', /^(timeout|blocked)/)
    }
    const began = stopwatch(t)
    t.match(await own.send(paid(), sendContext()), { kind: 'failed', reason: /^blocked/ })
    t.ok(began() < 2_000)
    await server.ctl('set_vm_memory_high_watermark', 'absolute', '512MiB')
    for (const end = Date.now() + 300_000; Date.now() < end; await sleep(100))
      if ((await own.send(paid(), sendContext())).kind === 'delivered') break
    t.match(await own.send(paid(), sendContext()), { kind: 'delivered' })
    await empty()
  })

  await t.test(
    'megabytes that are never confirmed are let go of, and what comes after them is delivered',
    async t => {
      const own = transport(server.url())
      t.teardown(() => own.close())
      t.match(await own.send(paid(), sendContext()), { kind: 'delivered' })
      server.server.freeze()
      const body = Buffer.alloc(500_000)
      for (const round of [1, 2]) {
        const lost = Array.from({ length: 50 }, () =>
          own.send(paid({ body }), sendContext({ timeoutMs: 300 }))
        )
        for (const outcome of await Promise.all(lost))
          t.match(outcome, { kind: 'failed', reason: 'timeout' }, `round ${round}`)
      }
      server.server.thaw()
      for (const end = Date.now() + 300_000; Date.now() < end; await sleep(100))
        if ((await own.send(paid(), sendContext({ timeoutMs: 1_000 }))).kind === 'delivered') break
      const after = await Promise.all(Array.from({ length: 100 }, () => own.send(paid(), sendContext())))
      t.same(new Set(after.map(each => each.kind)), new Set(['delivered']))
      await empty()
    }
  )

  await t.test('trouble is said once when it begins and once when it is over', async t => {
    const { lines, log } = said()
    const own = transport(server.url(), log)
    t.teardown(() => own.close())
    t.match(await own.send(paid(), sendContext()), { kind: 'delivered' })
    t.same(lines, [], 'nothing is said of what goes well')
    await server.server.kill()
    for (let i = 0; i < 20; i++) {
      t.match(await own.send(paid(), sendContext()), { kind: 'failed', reason: /^connection_/ })
      await sleep(20)
    }
    await server.server.start()
    await Promise.all(Array.from({ length: 20 }, () => own.send(paid(), sendContext())))
    t.match(await own.send(paid(), sendContext()), { kind: 'delivered' })
    t.match(lines, [
      ['broker.unavailable', { broker: 'rabbitmq', reason: /^connection_/ }],
      ['broker.available', { broker: 'rabbitmq', address: `127.0.0.1:${server.port}` }]
    ])
    t.equal(lines.length, 2)
    t.notMatch(JSON.stringify(lines), 'guest')
  })
})

t.test('a broker at a denied address is never connected to', async t => {
  let connections = 0
  const listener = createServer(socket => {
    connections++
    socket.destroy()
  }).listen(0, '127.0.0.1')
  await once(listener, 'listening')
  t.teardown(() => listener.close())
  const { port } = listener.address() as AddressInfo
  for (const host of ['127.0.0.1', 'localhost']) {
    const ways = rabbitmqTransport({
      guard: guard({ allow: [], embedded: false, deny: [] }),
      brokers: new Map([['rabbitmq', broker(`amqp://guest:guest@${host}:${port}`)]]),
      log: said().log
    })
    t.match(await ways.send(paid(), sendContext()), {
      kind: 'failed',
      alarm: 'BLOCKED_TARGET',
      reason: /^blocked_target/
    })
    await ways.close()
  }
  t.equal(connections, 0)
})

t.test('a server that takes the connection and says nothing', async t => {
  const listener = createServer().listen(0, '127.0.0.1')
  await once(listener, 'listening')
  t.teardown(() => listener.close())
  const { port } = listener.address() as AddressInfo
  const ways = transport(`amqp://127.0.0.1:${port}`)
  t.match(await ways.send(paid(), sendContext({ timeoutMs: 300 })), {
    kind: 'failed',
    reason: 'connect_timeout'
  })
  const sent = ways.send(paid(), sendContext())
  const began = stopwatch(t)
  await ways.close()
  t.match(await sent, { kind: 'failed', reason: 'shutdown' })
  t.match(await ways.send(paid(), sendContext()), { kind: 'failed', reason: 'shutdown' })
  t.ok(began() < 3_000)
})

t.test('amqps asks for the name it was given, and a certificate that nobody vouches for is said', async t => {
  const names: string[] = []
  const listener = createTlsServer({
    key,
    cert: selfSigned,
    SNICallback: (name, tell) => {
      names.push(name)
      tell(null)
    }
  }).listen(0, '127.0.0.1')
  listener.on('tlsClientError', () => {})
  listener.on('connection', socket => socket.on('error', () => {}))
  await once(listener, 'listening')
  t.teardown(() => listener.close())
  const { port } = listener.address() as AddressInfo
  const ways = transport(`amqps://guest:guest@localhost:${port}`)
  t.match(await ways.send(paid(), sendContext()), { kind: 'failed', alarm: 'TLS', reason: /^tls: / })
  t.same(names, ['localhost'])
  await ways.close()
})
