// Brokers and providers that misbehave: a send ends by its deadline, is never counted as delivered, and leaves nothing behind.
import type { Socket } from 'node:net'
import t from 'tap'
import { guard } from '../../src/transport/egress/guard.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { everyTransport, wayTo } from './everywhere.ts'
import { scriptedServer } from './scripted-server.ts'

t.setTimeout(600_000)

const timeoutMs = 300
const open = guard({ allow: undefined, embedded: true, deny: [] })

/** Writes as fast as the other side reads. */
const pours =
  (opening: string | Buffer, block: string) =>
  (socket: Socket): void => {
    const bytes = Buffer.alloc(65_536, block)
    const more = (): void => {
      while (!socket.destroyed && socket.write(bytes));
    }
    socket.on('drain', more).resume()
    socket.write(opening)
    more()
  }

const nats =
  'INFO {"server_id":"x","version":"2.10.0","proto":1,"host":"127.0.0.1","port":1,"max_payload":1048576,"headers":true,"jetstream":true}\r\n'

const scripts: Record<string, (socket: Socket) => void> = {
  'says nothing and reads all': socket => socket.resume(),
  'takes the connection and never reads': () => {},
  'closes at once': socket => socket.end(),
  'resets at once': socket => socket.resetAndDestroy(),
  'greets with garbage': socket => socket.write(Buffer.alloc(1_000, 0xff)),
  'greets as an SSH server': socket => socket.write('SSH-2.0-OpenSSH_9.6\r\n'),
  'answers everything with 0xFFFFFFFF': socket =>
    socket.on('data', () => socket.write(Buffer.alloc(64, 0xff))),
  'answers everything with zeros': socket => socket.on('data', () => socket.write(Buffer.alloc(64))),
  'repeats what it is sent': socket => socket.on('data', data => socket.write(data)),
  'closes in the middle of an answer': socket => socket.on('data', data => socket.end(data.subarray(0, 7))),
  'greets with a line without end': pours('', 'x'),
  'greets as NATS, and then a line without end': pours(nats, 'x'),
  'greets as NATS, answers half a PONG, and is silent': socket => {
    socket.write(nats)
    socket.once('data', () => socket.write('PO'))
  },
  'greets as NATS with a size beyond any': socket => {
    socket.write(nats)
    socket.once('data', () => socket.write('PONG\r\nMSG a 1 99999999999999999999\r\nx'))
  },
  'answers as Redis, a bulk of 2 GB that never comes': socket =>
    socket.on('data', () => socket.write('$2147483647\r\nx')),
  'answers as Redis, lists without end within one another': socket =>
    socket.on('data', () => socket.write('*1\r\n'.repeat(1_000))),
  'answers as Redis, a line without end': socket => socket.once('data', () => pours('+', 'x')(socket)),
  'answers as AMQP, a frame of 4 GB': socket =>
    socket.once('data', () => socket.write(Buffer.from([1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 10, 0, 10]))),
  'answers as AMQP, half a frame, and is silent': socket =>
    socket.once('data', () => socket.write(Buffer.from([1, 0, 0, 0, 0, 1, 0, 0, 10]))),
  'answers as AMQP of another version': socket =>
    socket.once('data', () => socket.end(Buffer.from('AMQP\0\x02\0\0', 'latin1'))),
  'answers as Dubbo, a body of 4 GB': socket =>
    socket.once('data', data => {
      const head = Buffer.concat([Buffer.from([0xda, 0xbb, 2, 20]), data.subarray(4, 12)])
      socket.write(Buffer.concat([head, Buffer.alloc(4, 0xff)]))
    }),
  'answers as Dubbo, half a frame, and is silent': socket =>
    socket.once('data', data => {
      const head = Buffer.concat([Buffer.from([0xda, 0xbb, 2, 20]), data.subarray(4, 12)])
      socket.write(Buffer.concat([head, Buffer.from([0, 0, 1, 0, 0x91])]))
    }),
  'answers as Dubbo, a call of another id': socket =>
    socket.on('data', () =>
      socket.write(Buffer.from([0xda, 0xbb, 2, 20, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 1, 0x92]))
    ),
  'answers as gRPC, a frame larger than it may be': socket =>
    socket.once('data', () => socket.write(Buffer.from([0xff, 0xff, 0xff, 4, 0, 0, 0, 0, 0])))
}

// Other tests show the same in detail over http.
for (const name of everyTransport.filter(each => each !== 'http' && each !== 'dubbo')) {
  t.test(`over ${name}`, async t => {
    const heapBefore = process.memoryUsage()
    for (const [what, script] of Object.entries(scripts)) {
      const server = await scriptedServer(t, script)
      const way = await wayTo(t, name, open, `127.0.0.1:${server.port}`)
      const started = stopwatch(t)
      const outcomes = await Promise.all([way.send(timeoutMs), way.send(timeoutMs), way.send(timeoutMs)])
      const took = started()
      for (const outcome of outcomes) t.match(outcome, { kind: 'failed', reason: /./ }, `it ${what}`)
      t.ok(took < timeoutMs + 1_000, `it ${what}: ended after ${Math.round(took)} ms`)
      t.ok(server.taken <= 3, `it ${what}: ${server.taken} connections for three sends`)
      await way.close()
      // gRPC keeps the one connection whose handshake hangs until it gives up, even after its client was closed.
      if (name !== 'rocketmq') await server.empty()
    }
    const grown = process.memoryUsage().rss - heapBefore.rss
    t.ok(grown < 512 << 20, `${Math.round(grown / 1_048_576)} MiB more in memory`)
  })
}
