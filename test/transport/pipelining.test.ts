// Requests that share a connection: the outcome of each when one of them is slow, or when the connection ends.
import { once } from 'node:events'
import type { Socket } from 'node:net'
import t, { type Test } from 'tap'
import type { Outcome } from '../../src/domain/types.ts'
import type { HttpRequest } from '../../src/transport/http/http.ts'
import type { SendContext } from '../../src/transport/types.ts'
import { sendContext } from './send-context.ts'
import { open } from './play-out.ts'
import { answer as writtenAnswer, rawServer, type Received } from './raw-server.ts'

t.setTimeout(600_000)

interface Came {
  socket: Socket
  request: Received
}

/** A downstream that answers on command, and requests to it that share one connection. */
async function scene(t: Test) {
  const came: Came[] = []
  let wake = () => {}
  const server = await rawServer(t, (socket, request) => {
    came.push({ socket, request })
    wake()
  })
  const http = open(t, { bodyMs: 60_000, connectMs: 60_000 })
  const limit = { concurrency: 8, pipelining: 8 }
  return {
    came,
    server,
    send: (request: HttpRequest): Promise<Outcome> => http.send(request, sendContext({ limit })),
    post: (body: string, more: Partial<SendContext> = {}): Promise<Outcome> =>
      http.send({ url: server.url, body }, sendContext({ limit, ...more })),
    /** Resolves when this many requests have arrived in all. */
    async until(count: number) {
      while (came.length < count)
        await new Promise<void>(resolve => {
          wake = resolve
        })
    },
    answer: (index: number, headers: Record<string, string> = {}) => {
      const { socket, request } = came[index] as Came
      socket.write(writtenAnswer(200, request.body.toString(), headers))
    }
  }
}

const bodyOf = (outcome: Outcome) => ('answer' in outcome ? outcome.answer?.toString() : undefined)
const bodies = (came: Came[]) => came.map(({ request }) => request.body.toString())

t.test(
  'small and large ones arrive byte for byte, written to a shared connection in one go or alone',
  async t => {
    const { came, post, until, answer } = await scene(t)
    const sent = ['x', 'ü'.repeat(40_000), 'y', 'z'.repeat(64_900), '€'.repeat(80_000), 'last'].map(
      text => `${text}.`
    )
    const shared = sent.map(body => post(body))
    await until(sent.length)
    t.strictSame(bodies(came), sent)
    for (const index of came.keys()) answer(index)
    await Promise.all(shared)
    for (const body of sent) {
      const alone = post(body, { limit: { concurrency: 1 } })
      await until(came.length + 1)
      t.equal(came.at(-1)?.request.body.toString(), body)
      answer(came.length - 1)
      t.match(await alone, { kind: 'delivered' })
    }
  }
)

t.test('all leave before the first answer, over one connection, and each gets its own answer', async t => {
  const { came, server, post, until, answer } = await scene(t)
  const sends = ['a', 'b', 'c', 'd'].map(body => post(body))
  await until(4)
  t.equal(server.open.size, 1)
  for (const index of came.keys()) answer(index)
  const outcomes = await Promise.all(sends)
  t.strictSame(outcomes.map(bodyOf), ['a', 'b', 'c', 'd'])
  t.ok(outcomes.every(({ kind }) => kind === 'delivered'))
})

for (const [name, one, other] of [
  [
    'without pipelining nothing is written behind a request that has no answer',
    { limit: { concurrency: 8 } },
    { limit: { concurrency: 8 } }
  ],
  ['two downstreams on one origin share no connection', { downstream: 'one' }, { downstream: 'two' }]
] as const)
  t.test(name, async t => {
    const { came, post, until, answer } = await scene(t)
    const sends = [post('a', one), post('b', other)]
    await until(2)
    t.not(came[0]?.socket, came[1]?.socket)
    answer(0)
    answer(1)
    await Promise.all(sends)
  })

t.test('a deadline behind another request leaves the connection alone', async t => {
  const { post, until, answer, server } = await scene(t)
  const slow = post('slow')
  await until(1)
  const hasty = post('hasty', { timeoutMs: 150 })
  await until(2)
  t.match(await hasty, { kind: 'failed', reason: 'timeout' })
  t.equal(server.open.size, 1)
  answer(0)
  t.equal(bodyOf(await slow), 'slow', 'and the one before it gets its answer')
})

t.test('an answer that nobody waits for any more is not given to the next', async t => {
  const { post, until, answer } = await scene(t)
  const first = post('first')
  await until(1)
  const hasty = post('hasty', { timeoutMs: 150 })
  await until(2)
  const last = post('last')
  await until(3)
  t.match(await hasty, { kind: 'failed', reason: 'timeout' })
  for (const index of [0, 1, 2]) answer(index)
  t.strictSame((await Promise.all([first, last])).map(bodyOf), ['first', 'last'])
})

t.test('where only those are left that nobody waits for, the connection ends', async t => {
  const { came, post, until, answer } = await scene(t)
  const first = post('first')
  await until(1)
  const hasty = post('hasty', { timeoutMs: 150 })
  await until(2)
  await hasty
  const closed = once(came[0]?.socket as Socket, 'close')
  answer(0)
  t.equal(bodyOf(await first), 'first')
  await closed
})

t.test(
  'the deadline of the first ends the connection; what was behind it fails and is not sent again',
  async t => {
    const { came, post, until, answer } = await scene(t)
    const first = post('first', { timeoutMs: 3_000 })
    await until(1)
    const behind = [post('b'), post('c')]
    await until(3)
    t.match(await first, { kind: 'failed', reason: 'timeout' })
    for (const outcome of await Promise.all(behind))
      t.match(outcome, { kind: 'failed', reason: 'connection_closed', address: /^127/ })
    const next = post('d')
    await until(4)
    answer(3)
    t.equal((await next).kind, 'delivered')
    t.strictSame(bodies(came), ['first', 'b', 'c', 'd'])
  }
)

t.test('a downstream that hangs up fails all that was on the connection, and none comes twice', async t => {
  const { came, post, until, answer } = await scene(t)
  const sends = ['a', 'b', 'c'].map(body => post(body))
  await until(3)
  answer(0)
  t.equal((await sends[0])?.kind, 'delivered')
  came[0]?.socket.destroy()
  for (const send of sends.slice(1)) t.match(await send, { kind: 'failed', reason: 'connection_closed' })
  const next = post('d')
  await until(4)
  answer(3)
  t.equal((await next).kind, 'delivered')
  t.strictSame(bodies(came), ['a', 'b', 'c', 'd'])
})

t.test(
  'what stands behind an answer with connection: close was not read, and goes over another one',
  async t => {
    const { came, post, until, answer } = await scene(t)
    const sends = ['a', 'b', 'c'].map(body => post(body))
    await until(3)
    answer(0, { connection: 'close' })
    await until(5)
    answer(3)
    answer(4)
    const outcomes = await Promise.all(sends)
    t.strictSame(outcomes.map(bodyOf), ['a', 'b', 'c'])
    t.strictSame(bodies(came), ['a', 'b', 'c', 'b', 'c'])
    t.not(came[0]?.socket, came[3]?.socket)
  }
)

t.test('and only once, whatever the next connection says', async t => {
  const { came, post, until, answer } = await scene(t)
  const sends = ['a', 'b', 'c'].map(body => post(body))
  await until(3)
  answer(0, { connection: 'keep-alive, Close' })
  await until(5)
  answer(3, { connection: 'close' })
  const outcomes = await Promise.all(sends)
  t.match(outcomes, [
    { kind: 'delivered' },
    { kind: 'delivered' },
    { kind: 'failed', reason: 'connection_closed' }
  ])
  t.strictSame(bodies(came), ['a', 'b', 'c', 'b', 'c'])
})

for (const [what, text] of [
  ['an answer of HTTP/1.0', 'HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok'],
  ['an answer that ends with its connection', 'HTTP/1.1 200 OK\r\n\r\nok']
] as const) {
  t.test(`nothing behind ${what} comes twice`, async t => {
    const { came, post, until } = await scene(t)
    const sends = ['a', 'b', 'c'].map(body => post(body))
    await until(3)
    came[0]?.socket.end(text)
    t.match(await Promise.all(sends), [
      { kind: 'delivered' },
      { kind: 'failed', reason: 'connection_closed' },
      { kind: 'failed', reason: 'connection_closed' }
    ])
    t.strictSame(bodies(came), ['a', 'b', 'c'])
  })
}

t.test('where the downstream does not come back, all hear that the connection was closed', async t => {
  const { server, post, until } = await scene(t)
  const sends = ['a', 'b', 'c'].map(body => post(body))
  await until(3)
  await server.close()
  const address = `127.0.0.1:${server.port}`
  for (const outcome of await Promise.all(sends))
    t.match(outcome, { kind: 'failed', reason: 'connection_closed', address })
  t.match(await post('d'), { kind: 'failed', reason: 'connection_refused' })
})

t.test('a long answer is cut short for itself, and not for those behind it', async t => {
  const { came, post, until, answer, server } = await scene(t)
  const sends = ['a', 'b'].map(body => post(body))
  await until(2)
  came[0]?.socket.write(writtenAnswer(200, 'x'.repeat(100_000)))
  t.match(await sends[0], { kind: 'delivered', warning: 'answer_too_long' })
  answer(1)
  t.equal(bodyOf(await (sends[1] as Promise<Outcome>)), 'b')
  t.equal(server.open.size, 1)
})

t.test('a body that its method does not call for shares no connection, and waits for none', async t => {
  const { came, server, until, answer, send } = await scene(t)
  const sends = Array.from({ length: 12 }, () => send({ url: server.url, method: 'DELETE', body: 'x' }))
  await until(12)
  t.equal(new Set(came.map(({ socket }) => socket)).size, 12)
  for (const index of came.keys()) answer(index)
  for (const outcome of await Promise.all(sends)) t.equal(outcome.kind, 'delivered')
})

t.test('nor after a connection that breaks without a word', async t => {
  const { came, post, until, answer } = await scene(t)
  const sends = ['a', 'b', 'c'].map(body => post(body))
  await until(3)
  answer(0, { connection: 'close' })
  await until(5)
  came[3]?.socket.destroy()
  const outcomes = await Promise.all(sends)
  t.strictSame(
    outcomes.map(({ kind }) => kind),
    ['delivered', 'failed', 'failed']
  )
  t.equal(came.length, 5)
})

t.test('many answers together are no flood, one without end is', async t => {
  const { came, post, until } = await scene(t)
  const rounds = 12
  for (let round = 0; round < rounds; round++) {
    const sends = Array.from({ length: 8 }, (_, nth) => post(`${nth}`))
    await until((round + 1) * 8)
    const socket = came[0]?.socket as Socket
    for (let nth = 0; nth < 8; nth++) socket.write(writtenAnswer(200, 'x'.repeat(8_000)))
    const outcomes = await Promise.all(sends)
    t.ok(outcomes.every(({ kind }) => kind === 'delivered'))
  }
  const sends = ['a', 'b'].map(body => post(body))
  await until(rounds * 8 + 2)
  const socket = came[0]?.socket as Socket
  // Chunk extensions reach no handler.
  socket.write(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n`)
  const chunk = `1;${'x'.repeat(4_000)}\r\nx\r\n`
  const flood = setInterval(() => socket.write(chunk.repeat(8)), 2)
  t.teardown(() => clearInterval(flood))
  const [flooded, behind] = await Promise.all(sends)
  t.match(flooded, { warning: 'answer_too_long' })
  t.match(behind, { kind: 'failed', reason: 'connection_closed' })
})

t.test('shutdown ends all of them at once', async t => {
  const { post, until } = await scene(t)
  const ending = new AbortController()
  const sends = ['a', 'b'].map(body => post(body, { signal: ending.signal }))
  await until(2)
  ending.abort()
  for (const outcome of await Promise.all(sends))
    t.match(outcome, { kind: 'failed', reason: /^(?:shutdown|connection_closed)$/ })
})

t.test('a limit that is raised gets more connections at once, also while all are busy', async t => {
  const { came, server, post, until, answer } = await scene(t)
  const sends = [post('first', { limit: { concurrency: 2, pipelining: 2 } })]
  await until(1)
  for (let i = 0; i < 7; i++) sends.push(post(`${i}`, { limit: { concurrency: 8, pipelining: 2 } }))
  await Promise.race([until(8), Promise.all(sends)])
  t.equal(came.length, 8)
  for (const index of came.keys()) answer(index)
  for (const outcome of await Promise.all(sends)) t.match(outcome, { kind: 'delivered' })
  const [first] = came
  if (first && !first.socket.destroyed) await once(first.socket, 'close')
  t.ok(server.open.size <= 4, `${server.open.size} connections`)
})
