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
