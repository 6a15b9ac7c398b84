import { once, setMaxListeners } from 'node:events'
import {
  Agent,
  createServer,
  request as httpRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse
} from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as wait } from 'node:timers/promises'
import { behaviour, kinds, type Behaviour, type PlannedReceipt } from './behaviour.ts'
import { createHmac, timingSafeEqual } from 'node:crypto'

const toleranceS = 300

/**
 * The check of any Standard Webhooks receiver (https://www.standardwebhooks.com). It imports no code of Ackbox, so that it
 * can be copied. `headers`: those of Node. `body`: the exact bytes. `secret`: `whsec_…`.
 */
export function verify(headers: IncomingHttpHeaders, body: Buffer, secret: string, nowS: number): boolean {
  const id = headers['webhook-id']
  const timestamp = headers['webhook-timestamp']
  const signatures = headers['webhook-signature']
  if (typeof id !== 'string' || typeof timestamp !== 'string' || typeof signatures !== 'string') return false
  // With a dot in the id, the id could hold the time, and the time a part of the body.
  if (!/^[\w-]+$/.test(id) || !/^\d{1,12}$/.test(timestamp)) return false
  if (Math.abs(nowS - Number(timestamp)) > toleranceS) return false
  const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64')
  const expected = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest()
  return signatures.split(' ').some(each => {
    const [version, base64 = ''] = each.split(',')
    const given = Buffer.from(base64, 'base64')
    return version === 'v1' && given.length === expected.length && timingSafeEqual(given, expected)
  })
}

export interface ReceiverOptions {
  /** Default: any free port. */
  port?: number
  /** Receipts are sent to this origin, with the path of `ackbox-callback-url`. Default: the origin of `ackbox-callback-url`. */
  callbackOrigin?: string
  /** The signing secret of a downstream. Without it, signatures are not checked. */
  secretOf?: (downstream: string) => string
  seed?: number
}

export interface ReceiverCounts {
  requests: number
  duplicates: number
  badSignatures: number
  failures: number
  receipts: number
}

export interface DemoReceiver {
  url: string
  counts: Readonly<ReceiverCounts>
  close(): Promise<void>
}

/** Every sample downstream, with the path that its handler builds. */
const routes: [downstream: string, path: RegExp][] = [
  ['warehouse', /^\/orders\/([^/]+)\/paid$/],
  ['review', /^\/materials\/([^/]+)\/review$/],
  ['ads', /^\/materials\/([^/]+)$/],
  ['search', /^\/index\/([^/]+)$/],
  ['reports', /^\/facts()$/],
  ['audit', /^\/events()$/],
  ['greeter', /^\/hello\/([^/]+)$/]
]
const maxBody = 1_048_576
const maxRemembered = 10_000

/** Default values for the variables in the `env` of the sample handlers. All are the URL of this receiver. */
export function demoEnv(url: string): Record<string, string> {
  const names = [
    'WAREHOUSE_URL',
    'REVIEW_URL',
    'ADS_URL',
    'SEARCH_URL',
    'REPORTS_URL',
    'AUDIT_URL',
    'HELLO_URL'
  ]
  return Object.fromEntries(names.map(name => [name, url]))
}

/**
 * The downstreams of the sample handlers. The receiver verifies signatures, answers (sometimes wrongly or slowly), deduplicates
 * by webhook-id, and sends the expected receipts. It listens on loopback only.
 */
export async function startReceiver(options: ReceiverOptions = {}): Promise<DemoReceiver> {
  const { port = 0, callbackOrigin, secretOf, seed = 1 } = options
  const counts: ReceiverCounts = { requests: 0, duplicates: 0, badSignatures: 0, failures: 0, receipts: 0 }
  const handled = new Set<string>()
  const stop = new AbortController()
  setMaxListeners(0, stop.signal) // one listener for each running answer and receipt
  const agent = new Agent({ keepAlive: true, maxSockets: 32 })
  const pending = new Set<Promise<void>>()

  const server = createServer((request, response) => {
    track(
      answer(request, response).catch(() => {
        response.destroy()
      })
    )
  })
  server.keepAliveTimeout = 30_000
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return { url, counts, close }

  async function close(): Promise<void> {
    stop.abort()
    server.close()
    server.closeAllConnections()
    await Promise.all(pending)
    agent.destroy()
  }

  function track(work: Promise<void>): void {
    pending.add(work)
    void work.finally(() => pending.delete(work))
  }

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    counts.requests++
    const body = await read(request)
    const [downstream, id] = routeOf(request.url ?? '/')
    if (!downstream) return reply(response, 404, { error: 'no such downstream' })
    if (secretOf && !verify(request.headers, body, secretOf(downstream), Date.now() / 1_000)) {
      counts.badSignatures++
      return reply(response, 401, { error: 'bad signature' })
    }

    const webhookId = header(request.headers, 'webhook-id')
    const owesReceipt = header(request.headers, 'ackbox-callback-token') !== ''
    // Handled before, but the sender did not get the answer: answer again, and do not repeat the work.
    const known = handled.has(webhookId)
    if (known) counts.duplicates++
    const planned = known
      ? again(owesReceipt)
      : behaviour(
          {
            downstream,
            owesReceipt,
            webhookId,
            kind: kinds.find(kind => id.startsWith(`${kind}-`)),
            attempt: Number(header(request.headers, 'ackbox-attempt')) || 1
          },
          seed
        )
    if (planned.status >= 300) counts.failures++
    else if (isFinal(planned, owesReceipt)) remember(webhookId)

    for (const each of planned.receipts.filter(({ afterMs }) => afterMs < 0))
      await receipt(request.headers, each)
    if (planned.delayMs > 0) await wait(planned.delayMs, undefined, { signal: stop.signal })
    reply(response, planned.status, planned.body, planned.headers)
    for (const each of planned.receipts.filter(({ afterMs }) => afterMs >= 0))
      track(receipt(request.headers, each))
  }

  function remember(webhookId: string): void {
    handled.add(webhookId)
    const [oldest] = handled
    if (handled.size > maxRemembered && oldest) handled.delete(oldest)
  }

  /** Sends one receipt, with retries if the service is unreachable, as every receiver should. */
  async function receipt(headers: IncomingHttpHeaders, planned: PlannedReceipt): Promise<void> {
    const url = header(headers, 'ackbox-callback-url')
    if (!URL.canParse(url)) return
    const named = new URL(url)
    const target = callbackOrigin ? new URL(named.pathname, callbackOrigin) : named
    const { result, reason, data } = planned
    const body = JSON.stringify({
      taskNo: header(headers, 'ackbox-task-no'),
      messageCode: header(headers, 'ackbox-message-code'),
      result,
      reason,
      data
    })
    let waitMs = Math.max(0, planned.afterMs)
    for (let attempt = 1; attempt <= 5; attempt++) {
      try {
        await wait(waitMs, undefined, { signal: stop.signal })
        const status = await post(target, body, header(headers, 'ackbox-callback-token'))
        if (status < 500 && status !== 429) {
          counts.receipts++
          return
        }
      } catch {
        if (stop.signal.aborted) return
      }
      waitMs = 250 * 2 ** attempt
    }
  }

  async function post(target: URL, body: string, token: string): Promise<number> {
    const headers = { 'content-type': 'application/json', 'ackbox-callback-token': token }
    const request = httpRequest(target, {
      method: 'POST',
      agent,
      headers,
      timeout: 5_000,
      signal: stop.signal
    })
    request.on('timeout', () => request.destroy(new Error('timeout')))
    request.end(body)
    const [response] = (await once(request, 'response')) as [IncomingMessage]
    response.resume()
    return response.statusCode ?? 0
  }
}

function again(owesReceipt: boolean): Behaviour {
  return {
    status: 200,
    body: { code: 0 },
    delayMs: 0,
    receipts: owesReceipt ? [{ afterMs: 20, result: 'HANDLED' }] : []
  }
}

/** True: this answer ends the work, and a repeat only needs the same answer. */
function isFinal(planned: Behaviour, owesReceipt: boolean): boolean {
  if (JSON.stringify(planned.body) !== '{"code":0}') return false
  if (!owesReceipt || planned.headers) return true
  return planned.receipts.some(({ result, data }) => result === 'HANDLED' && data === undefined)
}

function routeOf(path: string): [downstream: string | undefined, id: string] {
  for (const [downstream, pattern] of routes) {
    const found = pattern.exec(path)
    if (found) return [downstream, found[1] ?? '']
  }
  return [undefined, '']
}

function header(headers: IncomingHttpHeaders, name: string): string {
  const value = headers[name]
  return typeof value === 'string' ? value : ''
}

async function read(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > maxBody) throw new Error('too large')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

function reply(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {}
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers })
  response.end(JSON.stringify(body))
}
