// A downstream for tests: it records every request, answers as the test sets it, and sends receipts.
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { fetch } from 'undici'

export interface SinkRequest {
  path: string
  headers: IncomingHttpHeaders
  body: string
  at: number
}

export interface Sink {
  url: string
  requests: SinkRequest[]
  /** The number of requests with this taskNo. */
  count(taskNo: string): number
  /** Resolves when `n` requests have arrived. */
  received(n: number): Promise<void>
}

export interface SinkOptions {
  /** The status of the answer; 200 by default. 'hang' never answers; a promise answers when it resolves. */
  answer?: (request: SinkRequest) => number | 'hang' | Promise<number>
  /** Whether requests that expect a receipt get one; true by default. A receipt is sent again until the service accepts it. */
  receipts?: boolean | ((request: SinkRequest) => boolean)
}

export async function sink(
  t: Test,
  { answer = () => 200, receipts = true }: SinkOptions = {}
): Promise<Sink> {
  const requests: SinkRequest[] = []
  const counts = new Map<string, number>()
  const waiters: { n: number; resolve: () => void }[] = []
  const stop = new AbortController()
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const seen = {
        path: request.url ?? '',
        headers: request.headers,
        body: Buffer.concat(chunks).toString(),
        at: Date.now()
      }
      requests.push(seen)
      const taskNo = String(seen.headers['ackbox-task-no'])
      counts.set(taskNo, (counts.get(taskNo) ?? 0) + 1)
      for (const waiter of waiters) if (requests.length >= waiter.n) waiter.resolve()
      void reply(seen, response)
    })
  })
  async function reply(seen: SinkRequest, response: ServerResponse): Promise<void> {
    const status = await answer(seen)
    if (status === 'hang') return
    response.writeHead(status).end()
    const wanted = typeof receipts === 'function' ? receipts(seen) : receipts
    if (wanted && status < 300 && seen.headers['ackbox-callback-url']) void sendReceipt(seen, stop.signal)
  }
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(async () => {
    stop.abort()
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    count: taskNo => counts.get(taskNo) ?? 0,
    received: n =>
      new Promise(resolve => {
        if (requests.length >= n) resolve()
        else waiters.push({ n, resolve })
      })
  }
}

/** As a good downstream does: it repeats the receipt until it is answered, even if the service is down meanwhile. */
async function sendReceipt({ headers }: SinkRequest, signal: AbortSignal): Promise<void> {
  for (let wait = 50; !signal.aborted; wait = Math.min(wait * 2, 1_000)) {
    try {
      const answer = await fetch(String(headers['ackbox-callback-url']), {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'ackbox-callback-token': String(headers['ackbox-callback-token'])
        },
        body: JSON.stringify({
          taskNo: headers['ackbox-task-no'],
          messageCode: headers['ackbox-message-code']
        }),
        // A stopped process does not answer.
        signal: AbortSignal.any([signal, AbortSignal.timeout(5_000)])
      })
      await answer.arrayBuffer()
      if (answer.status < 500) return
    } catch {} // the service is away: try again after the wait
    await new Promise(resolve => setTimeout(resolve, wait))
  }
}
