// A proxy of RocketMQ that answers rubbish fails only its own attempts, and no process ends. The client runs in its own process.
// Takes long: npm run test:long.
import t, { type Test } from 'tap'
import {
  answerOf,
  frame,
  greeting,
  rocketmqDouble,
  type Answer,
  type Asked
} from '../../fuzz/rocketmq-double.ts'
import { flood } from '../../fuzz/hostile-server.ts'
import { client } from './client-process.ts'

t.setTimeout(2_400_000)

const rubbish: Record<string, Answer> = {
  'bytes that are no HTTP/2': () => Buffer.alloc(100, 0xff),
  'a frame of 16 MB': () => Buffer.from([0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]),
  'a message of 4 GB': (_, stream) => frame(0, 0, stream, Buffer.from([0, 0xff, 0xff, 0xff, 0xff])),
  'an empty message': (_, stream) => answerOf(stream, Buffer.alloc(0)),
  'Protobuf that ends early': (_, stream) => answerOf(stream, Buffer.from([0x0a, 0x7f, 1])),
  'Protobuf of another kind': (_, stream) => answerOf(stream, Buffer.from([0x12, 4, 0xff, 0xff, 0xff, 0xff])),
  'a length of 2^63': (_, stream) =>
    answerOf(stream, Buffer.from([0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f])),
  // By default gRPC writes such a header to stderr.
  'a header that no header may be': (_, stream) =>
    Buffer.concat([frame(1, 4, stream, Buffer.from([0x88, 0, 1, 0x78, 2, 0xc2, 0xa8])), Buffer.alloc(0)])
}

const repeated =
  (piece: (stream: number) => Buffer): Answer =>
  (_, stream, __, socket) => {
    setImmediate(() => flood(socket, { flood: piece(stream).toString('latin1'), mb: 100 }))
    return greeting
  }
const heavy: Record<string, Answer> = {
  'a million queues of nothing': (_, stream) => answerOf(stream, Buffer.alloc(4_000_000, '\x12\0')),
  'a quarter of a million of them': (_, stream) => answerOf(stream, Buffer.alloc(500_000, '\x12\0')),
  'pings without end': repeated(() => frame(6, 0, 0, Buffer.alloc(8))),
  'settings without end': repeated(() => frame(4, 0, 0, Buffer.from([0, 1, 0, 0, 0, 0]))),
  'empty messages without end': repeated(stream => frame(0, 0, stream, Buffer.alloc(5))),
  'headers without end': repeated(stream => frame(9, 0, stream, Buffer.from([0, 1, 120, 1, 121])))
}

/** A proxy whose answer to requests of the kind `asked` is `now`, and the process that sends to it. */
async function played(t: Test) {
  const says: { asked: Asked; now: Answer | undefined } = { asked: 'route', now: undefined }
  const double = await rocketmqDouble((asked, ...rest) =>
    asked === says.asked ? says.now?.(asked, ...rest) : undefined
  )
  t.teardown(() => double.close())
  const { next, tell, printed } = await client(t, 'rocketmq', `rocketmq://127.0.0.1:${double.port}`)
  async function send(topic = 'orders', timeoutMs = 10_000): Promise<Record<string, unknown>> {
    tell({ send: timeoutMs, topic })
    return next('outcome')
  }
  return { says, send, printed }
}

t.test('whatever RocketMQ answers, its sends fail, the process lives, and the next one is sent', async t => {
  const { says, send, printed } = await played(t)
  for (const asked of ['route', 'send'] as const) {
    for (const [name, answer] of Object.entries(rubbish)) {
      Object.assign(says, { asked, now: answer })
      const { outcome } = await send(`of ${asked} ${name}`.replaceAll(/\W/g, '-'), 2_000)
      t.match(outcome, { kind: 'failed', reason: /./ }, `${asked}: ${name}`)
    }
  }
  says.now = undefined
  t.match(await send(), { outcome: { kind: 'delivered' } })
  t.same(printed, [], 'and nothing is printed')
})

t.test('whatever RocketMQ pours out costs less than 128 MB and 200 ms', async t => {
  const { says, send, printed } = await played(t)
  const idle = await send()
  for (const [name, answer] of Object.entries(heavy)) {
    says.now = answer
    const after = await send(name.replaceAll(/\W/g, '-'), 2_000)
    t.match(after, { outcome: { kind: 'failed' } }, name)
    const grownMb = Number(after['peakMb']) - Number(idle['peakMb'])
    t.ok(grownMb < 128, `${grownMb} MB more than before`)
    const ms = Number(after['longestBlockMs'])
    t.ok(ms < 200, `${ms} ms without a turn`)
  }
  t.same(printed, [], 'and nothing is printed')
})
