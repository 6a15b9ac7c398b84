// The floods of a broker, the Redis of a queue or a provider: the reader of ours that meets the flood, and the server.
import type { Socket } from 'node:net'
import {
  answer,
  delivered,
  dubbo2,
  frame,
  header,
  nats,
  pour,
  rabbitmq,
  redis,
  returned
} from './conversations.ts'

export type Flood = [reader: string, name: string, script: (socket: Socket) => void]

const x = Buffer.alloc(65_536, 'x')
const mb = (bytes: number): Buffer => Buffer.alloc(bytes * 1_048_576, 'x')
const one = (text: string): Buffer => Buffer.from(text, 'latin1')
/** An answer of Dubbo of 8 MiB: an opening, for instance of a list, and then the same few bytes again and again. */
const many = (opening: Buffer, bytes: Buffer): Buffer =>
  Buffer.concat([Buffer.from([0x91]), opening, Buffer.alloc(8_388_000, bytes)])
const list = Buffer.from([0x58, 0x49, 0x7f, 0xff, 0xff, 0xff])

/** One long list, and exceptions that refer to it as their stack. */
const exceptions = Buffer.concat([
  Buffer.from([0x91, 0x58, 0x49, 0, 0, 0x9c, 0x41]),
  Buffer.from([0x58, 0x49, 0, 0, 0x4e, 0x20]),
  Buffer.alloc(20_000, 0x54),
  one('C\nAException\x91\nstackTrace'),
  Buffer.concat(Array.from({ length: 40_000 }, () => Buffer.from([0x60, 0x51, 0x91])))
])
/** Lists that hold the list before ten times. The last list is a key of a map. */
const keys = Buffer.concat([
  Buffer.from([0x91, 0x58, 0x9b]),
  ...Array.from({ length: 9 }, (_, n) =>
    Buffer.concat([
      Buffer.from([0x58, 0x9a]),
      ...Array.from({ length: 10 }, () => (n === 0 ? one('\x04text') : Buffer.from([0x51, 0x90 + n])))
    ])
  ),
  Buffer.from([0x48, 0x51, 0x99, 0x4e, 0x5a, 0x4e])
])

/** Writes the opening once, and then the block without end. */
const pours =
  (opening: string | Buffer, block: string | Buffer) =>
  (socket: Socket): void => {
    socket.write(opening)
    pour(socket, block)
  }

const xadd = /xadd/i
const script = /evalsha|eval\b/i

export const floods: Flood[] = [
  ['nats', 'rubbish behind a publish', nats(socket => pour(socket, x))],
  ['nats', 'a line without end', nats(pours('MSG ', x))],
  ['nats', 'an INFO without end', pours('INFO {"a":"', x)],
  ['nats', 'a message of 64 MB', nats(pours('MSG a 1 67108864\r\n', x))],
  [
    'nats',
    'PINGs, and it reads none of their answers',
    nats(socket => (pour(socket, 'PING\r\n'), socket.pause()))
  ],
  ['nats', 'errors without end', nats(socket => pour(socket, "-ERR 'no'\r\n"))],
  [
    'nats',
    'messages nobody asked for',
    nats(socket => pour(socket, `MSG a 1 1000\r\n${'x'.repeat(1_000)}\r\n`))
  ],
  ['reply-nats', 'rubbish behind a publish', nats(socket => pour(socket, x))],
  [
    'reply-nats',
    'messages of 2 MB, one behind the other',
    nats(socket => pour(socket, Buffer.concat([one('MSG a 1 2097152\r\n'), mb(2), one('\r\n')])), 8_388_608)
  ],
  ['redis-stream', 'a bulk of 2 GB', redis(xadd, pours('$2147483647\r\n', x))],
  ['redis-stream', 'a list of a thousand million', redis(xadd, pours('*1000000000\r\n', ':1\r\n'))],
  ['redis-stream', 'a bulk of 2 GB as its greeting', pours('$2147483647\r\n', x)],
  ['redis-stream', 'lists within lists', redis(xadd, socket => pour(socket, '*1\r\n'))],
  ['redis-stream', 'maps of many, within one another', redis(xadd, socket => pour(socket, '%100000000\r\n'))],
  ['redis-stream', 'a line without end', redis(xadd, pours('+', x))],
  ['redis-stream', 'replies that nobody asked for', redis(xadd, socket => pour(socket, '_\r\n'))],
  ['redis-stream', 'a push that says nothing', redis(xadd, socket => pour(socket, '>1\r\n_\r\n'))],
  ['redis-queue', 'a bulk of 2 GB', redis(script, pours('$2147483647\r\n', x))],
  ['redis-queue', 'a list of a thousand million', redis(script, pours('*1000000000\r\n', ':1\r\n'))],
  [
    'redis-queue',
    'lists without end, each as long as it may be',
    redis(script, pours('*60000\r\n', '*60000\r\n'))
  ],
  ['redis-queue', 'replies that nobody asked for', redis(script, socket => pour(socket, '_\r\n'))],
  [
    'rabbitmq',
    'a frame of 4 GB',
    rabbitmq('60.40', pours(Buffer.from([3, 0, 1, 0xff, 0xff, 0xff, 0xff]), x))
  ],
  [
    'rabbitmq',
    'a message of 200 GB that comes back',
    rabbitmq(
      '60.40',
      (socket, channel) => (
        socket.write(Buffer.concat([returned(channel), header(channel, 200_000_000_000n)])),
        pour(socket, frame(3, channel, x.subarray(0, 8_000)))
      )
    )
  ],
  [
    'rabbitmq',
    'a message of which each part is longer than agreed',
    rabbitmq(
      '60.40',
      (socket, channel) => (
        socket.write(Buffer.concat([returned(channel), header(channel, 16_000_000n)])),
        pour(socket, frame(3, channel, Buffer.alloc(131_000)))
      )
    )
  ],
  [
    'rabbitmq',
    'messages that come back without end',
    rabbitmq('60.40', (socket, channel) =>
      pour(
        socket,
        Buffer.concat([returned(channel), header(channel, 8_000n), frame(3, channel, x.subarray(0, 8_000))])
      )
    )
  ],
  [
    'reply-rabbitmq',
    'a message of 200 GB',
    rabbitmq(
      '60.20',
      (socket, channel) => (
        socket.write(Buffer.concat([delivered(channel, 1), header(channel, 200_000_000_000n)])),
        pour(socket, frame(3, channel, x.subarray(0, 8_000)))
      )
    )
  ],
  [
    'reply-rabbitmq',
    'more messages than it may have open',
    rabbitmq('60.20', (socket, channel) =>
      pour(
        socket,
        Buffer.concat([
          delivered(channel, 1),
          header(channel, 8_000n),
          frame(3, channel, x.subarray(0, 8_000))
        ])
      )
    )
  ],
  [
    'dubbo2',
    'a body of 4 GB',
    dubbo2((socket, call) => (socket.write(answer(call, Buffer.alloc(0), 0xffff_ffff)), pour(socket, x)))
  ],
  [
    'dubbo2',
    'heartbeats, and it reads none of their answers',
    dubbo2(
      socket => (
        pour(socket, Buffer.from([0xda, 0xbb, 0xe2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0x4e])),
        socket.pause()
      )
    )
  ],
  [
    'dubbo2',
    'a list that says it has 2^31 items',
    dubbo2((socket, call) => socket.write(answer(call, Buffer.concat([Buffer.from([0x91]), list]))))
  ],
  [
    'dubbo2',
    '8 MB of empty maps',
    dubbo2((socket, call) => socket.write(answer(call, many(list, Buffer.from([0x48, 0x5a])))))
  ],
  [
    'dubbo2',
    '8 MB of dates',
    dubbo2((socket, call) => socket.write(answer(call, many(list, Buffer.from([0x4b, 0, 0, 0, 1])))))
  ],
  [
    'dubbo2',
    '8 MB of lists within one another',
    dubbo2((socket, call) => socket.write(answer(call, many(Buffer.from([]), Buffer.from([0x79])))))
  ],
  [
    'dubbo2',
    '8 MB of one string',
    dubbo2((socket, call) =>
      socket.write(
        answer(
          call,
          many(Buffer.from([]), Buffer.concat([Buffer.from([0x52, 0xff, 0xff]), Buffer.alloc(65_535, 'x')]))
        )
      )
    )
  ],
  [
    'dubbo2',
    'a class with a million fields, again and again',
    dubbo2((socket, call) =>
      socket.write(
        answer(
          call,
          Buffer.concat([
            Buffer.from([0x91]),
            list,
            Buffer.from([0x43, 1, 0x61, 0x49, 0, 0x0f, 0, 0]),
            Buffer.alloc(0xf0000),
            Buffer.alloc(4_000_000, Buffer.from([0x60, 0x4e]))
          ])
        )
      )
    )
  ],
  [
    'dubbo2',
    'exceptions that all name one long stack',
    dubbo2((socket, call) => socket.write(answer(call, exceptions)))
  ],
  [
    'dubbo2',
    'a map whose key stands for a thousand million texts',
    dubbo2((socket, call) => socket.write(answer(call, keys)))
  ],
  [
    'rabbitmq',
    'heartbeats without end',
    rabbitmq('60.40', socket => pour(socket, frame(8, 0, Buffer.alloc(0))))
  ],
  [
    'rabbitmq',
    'messages of 16 MB that come back, one behind the other',
    rabbitmq('60.40', (socket, channel) =>
      pour(
        socket,
        Buffer.concat([
          returned(channel),
          header(channel, 2_000n * 8_184n),
          ...Array.from({ length: 2_000 }, () => frame(3, channel, x.subarray(0, 8_184)))
        ])
      )
    )
  ],
  [
    'dubbo',
    'a header without end',
    socket => void socket.once('data', () => (socket.write('HTTP/1.1 200 OK\r\nx: '), pour(socket, x)))
  ],
  [
    'dubbo',
    'a body without end',
    socket => void socket.once('data', () => (socket.write('HTTP/1.1 200 OK\r\n\r\n'), pour(socket, x)))
  ]
]
