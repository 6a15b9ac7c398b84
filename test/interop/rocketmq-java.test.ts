import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import t from 'tap'
import { without } from '../support/program.ts'
import { javaExample } from './java.ts'
import { sendContext } from '../transport/send-context.ts'
import { accessKey, accessSecret, login, rocketmqServer, transportTo } from './rocketmq-server.ts'

const skip = without('java', 'mvn')

t.setTimeout(2_400_000)

t.test(
  'the Java example handles a delivery once and sends a receipt until Ackbox has it',
  { skip },
  async t => {
    const receipts: { token: unknown; body: unknown }[] = []
    const ackbox = createServer((request, response) => {
      void json(request).then(body => {
        receipts.push({ token: request.headers['ackbox-callback-token'], body })
        // These are from a gateway in front of Ackbox: Ackbox has not received the receipt.
        const pages: [status: number, text: string][] = [
          [404, '{"code":"404","msg":"no route"}'],
          [200, '{"code":"0","msg":"welcome"}']
        ]
        const [status, text] = pages[receipts.length - 1] ?? [200, '{"taskNo":"order.paid:1"}']
        response.writeHead(status).end(text)
      })
    }).listen(0, '127.0.0.1')
    await once(ackbox, 'listening')
    t.teardown(() => ackbox.close())

    const { port } = await rocketmqServer(t)
    const { said, until } = await javaExample(t, 'ackbox.example.rocketmq.Receiver', {
      ENDPOINTS: `127.0.0.1:${port}`,
      TOPIC: 'orders',
      ACCESS_KEY: accessKey,
      SECRET_KEY: accessSecret,
      ACKBOX_URL: `http://127.0.0.1:${(ackbox.address() as AddressInfo).port}`
    })

    const transport = transportTo(`rocketmq://${login}@127.0.0.1:${port}`)
    t.teardown(() => transport.close())
    const ours = {
      'webhook-id': 'msg_1',
      'ackbox-task-no': 'order.paid:1',
      'ackbox-message-code': 'order.paid',
      'ackbox-callback-url': 'http://127.0.0.1:1/callback',
      'ackbox-callback-token': 'v1.token'
    }
    for (const n of [3, 4]) {
      const outcome = await transport.send(
        { topic: 'orders', body: '{"orderId":"1"}' },
        sendContext({ ours })
      )
      t.match(outcome, { kind: 'delivered' })
      await until(() => receipts.length >= n)
    }
    const receipt = {
      token: 'v1.token',
      body: { taskNo: 'order.paid:1', messageCode: 'order.paid', result: 'HANDLED' }
    }
    t.strictSame(receipts, [receipt, receipt, receipt, receipt])
    t.equal(said().split('handled msg_1 {"orderId":"1"}').length, 2, 'handled once')
    t.match(said(), /again msg_1/)
  }
)
