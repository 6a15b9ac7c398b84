// The answers of a NATS server to a send: its greeting, and the confirmation of JetStream.
import { conversationReader } from '../conversation.ts'
import type { Script } from '../hostile-server.ts'
import { judgeOutcomes, type TransportOptions } from '../subjects/transport.ts'

const options: TransportOptions = {
  name: 'nats',
  url: 'nats://127.0.0.1:{port}',
  request: { broker: 'fuzzed', subject: 'orders.paid' }
}
export const info = `INFO ${JSON.stringify({ server_id: 'x', version: '2.10.0', proto: 1, headers: true, max_payload: 1_048_576 })}\r\n`
const publish = 'HPUB orders\\.paid (\\S+) '
const message = (text: string): string => `MSG {1} 1 ${text.length}\r\n${text}\r\n`
const confirmed = message('{"stream":"ORDERS","seq":1}')
const noResponders = 'HMSG {1} 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n'

const spoken = (...answers: string[]): Script => ({
  greeting: info,
  answers: ['PONG\r\n', ...answers],
  after: ['PING\r\n', ...answers.map(() => publish)],
  end: 'hang'
})

const valid: Script[] = [
  spoken(confirmed, confirmed),
  spoken(message('{"stream":"ORDERS","seq":1,"duplicate":true}'), confirmed),
  spoken(
    message('{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"}}'),
    confirmed
  ),
  spoken(noResponders, confirmed),
  spoken(
    `PING\r\n-ERR 'Permissions Violation for Publish to "orders.paid"'\r\n${confirmed}`,
    `+OK\r\n${confirmed}`
  )
]

export const reader = conversationReader({
  name: 'nats',
  module: new URL('../subjects/transport.js', import.meta.url),
  options,
  valid,
  floods: ['PING\r\n', '+OK\r\n', "-ERR 'no'\r\n", info, 'MSG a 1 4\r\nfine\r\n', 'MSG a 1 60000\r\n'],
  judge: judgeOutcomes
})
