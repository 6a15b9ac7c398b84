import t, { type Test } from 'tap'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { rabbitmqTransport } from '../../src/transport/rabbitmq/rabbitmq.ts'
import { method, rabbitmqMethods } from './conversations.ts'
import { scriptedServer } from './scripted-server.ts'
import { sendContext } from './send-context.ts'

const megabyte = 1_024 * 1_024
/** A tag beyond any, and `multiple`. */
const allSoFar = Buffer.from([0, 0, 0, 0, 0, 0, 255, 255, 1])

/** A broker that confirms only what is sent to the exchange `well`, and opens and closes channels or does not. */
async function unconfirming(t: Test, broker: { closes: boolean; opens?: boolean }) {
  const exchanges = new Map<number, string>()
  const closed: (string | undefined)[] = []
  const toOpen = { came: (): void => {} }
  let awaited = { exchange: '', came: (): void => {} }
  const server = await scriptedServer(
    t,
    rabbitmqMethods((socket, channel, name, fields) => {
      if (name === '20.40') {
        closed.push(exchanges.get(channel))
        return broker.closes
      }
      if (name === '20.10') {
        toOpen.came()
        return broker.opens ?? true
      }
      if (name !== '60.40') return true
      const exchange = fields.toString('latin1', 3, 3 + (fields[2] ?? 0))
      exchanges.set(channel, exchange)
      if (exchange === 'well') socket.write(method(channel, 60, 80, allSoFar))
      if (exchange === awaited.exchange) awaited.came()
      return true
    })
  )
  const transport = rabbitmqTransport({
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
    brokers: new Map([['rabbitmq', parseBroker('rabbitmq', `amqp://127.0.0.1:${server.port}`) as Broker]]),
    log: { info: () => {}, warn: () => {} }
  })
  t.teardown(() => transport.close())
  return {
    server,
    closed,
    /** Sends that end without a confirmation, once the broker has them. */
    async leave(...sends: [exchange: string, megabytes: number][]) {
      const over = new AbortController()
      const outcomes = []
      for (const [exchange, megabytes] of sends) {
        const came = new Promise<void>(resolve => (awaited = { exchange, came: resolve }))
        const body = Buffer.alloc(megabytes * megabyte)
        outcomes.push(
          transport.send({ exchange, routingKey: '', body }, sendContext({ signal: over.signal }))
        )
        await came
      }
      over.abort()
      await Promise.all(outcomes)
    },
    /** A send that ends while the broker has its channel to open. */
    unopened(megabytes: number) {
      const over = new AbortController()
      const body = Buffer.alloc(megabytes * megabyte)
      toOpen.came = () => over.abort()
      return transport.send({ exchange: 'a', routingKey: '', body }, sendContext({ signal: over.signal }))
    },
    /** A send that is confirmed. A channel is opened for it if `well` has none. */
    confirm: () => transport.send({ exchange: 'well', routingKey: '', body: 'x' }, sendContext())
  }
}

t.test(
  'what several exchanges leave unconfirmed is bounded together, and the fullest channel is closed',
  async t => {
    const broker = await unconfirming(t, { closes: true })
    await broker.leave(['a', 5], ['b', 7], ['c', 5])
    for (let i = 0; i < 100 && broker.closed.length === 0; i++) await broker.confirm()
    t.same(broker.closed, ['b'])
    await broker.leave(['d', 3])
    await broker.confirm()
    t.same(broker.closed, ['b'], 'the bytes of a closed channel no longer count')
    t.equal(broker.server.taken, 1)
  }
)

t.test('a broker that neither confirms nor closes channels loses the connection', async t => {
  const broker = await unconfirming(t, { closes: false })
  await broker.leave(['a', 17])
  await broker.leave(['b', 17])
  t.match(await broker.confirm(), { kind: 'delivered' })
  t.equal(broker.server.taken, 2)
})

t.test(
  'a broker that does not open a channel loses the connection, with the sends that wait for it',
  async t => {
    const behaviour = { closes: true, opens: false }
    const broker = await unconfirming(t, behaviour)
    t.match(await broker.unopened(17), { kind: 'failed' })
    behaviour.opens = true
    t.match(await broker.confirm(), { kind: 'delivered' })
    t.equal(broker.server.taken, 2)
  }
)
