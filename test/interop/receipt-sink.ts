// As much of Ackbox as a receiver's receipts need: the first comes until its answer is final.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import type { Test } from 'tap'
import { door } from '../consumer/databases.ts'

export interface ReceiptSink {
  url: string
  /** Those that were answered 200. */
  receipts: unknown[]
  /** What comes from now on is answered when the one that is given is called. */
  hold(): { came: Promise<void>; answer: () => void }
}

export async function receiptSink(t: Test): Promise<ReceiptSink> {
  const receipts: unknown[] = []
  // What a proxy says is not final; one that follows the redirect is found out.
  const notFinal = [503, 302, 403, 404]
  let held: { came: () => void; answered: Promise<void> } | undefined
  const server = createServer((request, response) => {
    void json(request).then(async receipt => {
      held?.came()
      await held?.answered
      const isOurs = request.url === '/callback' && request.headers['ackbox-callback-token'] === 'token-1'
      const status = isOurs ? (notFinal.shift() ?? 200) : 401
      if (status === 200) receipts.push(receipt)
      response.writeHead(status, status === 302 ? { location: '/login' } : {}).end('{}')
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
