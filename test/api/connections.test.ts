// A client that keeps the server waiting loses its connection. No client can take all connections.

import { once } from 'node:events'
import { createServer } from 'node:http'
import { connect, type AddressInfo, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { type ConnectionLimits, connectionLimiter, connectionLimits } from '../../src/api/connections.ts'
import { addressGroup, proxyCheck } from '../../src/api/address.ts'
import { until } from '../support/until.ts'
import type { ApiDeps } from '../../src/api/deps.ts'
import { api, listening, order } from './fake.ts'
import { parse, read, request, type RawAnswer } from './socket.ts'

/** Ten connections, at most seven of them for one address, and three spare ones. A silent client gets no grace period. */
const few: Partial<ConnectionLimits> = { connections: 10, perAddress: 7, spare: 3, graceMs: 0 }

/** The API with few connections, and a task that callers can wait for until `release`. */
async function crowded(t: Test, limits: Partial<ConnectionLimits> = few, change: Partial<ApiDeps> = {}) {
  let release = (): void => {}
  const released = new Promise<void>(resolve => {
    release = resolve
  })
  let waiting = 0
  const made = await listening(
    t,
    {
      waitTask: async (taskNo, _owner, _ms, signal) => {
        waiting++
        await Promise.race([released, once(signal, 'abort')])
        return made.deps.readTask(taskNo)
      },
      ...change
    },
    limits
  )
  t.teardown(release)
  await made.post({ ...order, taskNo: 'slow' })
  const come = async (from = '127.0.0.1', bytes = ''): Promise<Socket> => {
    const socket = connect({ port: made.port, host: '127.0.0.1', localAddress: from })
    socket.on('error', () => {})
    t.teardown(() => socket.destroy())
    await once(socket, 'connect')
    if (bytes !== '') socket.write(bytes)
    return socket
  }
  const wait = async (from?: string): Promise<Socket> => {
    const before = waiting
    const socket = await come(from, get('/tasks/slow?wait=HANDLED'))
    await until('it waits', () => waiting > before)
    return socket
  }
  const ask = async (path: string, from?: string): Promise<RawAnswer | undefined> =>
    answer(await come(from, get(path)))
  return { ...made, come, wait, ask, release }
}

const seven = async (one: () => Promise<Socket>): Promise<Socket[]> => {
  const all: Socket[] = []
  for (let n = 0; n < 7; n++) all.push(await one())
  return all
}

const get = (path: string) => request(`GET ${path} HTTP/1.1`, ['host: 127.0.0.1'])
const answer = async (socket: Socket): Promise<RawAnswer | undefined> => {
  const { text } = await read(socket, so => parse(so).length > 0)
  return parse(text)[0]
}
/** `once` of node:events would reject if the connection is reset. */
const event = (socket: Socket, ...names: string[]): Promise<void> =>
  new Promise(resolve => {
    for (const name of names) socket.once(name, () => resolve())
  })
const ended = async (socket: Socket): Promise<void> => {
  socket.resume()
  if (!socket.closed) await event(socket, 'close')
}

t.test('a client that sends a hundred requests at once gets a hundred answers in their order', async t => {
  const going: (() => void)[] = []
  let most = 0
  let n = 0
  const { port } = await listening(t, {
    ready: async () => {
      const number = String(n++)
      await new Promise<void>(resolve => {
        going.push(resolve)
        most = Math.max(most, going.length)
      })
      return { ok: true, checks: { number } }
    }
  })
  const socket = connect(port, '127.0.0.1')
  t.teardown(() => socket.destroy())
  socket.write(get('/readyz').repeat(100))
  const answered = read(socket, so => parse(so).length === 100)
  await until('32 are worked on', () => going.length === 32)
  while (n < 100 || going.length > 0) {
    const before = n
    going.splice(0).forEach(go => go())
    if (before < 100) await until('more are worked on', () => going.length > 0)
  }
  const { text } = await answered
  t.same(
    parse(text).map(({ body }) => (JSON.parse(body) as { checks: { number: string } }).checks.number),
    Array.from({ length: 100 }, (_, i) => String(i))
  )
  t.equal(most, 32, 'never more than 32 at a time')
})

t.test('a POST behind many requests is taken when it is its turn, body and all', async t => {
  const { port, stored } = await listening(t)
  const body = JSON.stringify({ ...order, taskNo: 'late', messageBody: { pad: 'x'.repeat(3_000) } })
  const post = request(
    'POST /tasks HTTP/1.1',
    ['host: 127.0.0.1', 'content-type: application/json', `content-length: ${body.length}`],
    body
  )
  const socket = connect(port, '127.0.0.1')
  t.teardown(() => socket.destroy())
  socket.write((get('/healthz').repeat(60) + post).repeat(10))
  const { text } = await read(socket, so => parse(so).length === 61 * 10)
  const statuses = parse(text).map(one => one.status)
  t.equal(statuses.filter(status => status === 200).length, 61 * 10 - 1)
  t.equal(statuses[60], 201)
  t.ok(stored.has('late'))
})

t.test('requests that wait behind others are bounded for all connections together', async t => {
  const { port, app } = await listening(t, {}, { held: 100 })
  const open = (count: number) => {
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => {})
    t.teardown(() => socket.destroy())
    socket.write(get('/tasks/none').repeat(count))
    return socket
  }
  await ended(open(2_000))
  const { text } = await read(open(60), so => parse(so).length === 60)
  t.equal(parse(text).length, 60, 'what a client sends that means well')
  t.equal((await app.inject('/healthz')).statusCode, 200)
})

t.test('who does not read the answers is cut off, and who waits for a task as long is not', async t => {
  const { come, wait, release, app } = await crowded(t, { unreadMs: 50 })
  const open = () => new Promise<number>(resolve => app.server.getConnections((_, n) => resolve(n)))
  const patient = await wait()
  const unreading = await come('127.0.0.1', get('/docs/static/swagger-ui-bundle.js').repeat(30))
  await once(unreading, 'data')
  unreading.pause()
  await until('only one connection is left', async () => (await open()) === 1)
  release()
  t.equal((await answer(patient))?.status, 200)
})

t.test('a connection that is kept open without a request is closed after a while', async t => {
  const { come, wait, release } = await crowded(t, { idleMs: 50 })
  const patient = await wait()
  const idle = await come('127.0.0.1', get('/healthz'))
  t.equal((await answer(idle))?.status, 200)
  await ended(idle)
  release()
  t.equal((await answer(patient))?.status, 200, 'but not one that waits')
})

t.test('the second server of HOST=localhost has the same limits, from its first request on', async t => {
  const connections = connectionLimiter({ ...connectionLimits(), ...few, graceMs: 600_000 }, () => false, {
    warn() {}
  })
  const server = createServer((asked, reply) => {
    connections.begin(asked, reply, isSpare =>
      reply.writeHead(isSpare ? 503 : 200, { 'content-length': 0 }).end()
    )
  })
  t.teardown(() => server.close())
  t.teardown(() => connections.stop())
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const come = async (): Promise<RawAnswer | undefined> => {
    const socket = connect(port, '127.0.0.1')
    t.teardown(() => socket.destroy())
    socket.write(get('/'))
    return answer(socket)
  }
  const all: (number | undefined)[] = []
  for (let n = 0; n < 9; n++) all.push((await come())?.status)
  t.same(all, [200, 200, 200, 200, 200, 200, 200, 200, 503])
})

t.test('beside connections that keep us waiting there is always a free one', async t => {
  const { come, ask } = await crowded(t)
  const bundle = get('/docs/static/swagger-ui-bundle.js').repeat(30)
  const half =
    'POST /tasks HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{'
  for (const [what, bytes] of Object.entries({ idle: '', half, unreading: bundle })) {
    for (let n = 0; n < 20; n++) {
      const socket = await come('127.0.0.1', bytes)
      if (bytes === bundle) {
        if (!socket.closed) await event(socket, 'data', 'close')
        socket.pause()
      }
    }
    for (const from of ['127.0.0.1', '127.0.0.2']) {
      t.equal((await ask('/downstreams', from))?.status, 200, `${what}, a caller at ${from}`)
      t.equal((await ask('/healthz', from))?.status, 200, `${what}, health at ${from}`)
    }
  }
})

t.test('one address has at most three quarters of the connections, however busy, and is told so', async t => {
  const { wait, ask, release } = await crowded(t)
  const busy = [...(await seven(wait)), await wait('127.0.0.2')]
  const refused = await ask('/downstreams')
  t.match(refused, { status: 503, headers: { 'retry-after': '1', connection: 'close' } })
  t.match(refused?.body, /UNAVAILABLE.*all connections are taken/)
  t.match(await ask('/healthz'), { status: 200, headers: { connection: 'close' } })
  t.equal((await ask('/downstreams', '127.0.0.2'))?.status, 200)
  release()
  for (const socket of busy) t.equal((await answer(socket))?.status, 200, 'who waits keeps the connection')
  t.equal((await ask('/downstreams'))?.status, 200, 'and then there is room')
})

t.test('health is answered while all connections are busy and idle ones hold the spare ones', async t => {
  const { wait, come, ask } = await crowded(t)
  await seven(wait)
  for (const from of ['127.0.0.2', '127.0.0.3', '127.0.0.4']) await wait(from)
  const idle: Socket[] = []
  for (let n = 0; n < 6; n++) idle.push(await come(`127.0.0.${n + 5}`))
  t.match(await ask('/healthz', '127.0.0.20'), { status: 200, headers: { connection: 'close' } })
  t.equal((await ask('/readyz', '127.0.0.20'))?.status, 200)
  t.equal((await ask('/metrics', '127.0.0.20'))?.status, 200)
  t.match(await ask('/tasks/slow', '127.0.0.20'), { status: 503, headers: { 'retry-after': '1' } })
  t.equal((await ask('/openapi.json', '127.0.0.20'))?.status, 503)
})

t.test('a short silence costs nobody a connection: then a newcomer is told to come back', async t => {
  const { come, ask } = await crowded(t, { ...few, graceMs: 600_000 })
  const idle = await seven(come)
  t.equal((await ask('/downstreams'))?.status, 503)
  t.equal((await ask('/healthz'))?.status, 200)
  idle[0]?.write(get('/downstreams'))
  t.equal((await answer(idle[0] as Socket))?.status, 200)
})

t.test('the address with the most connections gives up its own, not those of others', async t => {
  const { come, ask } = await crowded(t)
  const others = [await come('127.0.0.2'), await come('127.0.0.2'), await come('127.0.0.3')]
  for (let n = 0; n < 30; n++) await come('127.0.0.1')
  t.equal((await ask('/healthz', '127.0.0.4'))?.status, 200)
  for (const socket of others) {
    socket.write(get('/downstreams'))
    t.equal((await answer(socket))?.status, 200)
  }
})

t.test('a proxy of TRUST_PROXY has as many connections as there are', async t => {
  const { wait, ask } = await crowded(t, few, { trustProxy: '10.0.0.0/8,127.0.0.1' })
  const busy = [...(await seven(wait)), await wait(), await wait()]
  t.equal((await ask('/downstreams'))?.status, 200, 'the tenth of ten')
  t.equal(busy.filter(socket => socket.closed).length, 0)
})

t.test(
  'of those who wait for tasks each address has a share, and where keys are asked for each key',
  async t => {
    const owners: string[] = []
    const waitTask: ApiDeps['waitTask'] = async (_taskNo, owner) => {
      owners.push(owner)
      return 'busy'
    }
    const open = await api(t, { waitTask })
    await open.post({ ...order, taskNo: 'n' })
    t.equal((await open.app.inject('/tasks/n?wait=HANDLED')).statusCode, 429)
    const keyed = await api(t, { waitTask, auth: true })
    keyed.addKey('ack_1234567890abcdef', {
      id: 'key_shop',
      name: 'shop',
      scopes: ['tasks:read', 'tasks:write']
    })
    const headers = { authorization: 'Bearer ack_1234567890abcdef' }
    await keyed.post({ ...order, taskNo: 'n' }, headers)
    t.equal((await keyed.app.inject({ url: '/tasks/n?wait=HANDLED', headers })).statusCode, 429)
    t.same(owners, ['127.0.0.1', 'key_shop'], 'the id that the key shares its limits by, and not its name')
  }
)

t.test('an address is one machine: of IPv6 its network of 64 bits', async t => {
  t.equal(addressGroup('10.0.0.1'), '10.0.0.1')
  t.equal(addressGroup('::ffff:10.0.0.1'), '10.0.0.1')
  t.equal(addressGroup('2001:db8:1:2:3:4:5:6'), '2001:db8:1:2::/64')
  t.equal(addressGroup('2001:db8:1:2::9'), '2001:db8:1:2::/64')
  t.equal(addressGroup('2001:db8::9'), '2001:db8:0:0::/64')
  t.equal(addressGroup('::1'), '0:0:0:0::/64')
  t.equal(addressGroup('fe80::1%eth0'), 'fe80:0:0:0::/64')
  const listed = proxyCheck('10.0.0.0/8, 192.168.1.1,2001:db8::/32')
  for (const peer of ['10.9.9.9', '::ffff:10.9.9.9', '192.168.1.1', '2001:db8:7::1']) t.ok(listed(peer), peer)
  for (const peer of ['11.0.0.1', '192.168.1.2', '2001:db9::1']) t.notOk(listed(peer), peer)
  t.same(
    ([1, false, 0] as const).map(one => proxyCheck(one)('10.0.0.1')),
    [true, false, false]
  )
})

t.test('a process with few descriptors has few connections', async t => {
  t.match(connectionLimits(1_000_000), { connections: 4_096, perAddress: 3_072, spare: 64 })
  t.match(connectionLimits(256), { connections: 128, perAddress: 96, spare: 16 })
})

t.test('the pages of the docs are known again by their etag', async t => {
  const { app } = await api(t)
  const url = '/docs/static/swagger-ui.css'
  const first = await app.inject(url)
  t.match(first, { statusCode: 200, headers: { 'content-type': 'text/css; charset=utf-8' } })
  const again = await app.inject({ url, headers: { 'if-none-match': String(first.headers.etag) } })
  t.match(again, { statusCode: 304, body: '' })
  const head = await app.inject({ method: 'HEAD', url })
  t.match(head, { statusCode: 200, body: '', headers: { 'content-length': String(first.rawPayload.length) } })
})
