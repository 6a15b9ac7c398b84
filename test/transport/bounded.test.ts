// The cost of many simultaneous attempts to a hostile downstream: time, memory and sockets are each bounded.
import type { Socket } from 'node:net'
import t from 'tap'
import { stopwatch } from '../support/stopwatch.ts'
import { bodyMs, head, timeoutMs } from './downstreams.ts'
import { sendContext } from './send-context.ts'
import { open } from './play-out.ts'
import { rawServer, type Behave } from './raw-server.ts'

t.setTimeout(600_000)

const attempts = 200
const block = Buffer.alloc(16_384, 'x')

const endless = (socket: Socket): void => {
  socket.write(`${head('200 OK')}\r\n`)
  const more = (): void => {
    while (!socket.destroyed && socket.write(block));
  }
  socket.on('drain', more)
  more()
}
const trickling = (socket: Socket): void => {
  socket.write(`${head('200 OK')}\r\n`)
  const timer = setInterval(() => socket.write('x'), 20)
  socket.on('close', () => clearInterval(timer))
}
const neverMs = 60_000
/** Limits of time that a world may not need. */
const never = { bodyMs: neverMs, connectMs: neverMs, timeoutMs: neverMs }
/** `late`: the outcomes of attempts that waited too long for their turn in this busy process. */
const worlds: {
  name: string
  behave: Behave
  limits: typeof never
  byMs: number
  outcome: string
  late: string[]
}[] = [
  // It ends by its bytes, long before the deadline.
  {
    name: 'endless',
    behave: endless,
    limits: never,
    byMs: neverMs,
    outcome: 'delivered answer_too_long',
    late: []
  },
  // It ends by the deadline of a body.
  {
    name: 'trickling',
    behave: trickling,
    limits: { ...never, bodyMs },
    byMs: timeoutMs + bodyMs,
    outcome: 'delivered timeout',
    late: []
  },
  {
    name: 'hanging',
    behave: () => {},
    limits: { bodyMs, connectMs: 300, timeoutMs: timeoutMs + bodyMs },
    byMs: timeoutMs + bodyMs,
    outcome: 'failed timeout',
    late: ['failed connect_timeout']
  }
]

for (const { name, behave, limits, byMs, outcome, late } of worlds) {
  t.test(`I45: ${attempts} attempts at once at a downstream that is ${name} stay within bounds`, async t => {
    const server = await rawServer(t, behave)
    const http = open(t, limits)
    let most = 0
    const watch = setInterval(() => {
      most = Math.max(most, server.open.size)
    }, 5)
    const heap = () => process.memoryUsage().heapUsed + process.memoryUsage().external
    const before = heap()
    const started = stopwatch(t)
    const outcomes = await Promise.all(
      Array.from({ length: attempts }, () =>
        http.send({ url: server.url, body: '{}' }, sendContext({ timeoutMs: limits.timeoutMs }))
      )
    )
    const took = started()
    const grown = heap() - before
    clearInterval(watch)
    const ends = outcomes.map(one => `${one.kind} ${'reason' in one ? one.reason : one.warning}`)
    t.ok(ends.includes(outcome), outcome)
    t.same(
      ends.filter(end => end !== outcome && !late.includes(end)),
      []
    )
    const longest = Math.max(...outcomes.map(one => ('answer' in one ? (one.answer?.length ?? 0) : 0)))
    t.ok(name === 'endless' ? longest === 16_384 : longest <= 16_384, `${longest} bytes are kept`)
    t.ok(took < byMs + 1_000, `ended by deadline and a second: ${Math.round(took)} ms`)
    t.ok(most > 0 && most <= attempts, `${most} sockets`)
    // The downstream runs in this process too: its buffered writes count as ours.
    t.ok(grown < attempts * 262_144, `${Math.round(grown / 1_048_576)} MiB`)
    for (const socket of server.open)
      if (!socket.closed) await new Promise(resolve => socket.once('close', resolve))
    t.equal(server.open.size, 0, 'and no socket is left')
  })
}

t.test(
  'I45: a downstream that takes no byte of a large request costs one deadline and no socket',
  async t => {
    const server = await rawServer(t, () => {})
    const { createServer } = await import('node:net')
    const deaf = createServer({ pauseOnConnect: true }, socket => {
      held.push(socket.on('error', () => {}))
    })
    const held: Socket[] = []
    await server.close()
    await new Promise<void>(resolve => deaf.listen(server.port, '127.0.0.1', resolve))
    t.teardown(() => {
      for (const socket of held) socket.destroy()
      deaf.close()
    })
    const started = stopwatch(t)
    const http = open(t)
    const outcome = await http.send(
      { url: server.url, body: 'x'.repeat(32 << 20) },
      sendContext({ timeoutMs })
    )
    t.match(outcome, { kind: 'failed', reason: 'timeout' })
    t.ok(started() < timeoutMs + 1_000)
    for (const socket of held)
      await new Promise(resolve => {
        socket.once('close', resolve).resume()
      })
  }
)
