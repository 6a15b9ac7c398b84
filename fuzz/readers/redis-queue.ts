// The answers of the Redis of REDIS_URL to BullMQ.
import { conversationReader } from '../conversation.ts'
import type { Script } from '../hostile-server.ts'
import { openingOf } from './redis-stream.ts'

const bulk = (text: string): string => `$${text.length}\r\n${text}\r\n`
const opening = openingOf('+OK\r\n+OK\r\n')
const evaluated = '(?:evalsha|eval)\r\n'
const job = [
  'name',
  'delivery',
  'data',
  '[["00000000-0000-4000-8000-000000000000",1]]',
  'opts',
  '{"attempts":1}',
  'timestamp',
  '1700000000000',
  'delay',
  '0',
  'priority',
  '0',
  'atm',
  '0',
  'ats',
  '1'
]
const fields = `*${job.length}\r\n${job.map(bulk).join('')}`
const taken = `*4\r\n${fields}${bulk('1')}:0\r\n:0\r\n`
const nothing = '*4\r\n:0\r\n:0\r\n:0\r\n:0\r\n'

type Exchange = [after: string, answer: string]
const spoken = (...answers: Exchange[]): Script => {
  const all = [...opening, ...answers]
  return { answers: all.map(([, answer]) => answer), after: all.map(([after]) => after), end: 'hang' }
}
/** The first connection: it requests INFO once more, and writes its metadata. */
const producer = (...answers: Exchange[]): Script =>
  spoken(['\r\ninfo\r\n', opening[1]?.[1] ?? ''], ['hset\r\n', ':1\r\n'], ...answers)

const valid: Script[] = [
  producer([evaluated, bulk('1')]),
  spoken([evaluated, taken], [evaluated, bulk('1')]),
  spoken([evaluated, nothing], [evaluated, taken], [evaluated, ':0\r\n']),
  producer(['evalsha\r\n', '-NOSCRIPT No matching script. Please use EVAL.\r\n'], ['eval\r\n', bulk('1')]),
  spoken([evaluated, '-OOM command not allowed when used memory > maxmemory.\r\n'], [evaluated, ':-2\r\n'])
]

export const reader = conversationReader({
  name: 'redis-queue',
  module: new URL('../subjects/queue.js', import.meta.url),
  options: { url: 'redis://127.0.0.1:{port}' },
  valid,
  floods: [
    '_\r\n',
    '>1\r\n_\r\n',
    '*1\r\n',
    '*1000\r\n',
    taken,
    '$5\r\nhello\r\n',
    '-ERR no\r\n',
    '$1000000\r\n'
  ]
})
