import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { listening, order } from './fake.ts'

t.setTimeout(90_000)

/** So many connections, each having written `bytes`; gone with the test. */
async function crowd(t: Test, port: number, count: number, bytes: string): Promise<Socket[]> {
  const sockets: Socket[] = []
  t.teardown(() => sockets.forEach(socket => socket.destroy()))
  // The kernel's queue of new connections is shorter than a crowd.
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
  const { port, origin } = await listening(t)
  const idle = await crowd(t, port, 2_000, '')
  t.equal(await posted(origin, 'beside'), 201)
  t.equal(idle.filter(socket => socket.closed).length, 0, 'within the limits none is refused')
})

t.test('E76: beside 2,000 half-sent requests a producer is served, and they are let go', async t => {
  const { port, origin, stored } = await listening(t)
  const body = JSON.stringify({ ...order, taskNo: 'never' })
  const head = `POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`
  const halves = await crowd(t, port, 2_000, head + body.slice(0, -5))
  t.equal(await posted(origin, 'beside'), 201)
  for (const socket of halves) socket.resume()
  await Promise.all(halves.map(gone))
  t.same([...stored.keys()], ['beside'], 'no half of a task is stored')
  t.equal(await posted(origin, 'after'), 201)
})

t.test('beyond the limit of connections the next are refused, and once some leave there is room', async t => {
  const { port, origin, app } = await listening(t)
  app.server.maxConnections = 100
  const all = await crowd(t, port, 150, '')
  const refused = all.slice(100)
  for (const socket of refused) socket.resume()
  await Promise.all(refused.map(gone))
  t.equal(all.slice(0, 100).filter(socket => socket.closed).length, 0)
  const left = all.slice(0, 50).map(socket => once(socket, 'close'))
  for (const socket of all.slice(0, 50)) socket.destroy()
  await Promise.all(left)
  let status: number | null = null
  while (status === null) status = await posted(origin, 'later').catch(() => null)
  t.equal(status, 201)
})
