// The answers of a NATS server to the reader of receipts, and the messages of any client that may publish to the stream.
import { conversationReader } from '../conversation.ts'
import type { Script } from '../hostile-server.ts'
import { info } from './nats.ts'

const api = (text: object): string => {
  const json = JSON.stringify(text)
  return `MSG {1} 1 ${json.length}\r\n${json}\r\n`
}
const requestOf = (name: string): string => `PUB \\$JS\\.API\\.${name} (\\S+) `
const streams = api({ total: 1, offset: 0, limit: 1_024, streams: ['RECEIPTS'] })
const consumer = api({
  stream_name: 'RECEIPTS',
  name: 'ackbox',
  created: '2026-11-23T10:00:00Z',
  config: { durable_name: 'ackbox', ack_policy: 'explicit', filter_subject: 'ackbox.receipts' },
  num_pending: 1
})
const missing = api({ error: { code: 404, err_code: 10_014, description: 'consumer not found' } })
const head = 'NATS/1.0\r\nAckbox-Callback-Token: v1.a.b\r\n\r\n'
const receipt = (nth: number, headers = head, body = '{"status":"HANDLED"}'): string =>
  `HMSG ackbox.receipts 2 $JS.ACK.RECEIPTS.ackbox.1.${nth}.${nth}.1700000000000000000.0 ` +
  `${headers.length} ${headers.length + body.length}\r\n${headers}${body}\r\n`
const status = (text: string): string => {
  const headers = `NATS/1.0 ${text}\r\n\r\n`
  return `HMSG {1} 2 ${headers.length} ${headers.length}\r\n${headers}\r\n`
}

const spoken = (found: [request: string, answer: string][], ...batches: string[]): Script => ({
  greeting: info,
  answers: ['PONG\r\n', streams, ...found.map(([, answer]) => answer), ...batches],
  after: [
    'PING\r\n',
    requestOf('STREAM\\.NAMES'),
    ...found.map(([name]) => requestOf(name)),
    ...batches.map(() => requestOf('CONSUMER\\.MSG\\.NEXT\\.RECEIPTS\\.ackbox'))
  ],
  end: 'hang'
})
const known: [string, string] = ['CONSUMER\\.INFO\\.RECEIPTS\\.ackbox', consumer]

const valid: Script[] = [
  spoken([known, known], receipt(1) + receipt(2), receipt(3)),
  spoken(
    [['CONSUMER\\.INFO\\.RECEIPTS\\.ackbox', missing], ['CONSUMER\\.\\S*CREATE\\S*', consumer], known],
    receipt(1)
  ),
  spoken(
    [known, known],
    receipt(1) + status('408 Request Timeout\r\nNats-Pending-Messages: 99\r\nNats-Pending-Bytes: 0'),
    receipt(2)
  ),
  spoken(
    [known, known],
    status('100 Idle Heartbeat\r\nNats-Last-Consumer: 0\r\nNats-Last-Stream: 0') + receipt(1),
    receipt(2)
  ),
  spoken([known, known], status('409 Consumer Deleted') + receipt(1))
]

export const reader = conversationReader({
  name: 'nats-receipts',
  module: new URL('../subjects/receipt-readers.js', import.meta.url),
  options: { url: 'nats://127.0.0.1:{port}' },
  valid,
  floods: [receipt(1), receipt(1, head, 'x'.repeat(60_000)), status('100 Idle Heartbeat')]
})
