import t from 'tap'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { natsTransport } from '../../src/transport/nats/nats.ts'
import { nats } from './conversations.ts'
import { scriptedServer } from './scripted-server.ts'
import { sendContext } from './send-context.ts'

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
