import { Redis } from 'ioredis'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { readReceipts } from '../../src/transport/redis-stream/receipts.ts'
import type { TakeReceipt } from '../../src/transport/receipts.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { without } from '../support/program.ts'
import { until } from '../support/until.ts'
import { freePorts, server } from './server.ts'

const skip = without('apt-get')

async function setup(t: Test) {
  const [port = 0] = await freePorts(1)
  const running = await server(t, {
    name: 'redis',
    env: { REDIS_PORT: String(port), REDIS_EXTRA: '--appendonly yes --appendfsync always' },
    ready: /Ready to accept connections/
  })
  const asked = async <T>(what: (client: Redis) => Promise<T>): Promise<T> => {
    const client = new Redis({ port })
    client.on('error', () => {})
    try {
      return await what(client)
    } finally {
      client.disconnect()
    }
  }
  const send = (...bodies: string[]) =>
    asked(async client => {
      for (const body of bodies)
        await client.xadd('ackbox.receipts', '*', 'body', body, 'Ackbox-Callback-Token', `token of ${body}`)
    })
  const left = () => asked(client => client.xlen('ackbox.receipts'))
  const logged: string[] = []
  const run = (handle: TakeReceipt) => {
    const stop = new AbortController()
    const say = (_: object, message: string) => logged.push(message)
    const deps = {
      broker: parseBroker('redis-stream', `redis://127.0.0.1:${port}`) as Broker,
      guard: guard({ allow: undefined, embedded: true, deny: [] }),
      log: { info: say, warn: say }
    }
    const done = readReceipts(deps, handle, stop.signal)
    const end = async () => {
      stop.abort()
      await done
    }
    t.teardown(end)
    return end
  }
  return { server: running, asked, send, left, run, logged }
}

t.test('receipts by redis streams', { skip }, async t => {
  await t.test(
    'each is handled once, with its token; later comes again; a poison one stops nobody',
    async t => {
      const queue = await setup(t)
      const seen: string[] = []
      const tokens = new Map<string, string | undefined>()
      const end = queue.run(async ({ body, headers }) => {
        const text = Buffer.from(body).toString()
        seen.push(text)
        tokens.set(text, headers['ackbox-callback-token'])
        const times = seen.filter(each => each === text).length
        if (text === 'poison' && times < 3) throw new Error('broken')
        return text === 'later' && times < 2 ? 'later' : 'done'
      })
      await queue.send('poison', 'later', 'a', '{"n":"é你"}')
      await until('all are handled', () => seen.length === 7)
      await until('nothing is left', async () => (await queue.left()) === 0)
      t.same(seen.toSorted(), ['a', 'later', 'later', 'poison', 'poison', 'poison', '{"n":"é你"}'])
      t.equal(tokens.get('a'), 'token of a')
      await end()
      const pending = await queue.asked(client => client.xpending('ackbox.receipts', 'ackbox'))
      t.equal(pending[0], 0, 'and nothing is owed')
    }
  )

  await t.test('what a killed process had in hand, and a kill of the server, lose nothing', async t => {
    const queue = await setup(t)
    await queue.send('in hand')
    // A process read it and died. By IDLE, Redis treats that as long ago.
    await queue.asked(async client => {
      await client.xgroup('CREATE', 'ackbox.receipts', 'ackbox', '0')
      await client.xreadgroup('GROUP', 'ackbox', 'ackbox', 'STREAMS', 'ackbox.receipts', '>')
      const [first] = await client.xrange('ackbox.receipts', '-', '+')
      const id = first?.[0] ?? ''
      await client.xclaim('ackbox.receipts', 'ackbox', 'ackbox', 0, id, 'IDLE', 61_000, 'JUSTID')
    })
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
    await until('it is said', () => queue.logged.includes('broker.unavailable'))
    await queue.server.start()
    await queue.send('after')
    await until('all are handled', () => done.has('in hand') && done.has('after') && done.size >= 302)
    await until('nothing is left', async () => (await queue.left()) === 0)
    t.equal(done.size, 302)
  })

  await t.test('a key that is no stream is said once, and used when it is gone', async t => {
    const queue = await setup(t)
    await queue.asked(client => client.set('ackbox.receipts', 'x'))
    const done: string[] = []
    queue.run(async ({ body }) => {
      done.push(Buffer.from(body).toString())
      return 'done'
    })
    await until('it is said', () => queue.logged.includes('receipts.unavailable'))
    await queue.asked(client => client.del('ackbox.receipts'))
    await queue.send('a')
    await until('it is handled', () => done.length === 1)
    t.same(
      queue.logged.filter(each => each.startsWith('receipts.')),
      ['receipts.unavailable', 'receipts.available']
    )
  })
})
