// The answers of a Dubbo provider over Triple: HTTP, and our handling of its statuses.
import { conversationReader } from '../conversation.ts'
import type { Script } from '../hostile-server.ts'
import { judgeOutcomes, type TransportOptions } from '../subjects/transport.ts'

const options: TransportOptions = {
  name: 'dubbo',
  url: 'tri://127.0.0.1:{port}',
  request: { broker: 'fuzzed', service: 'com.acme.Points', method: 'onPaid', args: [1] }
}
const answer = (status: string, body: string): Script => ({
  answers: [
    `HTTP/1.1 ${status}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`
  ],
  end: 'again'
})

const valid: Script[] = [
  answer('200 OK', '{"points":3}'),
  answer('500 Internal Server Error', '{"message":"java.lang.IllegalStateException: closed","status":"500"}'),
  answer('404 Not Found', '{"message":"Invoker not found","status":"404"}'),
  answer('408 Request Timeout', ''),
  answer('400 Bad Request', '{"message":"7","status":"400"}')
]

export const reader = conversationReader({
  name: 'dubbo',
  module: new URL('../subjects/transport.js', import.meta.url),
  options,
  valid,
  floods: ['HTTP/1.1 100 Continue\r\n\r\n', 'x-more: of them\r\n', '1\r\ny\r\n'],
  judge: judgeOutcomes
})
