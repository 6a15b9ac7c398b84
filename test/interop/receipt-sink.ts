// As much of Ackbox as a receiver's receipts need: the first is answered 503, and comes again.
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
  let isAway = true
  let held: { came: () => void; answered: Promise<void> } | undefined
  const server = createServer((request, response) => {
    void json(request).then(async receipt => {
      held?.came()
      await held?.answered
      const isOurs = request.url === '/callback' && request.headers['ackbox-callback-token'] === 'token-1'
      if (isOurs && !isAway) receipts.push(receipt)
      response.writeHead(!isOurs ? 401 : isAway ? 503 : 200).end('{}')
      isAway = false
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
