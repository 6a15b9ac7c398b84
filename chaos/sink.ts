// node sink.js: the downstream, in its own process, which is never killed or stopped. It is the witness: it records every
// request before it answers, sends receipts, and returns its records on request.
import { createHash, createHmac } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { behaviour, type Behaviour, type Mode, type PlannedReceipt } from './behaviour.ts'
import { askUntilClear, ask, pause } from './client.ts'
import type { Arrival, Receipt } from './history.ts'
import { secretVariable } from './terms.ts'

/** An order from the run. */
export type Order =
  | { id: number; kind: 'mode'; mode: Mode }
  | { id: number; kind: 'mend'; taskNo: string }
  | { id: number; kind: 'counts' }
  | { id: number; kind: 'testimony' }

export interface Testimony {
  arrivals: Arrival[]
  receipts: Receipt[]
  /** The received tokens. None of them may appear in a log. */
  tokens: string[]
  /** Messages to the alarm channel, and the status that each was answered with. */
  alarms: { at: number; status: number; body: string }[]
}

const seed = Number(process.env['CHAOS_SEED'])
const key = Buffer.from((process.env[secretVariable] ?? '').replace('whsec_', ''), 'base64')
/** Off where tasks wait for others: then none may fail for good. */
const doomed = process.env['CHAOS_DOOMED'] !== 'off'
const stop = new AbortController()
const seen: Testimony = { arrivals: [], receipts: [], tokens: [], alarms: [] }
const counts = new Map<string, number>()
const arrived = new Set<string>()
const mended = new Set<string>()
let mode: Mode = 'well'
let open = 0
/** The number of each connection, and its requests. */
const connections = new WeakMap<Socket, { id: number; arrivals: Arrival[] }>()
let connected = 0
/** The monotonic clock, which all processes of a machine share, plus this offset is ms since 1970. */
const epochMs = Date.now() - Number(process.hrtime.bigint()) / 1e6
let readUntil = Date.now()

const server = createServer((request, response) => {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('error', () => {})
  response.on('error', () => {})
  request.on('end', () => take(request, Buffer.concat(chunks), response))
})
server.on('connection', socket => {
  const connection = { id: ++connected, arrivals: [] as Arrival[] }
  connections.set(socket, connection)
  socket.once('close', () => {
    for (const arrival of connection.arrivals) arrival.closedAfter = readUntil
  })
})
setInterval(() => look(Date.now()), 20)

/** A turn of the loop accepts at most one connection, and reads all older ones. A turn without a new connection has read everything. */
function look(at: number): void {
  setImmediate(() => {
    const before = connected
    setImmediate(() => {
      if (connected === before) readUntil = Math.max(readUntil, at)
      else look(at)
    })
  })
}

server.keepAliveTimeout = 60_000
// Room for many connections: the kernel would drop the rest, which would retry seconds later.
server.listen({ port: 0, host: '127.0.0.1', backlog: 65_535 }, () =>
  process.send?.({ port: (server.address() as AddressInfo).port })
)

// Ctrl-C in a terminal reaches the whole group. The run ends this process.
process.on('SIGINT', () => {})
process.on('disconnect', () => process.exit(0))
process.on('message', (order: Order) => process.send?.({ id: order.id, reply: obey(order) }))

function obey(order: Order): unknown {
  switch (order.kind) {
    case 'mode':
      mode = order.mode
      return null
    case 'mend':
      mended.add(order.taskNo)
      return null
    case 'counts':
      return { arrivals: seen.arrivals.length, tasks: arrived.size, open }
    case 'testimony':
      return seen
  }
}

const header = (request: IncomingMessage, name: string): string => String(request.headers[name] ?? '')

function take(request: IncomingMessage, body: Buffer, response: ServerResponse): void {
  const at = Date.now()
  if (request.url === '/alarm') {
    const status = mode === 'fail' ? 503 : 204
    seen.alarms.push({ at, status, body: body.toString() })
    response.writeHead(status).end()
    return
  }
  const downstream = (request.url ?? '').slice(1)
  const taskNo = header(request, 'ackbox-task-no')
  const delivery = `${taskNo} ${downstream}`
  const nth = counts.get(delivery) ?? 0
  counts.set(delivery, nth + 1)
  arrived.add(taskNo)
  const owed = request.headers['ackbox-callback-url'] !== undefined
  const planned = behaviour(seed, { taskNo, downstream, nth, owed, mended: mended.has(taskNo), doomed }, mode)
  const connection = connections.get(request.socket)
  const arrival: Arrival = {
    at,
    taskNo,
    downstream,
    attempt: Number(header(request, 'ackbox-attempt')),
    ...(request.headers['ackbox-sequence'] !== undefined && {
      sequence: Number(header(request, 'ackbox-sequence'))
    }),
    hash: createHash('sha256').update(body).digest('hex'),
    signed: isSigned(request, body),
    owed,
    sender: header(request, 'chaos-sender'),
    builtAt: epochMs + Number(header(request, 'chaos-built')) / 1e6,
    cameAfter: readUntil,
    connection: connection?.id ?? 0,
    answer: planned.answer.kind === 'status' ? String(planned.answer.status) : planned.answer.kind,
    handled: planned.handled
  }
  seen.arrivals.push(arrival)
  connection?.arrivals.push(arrival)
  if (owed) seen.tokens.push(header(request, 'ackbox-callback-token'))
  for (const receipt of planned.receipts) void send(request, arrival, receipt)
  open++
  void reply(request, response, planned, arrival).finally(() => open--)
}

/** Standard Webhooks v1, written from its specification, without the service's own code. */
function isSigned(request: IncomingMessage, body: Buffer): boolean {
  const head = `${header(request, 'webhook-id')}.${header(request, 'webhook-timestamp')}.`
  const wanted = createHmac('sha256', key).update(head).update(body).digest('base64')
  return header(request, 'webhook-signature').split(' ').includes(`v1,${wanted}`)
}

async function reply(
  request: IncomingMessage,
  response: ServerResponse,
  { answer, handled }: Behaviour,
  arrival: Arrival
): Promise<void> {
  if (answer.kind === 'reset') {
    request.socket.resetAndDestroy()
    return
  }
  if (answer.kind === 'hang') {
    // The service must give up and close the connection. After 20 s the sink closes it.
    await Promise.race([new Promise(resolve => response.once('close', resolve)), pause(20_000)])
    request.socket.destroy()
    return
  }
  await pause(answer.afterMs)
  if (response.destroyed) return
  const status = answer.kind === 'late' ? 200 : answer.status
  const headers = {
    'content-type': 'application/json',
    ...(status === 429 && { 'retry-after': '1' }),
    ...(handled && { 'ackbox-result': 'HANDLED' })
  }
  // A bad answer returns all headers of the request, secrets included. The service must not keep them.
  const text = status === 204 ? '' : JSON.stringify(status < 300 ? { ok: true } : { told: request.headers })
  response.writeHead(status, headers).end(text, () => {
    arrival.answeredAt = Date.now()
  })
}

/** The body of a 200 of /callback. */
interface CallbackAnswer {
  applied?: boolean
  status?: string
}

/** A wrong letter of the same shape. */
const other = (letter: string): string => (letter === 'A' ? 'B' : 'A')

/** Retries until the answer is clear, as a good downstream does. A bad token is the good token with another end. */
async function send(request: IncomingMessage, arrival: Arrival, planned: PlannedReceipt): Promise<void> {
  await pause(planned.afterMs)
  const { taskNo, downstream, attempt } = arrival
  const receipt: Receipt = {
    taskNo,
    downstream,
    attempt,
    result: planned.result,
    token: planned.token,
    tries: []
  }
  seen.receipts.push(receipt)
  const right = header(request, 'ackbox-callback-token')
  const wrong = right.slice(0, -9) + right.slice(-9).replaceAll(/./g, other)
  const body = JSON.stringify({
    taskNo,
    messageCode: header(request, 'ackbox-message-code'),
    result: planned.result
  })
  await askUntilClear(
    async waitMs => {
      const answer = await ask(header(request, 'ackbox-callback-url'), {
        method: 'POST',
        body,
        waitMs,
        headers: { 'ackbox-callback-token': planned.token === 'good' ? right : wrong }
      })
      const { at, ms, status, text } = answer
      const { applied, status: deliveryStatus } = status === 200 ? (JSON.parse(text) as CallbackAnswer) : {}
      receipt.tries.push({
        at,
        ms,
        status,
        ...(applied !== undefined && { applied }),
        ...(deliveryStatus !== undefined && { deliveryStatus })
      })
      return answer
    },
    [],
    stop.signal
  )
}
