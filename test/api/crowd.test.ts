// Takes long: npm run test:long.
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { connectionLimits } from '../../src/api/connections.ts'
import { listening, order } from './fake.ts'

t.setTimeout(2_400_000)

/** The limits of a process that has enough file descriptors. */
const usual = connectionLimits(1_000_000)

/** Opens `count` connections and writes `bytes` on each. The teardown closes them. */
async function crowd(t: Test, port: number, count: number, bytes: string): Promise<Socket[]> {
  const sockets: Socket[] = []
  t.teardown(() => sockets.forEach(socket => socket.destroy()))
  // The kernel's queue of new connections is shorter than `count`.
  while (sockets.length < count) {
    const some = Array.from({ length: Math.min(200, count - sockets.length) }, () => {
      const socket = connect(port, '127.0.0.1')
      socket.on('error', () => {})
      return socket
    })
    sockets.push(...some)
    await Promise.all(some.map(socket => once(socket, 'connect')))
    if (bytes !== '') for (const socket of some) socket.write(bytes)
  }
  return sockets
}

const gone = async (socket: Socket): Promise<void> => {
  if (!socket.closed) await once(socket, 'close')
}

const posted = async (origin: string, taskNo: string): Promise<number> => {
  const answer = await fetch(`${origin}/tasks`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...order, taskNo })
  })
  await answer.arrayBuffer()
  return answer.status
}

t.test('E75: beside 2,000 idle connections a producer is served', async t => {
  const { port, origin } = await listening(t, {}, usual)
  const idle = await crowd(t, port, 2_000, '')
  t.equal(await posted(origin, 'beside'), 201)
  t.equal(idle.filter(socket => socket.closed).length, 0, 'within the limits none is refused')
})

t.test('E76: beside 2,000 half-sent requests a producer is served, and they are let go', async t => {
  const { port, origin, stored } = await listening(t, {}, usual)
  const body = JSON.stringify({ ...order, taskNo: 'never' })
  const head = `POST /tasks HTTP/1.1\r\nHost: ackbox.test\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`
  const halves = await crowd(t, port, 2_000, head + body.slice(0, -5))
  t.equal(await posted(origin, 'beside'), 201)
  for (const socket of halves) socket.resume()
  await Promise.all(halves.map(gone))
  t.same([...stored.keys()], ['beside'], 'no half of a task is stored')
  // On a busy machine so many closes at once may delay the event loop. The API then answers 503, and a producer retries.
  let status = 503
  while (status === 503) status = await posted(origin, 'after')
  t.equal(status, 201)
})

t.test('beside more idle connections than the limit a producer is served', async t => {
  const { port, origin } = await listening(t, {}, usual)
  await crowd(t, port, 5_000, '')
  let status: number | null = null
  while (status !== 201) status = await posted(origin, 'beside').catch(() => null)
  t.equal((await fetch(`${origin}/healthz`)).status, 200)
})
