import { setTimeout as sleep } from 'node:timers/promises'
import { jetstream, jetstreamManager } from '@nats-io/jetstream'
import { connect, headers as natsHeaders } from '@nats-io/transport-node'
import t, { type Test } from 'tap'
import { consume } from '../../src/reply/nats.ts'
import type { Reply } from '../../src/reply/reply.ts'
import { until } from '../support/until.ts'
import { only } from './open.ts'
import { freePorts, server, without } from './server.ts'

const skip = without('apt-get', 'dpkg')

async function setup(t: Test, answer: (reply: Reply, seen: number) => 'done' | 'later') {
  const [port = 0] = await freePorts(1)
  const running = await server(t, { name: 'nats', env: { NATS_PORT: `${port}` }, ready: /Server is ready/ })
  const connection = await connect({
    servers: `127.0.0.1:${port}`,
    maxReconnectAttempts: -1,
    reconnectTimeWait: 50
  })
  t.teardown(() => connection.close())
  const manager = await jetstreamManager(connection)
  await manager.streams.add({ name: 'receipts', subjects: ['ackbox.receipts'] })
  const { guard, brokers, log, said } = only('nats', `nats://127.0.0.1:${port}`)
  const stop = new AbortController()
  const seen: string[] = []
  const done = consume(
    { broker: brokers.get('nats')!, guard, log },
    async reply => {
      seen.push(`${Buffer.from(reply.body).toString()} ${reply.headers['ackbox-callback-token'] ?? ''}`)
      return answer(reply, seen.length)
    },
    stop.signal
  )
  t.teardown(async () => {
    stop.abort()
    await done
  })
  const publish = async (body: string) => {
    const all = natsHeaders()
    all.set('Ackbox-Callback-Token', 'token')
    await jetstream(connection).publish('ackbox.receipts', body, { headers: all })
  }
  const left = async () => {
    const info = await manager.consumers.info('receipts', 'ackbox')
    return info.num_pending + info.num_ack_pending
  }
  return { server: running, publish, seen, left, stop, done, said }
}

t.test(
  'each receipt is handled once, with its token, and leaves the stream’s consumer',
  { skip },
  async t => {
    const { publish, seen, left, stop, done } = await setup(t, () => 'done')
    for (let i = 0; i < 250; i++) await publish(`r${i}`)
    await until('all are handled', () => seen.length >= 250)
    t.strictSame(seen.toSorted(), Array.from({ length: 250 }, (_, i) => `r${i} token`).toSorted())
    await until('all are acknowledged', async () => (await left()) === 0)
    const began = performance.now()
    stop.abort()
    await done
    t.ok(performance.now() - began < 1_500, 'it ends at once')
  }
)

t.test('one that must come later comes again, and holds up no other', { skip }, async t => {
  const { publish, seen, left } = await setup(t, (reply, n) =>
    Buffer.from(reply.body).toString() === 'later' && n < 20 ? 'later' : 'done'
  )
  await publish('later')
  for (let i = 0; i < 20; i++) await publish(`r${i}`)
  await until('all came', () => seen.length >= 22)
  await until('all are acknowledged', async () => (await left()) === 0)
  t.ok(seen.filter(each => each.startsWith('later')).length >= 2)
})

t.test('a server that is killed loses none, and is said once', { skip }, async t => {
  const { server: running, publish, seen, said } = await setup(t, () => 'done')
  await publish('before')
  await until('the first came', () => seen.length === 1)
  await running.kill()
  await sleep(300)
  await running.start()
  await until('it takes again', async () =>
    publish('after').then(
      () => true,
      () => false
    )
  )
  await until('the second came', () => seen.includes('after token'))
  await until('it is said', () => said.length === 2)
  t.same(
    said.map(each => each.message),
    ['receipts.away', 'receipts.back']
  )
})
