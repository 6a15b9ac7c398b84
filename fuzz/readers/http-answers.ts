// The answers of downstreams over HTTP: undici's parser, and our handling of its result.
import { conversationReader } from '../conversation.ts'
import type { Script } from '../hostile-server.ts'
import { answer, formsOf, head, httpFloods } from '../http-scripts.ts'
import { judgeOutcomes, type TransportOptions } from '../subjects/transport.ts'

const options: TransportOptions = { name: 'http', url: 'http://127.0.0.1:{port}/hook', request: {} }

const valid: Script[] = [
  ...formsOf('fine'),
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
  answer(head('204 No Content', 'keep-alive: timeout=5', 'connection: keep-alive', 'content-length: 5'))
]

export const reader = conversationReader({
  name: 'http-answers',
  module: new URL('../subjects/transport.js', import.meta.url),
  options,
  valid,
  floods: httpFloods,
  judge: judgeOutcomes
})
