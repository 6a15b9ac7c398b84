// A fake Ackbox that accepts a receiver's receipts. It first gives answers that are not final: the receipt must be sent again.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import type { Test } from 'tap'
import { door } from '../consumer/databases.ts'

export interface ReceiptSink {
  url: string
  /** The receipts that were answered as Ackbox does. */
  receipts: unknown[]
  /** Holds all requests from now on until `answer` is called. */
  hold(): { came: Promise<void>; answer: () => void }
}

export async function receiptSink(t: Test): Promise<ReceiptSink> {
  const receipts: unknown[] = []
  // Answers of a gateway are not final, a 200 neither, nor one in JSON. A sender that follows the redirect is detected, since it never gets its 200.
  const notFinal: [status: number, text: string][] = [
    [503, '{}'],
    [302, '{}'],
    [403, '{}'],
    [404, '{"code":"404","msg":"no route"}'],
    [200, '{"code":"0","msg":"welcome"}']
  ]
  let held: { came: () => void; answered: Promise<void> } | undefined
  const server = createServer((request, response) => {
    void json(request).then(async value => {
      const receipt = value as { taskNo: string }
      held?.came()
      await held?.answered
      const isOurs = request.url === '/callback' && request.headers['ackbox-callback-token'] === 'token-1'
      const page = isOurs ? notFinal.shift() : ([401, '{}'] as const)
      if (page !== undefined) {
        const [status, text] = page
        return response.writeHead(status, status === 302 ? { location: '/login' } : {}).end(text)
      }
      receipts.push(receipt)
      return response.end(JSON.stringify({ taskNo: receipt.taskNo, status: 'HANDLED', applied: true }))
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    receipts,
    hold() {
      const [came, answered] = [door(), door()]
      held = { came: came.open, answered: answered.opened }
      const answer = () => {
        held = undefined
        answered.open()
      }
      return { came: came.opened, answer }
    }
  }
}
