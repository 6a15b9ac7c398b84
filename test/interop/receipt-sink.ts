// As much of Ackbox as a receiver's receipts need: the first is answered 503, and comes again.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import type { Test } from 'tap'

export interface ReceiptSink {
  url: string
  /** Those that were answered 200. */
  receipts: unknown[]
}

export async function receiptSink(t: Test): Promise<ReceiptSink> {
  const receipts: unknown[] = []
  let isAway = true
  const server = createServer((request, response) => {
    void json(request).then(receipt => {
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
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, receipts }
}
