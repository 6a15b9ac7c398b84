import { mock } from 'node:test'
import t from 'tap'
import { parseBroker } from '../../src/transport/broker.ts'
import { link, type Live } from '../../src/transport/connection.ts'
import { guard } from '../../src/transport/egress/guard.ts'

t.test('a connection that was dropped is not used again, even while its end takes long', async t => {
  const broker = parseBroker('redis-stream', 'redis://127.0.0.1:6379')
  if (typeof broker === 'string') throw new Error(broker)
  const events: string[] = []
  const log = {
    info: (_: object, event: string) => events.push(event),
    warn: (_: object, event: string) => events.push(event)
  }
  let opened = 0
  // A silent socket: its end is requested, but never comes.
  const open = async (): Promise<Live<number>> => ({
    client: ++opened,
    gone: new Promise(() => {}),
    end: () => events.push('end')
  })
  const way = link(broker, { guard: guard({ allow: undefined, embedded: true, deny: [] }), log }, open)
  t.equal(await way.client(), 1)
  way.drop(1)
  t.equal(way.current, undefined)
  t.equal(await way.client(), 2)
  way.drop(1)
  t.equal(way.current, 2, 'a late drop of the old one leaves the new one')
  t.same(events, ['end', 'broker.unavailable', 'broker.available'])
  way.close()
})

t.test('after a loss the next host is connected to, and one that opened is kept', async t => {
  const broker = parseBroker('nats', 'nats://127.0.0.1,127.0.0.2,127.0.0.3')
  if (typeof broker === 'string') throw new Error(broker)
  const down = new Set(['127.0.0.1'])
  const asked: string[] = []
  let lose = (): void => {}
  const open = async ({ host }: { host: string }): Promise<Live<{ host: string }>> => {
    asked.push(host)
    if (down.has(host)) throw new Error(host)
    return { client: { host }, gone: new Promise<void>(resolve => (lose = resolve)), end: () => {} }
  }
  const log = { info: () => {}, warn: () => {} }
  const way = link(broker, { guard: guard({ allow: undefined, embedded: true, deny: [] }), log }, open)
  const first = await way.client()
  t.equal(await way.client(), first)
  way.drop(first)
  t.equal((await way.client()).host, '127.0.0.3')
  down.clear()
  lose()
  await new Promise(setImmediate)
  t.equal((await way.client()).host, '127.0.0.1')
  t.same(asked, ['127.0.0.1', '127.0.0.2', '127.0.0.3', '127.0.0.1'])
  way.close()
})

t.test(
  'one that accepts and closes at once is opened once in half a second, and its loss is not said each time',
  async t => {
    const broker = parseBroker('dubbo', 'dubbo://127.0.0.1:20880')
    if (typeof broker === 'string') throw new Error(broker)
    mock.timers.enable({ apis: ['setTimeout'] })
    t.teardown(() => mock.timers.reset())
    let clock = 0
    t.capture(performance, 'now', () => clock)
    const pass = (ms: number): void => {
      clock += ms
      mock.timers.tick(ms)
    }
    const said: string[] = []
    const say = (_: object, event: string): void => void said.push(event)
    let opened = 0
    let lose: (() => void) | undefined
    let isBrief = true
    const open = async (): Promise<Live<number>> => {
      const gone = isBrief ? Promise.resolve() : new Promise<void>(resolve => (lose = resolve))
      return { client: ++opened, gone, end: () => {} }
    }
    const deps = {
      guard: guard({ allow: undefined, embedded: true, deny: [] }),
      log: { info: say, warn: say }
    }
    const way = link(broker, deps, open)
    for (let send = 0; send < 1_000; send++) {
      await way.client().catch((error: unknown) => t.match(error, { message: 'connection_closed' }))
      pass(10)
    }
    t.equal(opened, 21)
    const unavailable = ['broker.unavailable', 'broker.available', 'broker.unavailable']
    t.same(said, unavailable)
    isBrief = false
    pass(500)
    t.equal(await way.client(), 22)
    t.same(said, unavailable, 'it has not lasted yet')
    pass(1_000)
    t.same(said, [...unavailable, 'broker.available'])
    lose?.()
    await new Promise(setImmediate)
    t.equal(await way.client(), 23, 'after one that lasted there is no rest')
    t.same(said.slice(4), ['broker.unavailable', 'broker.available'])
    way.close()
  }
)
