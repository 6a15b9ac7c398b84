// The answers of a Redis to a send.
import { conversationReader } from '../conversation.ts'
import type { Script } from '../hostile-server.ts'
import { judgeOutcomes, type TransportOptions } from '../subjects/transport.ts'

const options: TransportOptions = {
  name: 'redis-stream',
  url: 'redis://127.0.0.1:{port}',
  request: { broker: 'fuzzed', stream: 'orders' }
}
const bulk = (text: string): string => `$${text.length}\r\n${text}\r\n`
const server = 'redis_version:7.2.0\r\nloading:0\r\nmaxmemory_policy:noeviction\r\n'
/** The opening of a connection: HELLO, two or three of CLIENT, INFO. */
export const openingOf = (clients: string): [after: string, answer: string][] => [
  [
    'hello\r\n',
    `%3\r\n${bulk('server')}${bulk('redis')}${bulk('proto')}:3\r\n${bulk('modules')}*0\r\n${clients}`
  ],
  ['\r\ninfo\r\n', `=${server.length + 4}\r\ntxt:${server}\r\n`]
]
const opening = openingOf('+OK\r\n+OK\r\n+OK\r\n')
const older: [after: string, answer: string][] = [
  [
    'hello\r\n',
    "-ERR unknown command 'HELLO'\r\n+OK\r\n-ERR unknown subcommand\r\n-ERR unknown subcommand\r\n"
  ],
  ['(?:SETINFO.*){4}', '+OK\r\n+OK\r\n+OK\r\n'],
  ['\r\ninfo\r\n', bulk(server)]
]
const spoken = (first: [string, string][], ...answers: string[]): Script => ({
  answers: [...first.map(([, answer]) => answer), ...answers],
  after: [...first.map(([after]) => after), ...answers.map(() => '[xX][aA][dD][dD]\r\n')],
  end: 'hang'
})
const id = bulk('1700000000000-0')

const valid: Script[] = [
  spoken(opening, id, id),
  spoken(opening, '_\r\n', id),
  spoken(opening, '-WRONGTYPE Operation against a key holding the wrong kind of value\r\n', id),
  spoken(opening, '-READONLY You cannot write against a read only replica.\r\n', id),
  spoken(opening, `*2\r\n${id}~1\r\n:7\r\n`, '#t\r\n'),
  spoken(older, id, '$-1\r\n')
]

export const reader = conversationReader({
  name: 'redis-stream',
  module: new URL('../subjects/transport.js', import.meta.url),
  options,
  valid,
  floods: [
    '_\r\n',
    '>1\r\n_\r\n',
    '*1\r\n',
    '*1000\r\n',
    '%9\r\n',
    '$5\r\nhello\r\n',
    '+OK\r\n',
    '-ERR no\r\n',
    '$100000\r\n'
  ],
  judge: judgeOutcomes
})
