import { connect, headers as newHeaders, type NatsConnection } from '@nats-io/transport-node'
import { jetstream, jetstreamManager } from '@nats-io/jetstream'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { without } from '../support/program.ts'
import { until } from '../support/until.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { readReceipts } from '../../src/transport/nats/receipts.ts'
import type { TakeReceipt } from '../../src/transport/receipts.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { freePorts, server } from './server.ts'

const skip = without('apt-get')

async function setup(t: Test) {
  const [port] = await freePorts(1)
  const running = await server(t, {
    name: 'nats',
    env: { NATS_PORT: String(port) },
    ready: /Server is ready/
  })
  const asked = async <T>(what: (client: NatsConnection) => Promise<T>): Promise<T> => {
    const client = await connect({ servers: `127.0.0.1:${port}` })
    try {
      return await what(client)
    } finally {
      await client.close()
    }
  }
  const stream = () =>
    asked(async client => {
      const manager = await jetstreamManager(client)
      await manager.streams.add({ name: 'RECEIPTS', subjects: ['ackbox.receipts'] })
    })
  const send = (...bodies: string[]) =>
    asked(async client => {
      for (const body of bodies) {
        const headers = newHeaders()
        headers.set('Ackbox-Callback-Token', `token of ${body}`)
        await jetstream(client).publish('ackbox.receipts', body, { headers })
      }
    })
  const waiting = () =>
    asked(async client => {
      const { num_pending, num_ack_pending } = await (
        await jetstreamManager(client)
      ).consumers.info('RECEIPTS', 'ackbox')
      return num_pending + num_ack_pending
    })
  const logged: string[] = []
  const run = (handle: TakeReceipt) => {
    const stop = new AbortController()
    const log = {
      info: (_: object, message: string) => logged.push(message),
      warn: (_: object, message: string) => logged.push(message)
    }
    const running = readReceipts(
      {
        broker: parseBroker('nats', `nats://127.0.0.1:${port}`) as Broker,
        guard: guard({ allow: undefined, embedded: true, deny: [] }),
        log
      },
      handle,
      stop.signal
    )
    const end = async () => {
      stop.abort()
      await running
    }
    t.teardown(end)
    return end
  }
  return { server: running, address: `127.0.0.1:${port}`, stream, send, waiting, run, logged }
}

t.test('receipts by nats', { skip }, async t => {
  t.test('each is handled once, with its token; later comes again; a poison one stops nobody', async t => {
    const queue = await setup(t)
    await queue.stream()
    const seen: string[] = []
    const tokens: (string | undefined)[] = []
    const end = queue.run(async ({ body, headers }) => {
      const text = Buffer.from(body).toString()
      seen.push(text)
      tokens.push(headers['ackbox-callback-token'])
      const times = seen.filter(each => each === text).length
      if (text === 'poison' && times < 3) throw new Error('broken')
      return text === 'later' && times < 2 ? 'later' : 'done'
    })
    await queue.send('poison', 'later', 'a', 'b')
    await until(
      () => `7 are handled: ${seen.join()}`,
      () => seen.length === 7
    )
    await until('nothing is left', async () => (await queue.waiting()) === 0)
    t.same(seen.toSorted(), ['a', 'b', 'later', 'later', 'poison', 'poison', 'poison'])
    t.equal(tokens[seen.indexOf('a')], 'token of a')
    const began = stopwatch(t)
    await end()
    t.ok(began() < 3_000, 'it ends at once')
  })

  t.test('a consumer that limits deliveries loses nothing while PostgreSQL is away', async t => {
    const queue = await setup(t)
    await queue.stream()
    const client = await connect({ servers: queue.address })
    t.teardown(() => client.close())
    const { consumers } = await jetstreamManager(client)
    await consumers.add('RECEIPTS', {
      durable_name: 'ackbox',
      filter_subject: 'ackbox.receipts',
      ack_policy: 'explicit',
      ack_wait: 300_000 * 1_000_000,
      max_deliver: 2
    })
    let kept = 0
    client.subscribe('$JS.ACK.RECEIPTS.ackbox.>', {
      callback: (_, message) => void (message.string() === '+WPI' && kept++)
    })
    await client.flush()
    let tries = 0
    const first = queue.run(async () => {
      tries++
      return 'later'
    })
    await queue.send('a')
    await until(
      () => `it is kept: ${tries} tries, kept ${kept} times`,
      () => tries >= 5 && kept >= 3
    )
    t.equal((await consumers.info('RECEIPTS', 'ackbox')).num_redelivered, 0, 'it is kept here')
    await first()
    const seen: string[] = []
    queue.run(async ({ body }) => {
      seen.push(Buffer.from(body).toString())
      return 'done'
    })
    await until('it is given back, and taken', async () => seen.length > 0 && (await queue.waiting()) === 0)
    t.same(seen, ['a'])
  })

  t.test('a kill in between loses nothing', async t => {
    const queue = await setup(t)
    await queue.stream()
    const bodies = Array.from({ length: 300 }, (_, i) => `r${i}`)
    await queue.send(...bodies)
    const done = new Set<string>()
    queue.run(async ({ body }) => {
      await sleep(20)
      done.add(Buffer.from(body).toString())
      return 'done'
    })
    await until('some are handled', () => done.size >= 100)
    await queue.server.kill()
    await sleep(300)
    await queue.server.start()
    const back = stopwatch(t)
    await queue.send('after')
    await until(
      () => `all are handled: ${done.size} of 301`,
      () => done.size === 301
    )
    t.ok(back() < 30_000)
  })

  t.test(
    'a broker that is down at the start, and then a stream that is not there, are waited for',
    async t => {
      const queue = await setup(t)
      await queue.server.kill()
      const seen: string[] = []
      queue.run(async ({ body }) => {
        seen.push(Buffer.from(body).toString())
        return 'done'
      })
      await sleep(1_500)
      await queue.server.start()
      await until('the trouble is told', () => queue.logged.includes('receipts.unavailable'))
      await queue.stream()
      await queue.send('a')
      await until('it is handled', () => seen.length === 1)
      t.same(queue.logged, [
        'broker.unavailable',
        'broker.available',
        'receipts.unavailable',
        'receipts.available'
      ])
    }
  )
})
