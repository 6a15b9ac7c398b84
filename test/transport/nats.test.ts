import t from 'tap'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { natsLink } from '../../src/transport/nats/connection.ts'
import { natsTransport } from '../../src/transport/nats/nats.ts'
import { until } from '../support/until.ts'
import { nats } from './conversations.ts'
import { scriptedServer } from './scripted-server.ts'
import { sendContext } from './send-context.ts'

t.setTimeout(2_400_000)

t.test('only the ack of a stream is one: any subscriber may answer', async t => {
  const answers: [json: string, outcome: object][] = [
    ['{"stream":"ORDERS","seq":7}', { kind: 'delivered', messageId: 'ORDERS/7' }],
    ...[
      '{}',
      '{"ok":true}',
      '{"stream":"","seq":7}',
      '{"stream":7,"seq":7}',
      '{"stream":"ORDERS"}',
      '{"stream":"ORDERS","seq":0}',
      '{"stream":"ORDERS","seq":"7"}',
      '7'
    ].map((json): [string, object] => [json, { kind: 'failed', messageId: undefined }])
  ]
  for (const [json, outcome] of answers) {
    const server = await scriptedServer(
      t,
      nats((socket, said) => {
        const [, inbox = ''] = /HPUB \S+ (\S+) /.exec(said.toString('latin1')) ?? []
        socket.write(`MSG ${inbox} 1 ${json.length}\r\n${json}\r\n`)
      })
    )
    const broker = parseBroker('nats', `nats://127.0.0.1:${server.port}`) as Broker
    const transport = natsTransport({
      guard: guard({ allow: undefined, embedded: true, deny: [] }),
      brokers: new Map([['nats', broker]]),
      log: { info: () => {}, warn: () => {} }
    })
    t.match(await transport.send({ subject: 'orders.paid' }, sendContext({ raw: 'x' })), outcome, json)
    await transport.close()
  }
})

t.test(
  'a server that stops reading is given up, also with much unsent, and the next host is used',
  async t => {
    const hangs = await scriptedServer(
      t,
      nats(socket => socket.pause())
    )
    const sound = await scriptedServer(
      t,
      nats(() => {})
    )
    const logged: string[] = []
    const say = (_: object, message: string): void => void logged.push(message)
    const hosts = `127.0.0.1:${hangs.port},127.0.0.1:${sound.port}`
    const link = natsLink(
      parseBroker('nats', `nats://${hosts}`) as Broker,
      { guard: guard({ allow: undefined, embedded: true, deny: [] }), log: { info: say, warn: say } },
      65_536,
      100
    )
    t.teardown(() => link.close())
    const client = await link.client()
    // More than the kernel takes: the rest waits in the process.
    const payload = new Uint8Array(1_000_000)
    for (let n = 0; n < 48; n++) client.publish('orders.paid', payload)
    await until('the other host is used', async () => {
      const server = await link.client().then(
        each => each.getServer(),
        () => ''
      )
      return server.endsWith(`:${sound.port}`)
    })
    t.ok(logged.includes('broker.unavailable'), 'and it is said')
  }
)
