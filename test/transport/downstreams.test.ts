// Every row of downstreams.ts and hostile.ts, played by a real TCP server. Deadlines are short, so that all of it takes seconds.
import t from 'tap'
import { ok, rows, timeoutMs } from './downstreams.ts'
import { rows as hostile } from './hostile.ts'
import { sendContext } from './send-context.ts'
import { open, playOut } from './play-out.ts'
import { answer, rawServer } from './raw-server.ts'

for (const row of [...rows, ...hostile]) playOut(t, row)

t.test('D26 1,900 small headers are accepted, and a few of them kept', async t => {
  const many = Object.fromEntries(Array.from({ length: 1_900 }, (_, i) => [`x-${i}`, 'some value']))
  const server = await rawServer(t, socket => socket.write(answer(200, '', many)))
  const http = open(t)
  const outcome = await http.send({ url: server.url }, sendContext())
  t.match(outcome, { kind: 'delivered', headers: { length: 50 } })

  const big = await rawServer(t, socket =>
    socket.write(
      answer(200, '', Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`x-${i}`, 'y'.repeat(1_000)])))
    )
  )
  const kept = await http.send({ url: big.url }, sendContext())
  t.ok(JSON.stringify(kept.kind === 'delivered' && kept.headers).length < 9_000)
})

t.test('D31 a redirect loop costs one request', async t => {
  const server = await rawServer(t, socket => socket.write(answer(307, '', { location: '/hook' })))
  const http = open(t)
  t.match(await http.send({ url: server.url }, sendContext()), {
    kind: 'failed',
    reason: 'http_307',
    headers: [
      ['content-length', '0'],
      ['location', '/hook']
    ]
  })
  t.equal(server.received.length, 1)
})

t.test('D35 an answer that nobody asked for is never taken for the next one', async t => {
  const evil = answer(200, 'EVIL')
  // In the same write as the real answer, and while the connection is idle.
  for (const name of ['with it', 'while idle']) {
    const server = await rawServer(t, socket => {
      socket.write(name === 'with it' ? ok + evil : ok)
      if (name === 'while idle') setTimeout(() => socket.write(evil), 5)
    })
    const http = open(t)
    for (let i = 0; i < 20; i++) {
      const outcome = await http.send({ url: server.url }, sendContext())
      t.match(outcome, { kind: 'delivered', answer: Buffer.from('fine') }, name)
      if (name === 'while idle') await new Promise(resolve => setTimeout(resolve, 15))
    }
  }
})

t.test('D37 a status that comes while we still write counts', async t => {
  const early = await earlyAnswer(t)
  const http = open(t)
  t.match(await http.send({ url: early, body: 'x'.repeat(8 << 20) }, sendContext({ timeoutMs })), {
    kind: 'failed',
    reason: 'http_413'
  })
})

/** Answers 413 at the first byte and stops reading. */
async function earlyAnswer(t: Parameters<typeof rawServer>[0]): Promise<string> {
  const server = await rawServer(t, () => {})
  await server.close()
  const { createServer } = await import('node:net')
  const early = createServer(socket =>
    socket
      .on('error', () => {})
      .once('data', () => {
        socket.pause()
        socket.write(answer(413))
      })
  )
  await new Promise<void>(resolve => early.listen(server.port, '127.0.0.1', resolve))
  t.teardown(() => early.close())
  return server.url
}

t.test('D39 a downstream that was down is served as soon as it is well', async t => {
  const server = await rawServer(t, (socket, _request, nth) => socket.write(nth <= 5 ? answer(503) : ok))
  const http = open(t)
  for (let i = 0; i < 5; i++)
    t.match(await http.send({ url: server.url }, sendContext()), { kind: 'failed', reason: 'http_503' })
  t.match(await http.send({ url: server.url }, sendContext()), { kind: 'delivered' })
  t.ok(server.open.size <= 2, 'over kept connections')
})
