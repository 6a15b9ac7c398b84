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
