// The answers of downstreams over HTTP: undici's parser, and our handling of its result.
import { conversationReader } from '../conversation.ts'
import type { Script } from '../hostile-server.ts'
import { judgeOutcomes, type TransportOptions } from '../subjects/transport.ts'

const head = (status: string, ...headers: string[]): string =>
  `HTTP/1.1 ${[status, ...headers].join('\r\n')}\r\n\r\n`
const answer = (...texts: string[]): Script => ({ answers: [texts.join('')], end: 'again' })
const options: TransportOptions = { name: 'http', url: 'http://127.0.0.1:{port}/hook', request: {} }

const valid: Script[] = [
  answer(head('200 OK', 'content-length: 4', 'content-type: text/plain'), 'fine'),
  answer(
    head('200 OK', 'transfer-encoding: chunked', 'trailer: x-sum'),
    '4;a=b\r\nfine\r\n0\r\nx-sum: 1\r\n\r\n'
  ),
  answer(
    head('103 Early Hints', 'link: </x>'),
    head('200 OK', 'content-length: 2', 'ackbox-result: HANDLED'),
    '{}'
  ),
  answer(
    head(
      '503 Service Unavailable',
      'retry-after: 120',
      'date: Mon, 23 Nov 2026 10:00:00 GMT',
      'content-length: 0'
    )
  ),
  answer(head('204 No Content', 'keep-alive: timeout=5', 'connection: keep-alive')),
  { answers: [`${head('200 OK', 'connection: close')}fine`], end: 'close' }
]

export const reader = conversationReader({
  name: 'http-answers',
  module: new URL('../subjects/transport.js', import.meta.url),
  options,
  valid,
  floods: [
    head('200 OK', 'content-length: 4') + 'fine',
    head('103 Early Hints', 'link: </x>'),
    head('100 Continue'),
    'x-more: of them\r\n',
    '1;x\r\ny\r\n',
    'ffff\r\n'
  ],
  judge: judgeOutcomes
})
