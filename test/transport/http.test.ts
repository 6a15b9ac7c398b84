import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { guard } from '../../src/transport/egress/guard.ts'
import { httpTransport, type HttpRequest } from '../../src/transport/http/http.ts'
import { transports } from '../../src/transport/registry.ts'
import { originsFrom, url } from '../../src/transport/url.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { until } from '../support/until.ts'
import { conformance, type DownstreamUnderTest, type Mood } from './conformance.ts'
import { sendContext } from './send-context.ts'
import { answer, rawServer, type Behave, type RawServer } from './raw-server.ts'

const open = (resolve?: () => Promise<{ address: string; family: number }[]>) =>
  guard({ allow: undefined, embedded: true, deny: [], ...(resolve && { resolve }) })

const echoes = new WeakMap<Socket, Promise<void>>()

/** Answers after a random delay, and after the earlier requests of this connection, as HTTP requires. */
function echo(socket: Socket, body: Buffer): void {
  const ready = sleep(Math.random() * 20)
  const before = echoes.get(socket) ?? ready
  echoes.set(
    socket,
    Promise.all([before, ready]).then(() => void socket.write(answer(200, body.toString())))
  )
}

async function downstream(t: Test): Promise<DownstreamUnderTest<HttpRequest>> {
  let mood: Mood = 'take'
  let hung = (_socket: Socket): void => {}
  const hanging = new Promise<Socket>(resolve => {
    hung = resolve
  })
  const behave: Behave = (socket, { body }) => {
    switch (mood) {
      case 'take':
        return void socket.write(answer(200, 'fine'))
      case 'echo':
        return echo(socket, body)
      case 'fail':
        return void socket.write(answer(503))
      case 'refuse':
        return void socket.write(answer(410))
      case 'hang':
        return hung(socket)
      case 'too large':
        return void socket.write(answer(200, 'x'.repeat(1 << 20)))
    }
  }
  let server: RawServer = await rawServer(t, behave)
  const { port, url: address, received } = server
  const transport = httpTransport({ guard: open() })
  t.teardown(() => transport.close())
  return {
    transport,
    get seen() {
      return [...received, ...(server.received === received ? [] : server.received)]
    },
    request: ({ body, headers }) => ({ url: address, body, ...(headers && { headers }) }),
    mood: next => {
      mood = next
    },
    stop: () => server.close(),
    start: async () => {
      server = await rawServer(t, behave, port)
    },
    hanging: async () => {
      await hanging
    },
    letGo: async () => {
      const socket = await hanging
      if (!socket.closed) await once(socket, 'close')
    }
  }
}

t.test('over http', async t => conformance(t, downstream))

t.test('over http, eight requests on a connection', async t =>
  conformance(t, async t => {
    const under = await downstream(t)
    const { transport } = under
    const limit = { concurrency: 50, pipelining: 8 }
    return Object.assign(under, {
      transport: {
        ...transport,
        send: (request, context, accepted) => transport.send(request, { ...context, limit }, accepted)
      } satisfies typeof transport
    })
  })
)

t.test('every transport that handlers may name is there, and closes', async t => {
  const all = await transports({ guard: open(), brokers: new Map(), log: console }, ['http'])
  t.strictSame(Object.keys(all), ['http'])
  for (const each of Object.values(all)) await each.close()
})

t.test('the request on the wire is what the handler asked for, and no more', async t => {
  const server = await rawServer(t, socket => socket.write(answer(200)))
  const http = httpTransport({ guard: open() })
  t.teardown(() => http.close())
  await http.send(
    { url: `${server.url}?a=1#fragment`, body: '{}' },
    sendContext({ ours: { 'ackbox-attempt': '1' } })
  )
  t.equal(
    server.received[0]?.head,
    [
      'POST /hook?a=1 HTTP/1.1',
      `host: 127.0.0.1:${server.port}`,
      'connection: keep-alive',
      'user-agent: ackbox',
      'content-type: application/json',
      'accept-encoding: identity',
      'ackbox-attempt: 1',
      'content-length: 2'
    ].join('\r\n')
  )
  originsFrom({ WAREHOUSE_URL: server.url })
  await http.send({ url: url`${server.url}/${'a b'}`, body: '{}' }, sendContext())
  t.equal(server.received[1]?.path, '/hook/a%20b')
  await http.send(
    {
      url: new URL(server.url),
      method: 'PUT',
      headers: { 'Content-Type': 'text/xml', 'X-A': '1' },
      body: '<a/>'
    },
    sendContext()
  )
  t.match(server.received[2], { method: 'PUT', headers: { 'content-type': 'text/xml', 'x-a': '1' } })
})

t.test(
  'a header or a request that cannot be sent is an outcome, never a throw, and nothing leaves',
  async t => {
    const server = await rawServer(t, socket => socket.write(answer(200)))
    const http = httpTransport({ guard: open() })
    t.teardown(() => http.close())
    const values = ['a\r\nb: c', 'a\nb', 'a\rb', 'a\0b', '你', '\u{1f600}', 'a\u007fb', 'canary\n']
    const requests: unknown[] = [
      ...values.map(value => ({ url: server.url, headers: { 'x-data': value } })),
      { url: server.url, headers: { 'x\r\ny': 'z' } },
      { url: server.url, headers: { '': 'z' } },
      { url: server.url, headers: { 'x y': 'z' } },
      { url: server.url, headers: { 'x-n': 7 } },
      { url: server.url, headers: { 'x-a': 'b', 'X-A': 'c' } },
      ...[
        'Host',
        'content-length',
        'Transfer-Encoding',
        'connection',
        'expect',
        'webhook-id',
        'Ackbox-Callback-Token'
      ].map(name => ({ url: server.url, headers: { [name]: '1' } })),
      { url: server.url, method: 'CONNECT' },
      { url: server.url, method: 'POST / HTTP/1.1\r\nx: y' },
      { url: server.url, body: { a: 1 } },
      {},
      { url: null },
      { url: 'nonsense' },
      undefined,
      null,
      'http://127.0.0.1/'
    ]
    for (const request of requests) {
      const outcome = await http.send(request as HttpRequest, sendContext())
      t.match(
        outcome,
        { kind: 'failed', reason: /^(?:bad_request|blocked_target): / },
        JSON.stringify(request)
      )
      t.notMatch(JSON.stringify(outcome), 'canary', 'a value may be a secret')
    }
    t.equal(server.received.length, 0)
    t.match(
      await http.send({ url: server.url }, sendContext({ ours: { 'webhook-id': 'a\nb' } })),
      { kind: 'failed', reason: /./ },
      'not even ours'
    )
    t.match(await http.send({ url: server.url }, sendContext()), { kind: 'delivered' })
  }
)

t.test('a proxy in the environment is not asked', async t => {
  t.intercept(process, 'env', {
    value: { ...process.env, HTTP_PROXY: 'http://127.0.0.1:9', http_proxy: 'http://127.0.0.1:9' }
  })
  const server = await rawServer(t, socket => socket.write(answer(200)))
  const http = httpTransport({ guard: open() })
  t.teardown(() => http.close())
  t.match(await http.send({ url: server.url }, sendContext()), { kind: 'delivered' })
})

t.test('a name that does not resolve is tried again later', async t => {
  const failing = (code: string) =>
    httpTransport({
      guard: open(async () => {
        throw Object.assign(new Error(code), { code })
      })
    })
  for (const code of ['ENOTFOUND', 'EAI_AGAIN']) {
    const http = failing(code)
    t.strictSame(await http.send({ url: 'http://nx.test/' }, sendContext()), {
      kind: 'failed',
      reason: `dns: ${code}`
    })
    await http.close()
  }
  const silent = httpTransport({ guard: open(() => new Promise(() => {})) })
  t.match(await silent.send({ url: 'http://slow.test/' }, sendContext({ timeoutMs: 200 })), {
    kind: 'failed',
    reason: 'connect_timeout'
  })
  await silent.close()
})

t.test('nobody listens', async t => {
  const server = await rawServer(t, () => {})
  await server.close()
  const http = httpTransport({ guard: open() })
  t.teardown(() => http.close())
  t.strictSame(await http.send({ url: server.url }, sendContext()), {
    kind: 'failed',
    reason: 'connection_refused'
  })
})

/** A listener whose backlog of two is full: its process is stopped and accepts nothing, so the kernel drops further SYNs. */
async function full(t: Test): Promise<number> {
  const script =
    'const s = require("net").createServer().listen({port: 0, host: "127.0.0.1", backlog: 1}, () => console.log(s.address().port))'
  const child = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [line] = await once(child.stdout, 'data')
  const fillers: Socket[] = []
  t.teardown(() => {
    for (const filler of fillers) filler.destroy()
    child.kill('SIGKILL')
    child.stdout.destroy()
  })
  child.kill('SIGSTOP')
  await until('it is stopped', () => /^\d+ \(.*\) T/.test(readFileSync(`/proc/${child.pid}/stat`, 'utf8')))
  const port = Number(String(line))
  for (let i = 0; i < 2; i++) {
    const filler = connect(port, '127.0.0.1').on('error', () => {})
    fillers.push(filler)
    await once(filler, 'connect')
  }
  return port
}

t.test(
  'D4 a connect that never completes ends by its own limit, or by the deadline',
  { skip: process.platform !== 'linux' && 'needs a full backlog' },
  async t => {
    const port = await full(t)
    const http = httpTransport({ guard: open(), limits: { connectMs: 300 } })
    t.teardown(() => http.close())
    for (const timeoutMs of [5_000, 150]) {
      const started = stopwatch(t)
      t.match(await http.send({ url: `http://127.0.0.1:${port}/` }, sendContext({ timeoutMs })), {
        kind: 'failed',
        reason: 'connect_timeout'
      })
      t.ok(started() < 1_400, `${Math.round(started())} ms`)
    }
  }
)

t.test(
  'D43 of several addresses the one that answers is taken, and stored',
  { skip: process.platform !== 'linux' && 'needs 127.0.0.2' },
  async t => {
    const port = await full(t)
    // The full listener uses 127.0.0.1 alone, so the good one can have the same port on 127.0.0.2.
    const { createServer } = await import('node:net')
    const good = createServer(socket =>
      socket.on('error', () => {}).on('data', () => socket.end(answer(200)))
    )
    await new Promise<void>(resolve => good.listen(port, '127.0.0.2', resolve))
    t.teardown(() => good.close())
    const http = httpTransport({
      guard: open(async () => ['127.0.0.1', '127.0.0.2'].map(address => ({ address, family: 4 })))
    })
    t.teardown(() => http.close())
    t.match(await http.send({ url: `http://eight.example:${port}/` }, sendContext({ timeoutMs: 3_000 })), {
      kind: 'delivered',
      address: `127.0.0.2:${port}`
    })
  }
)

t.test('a request that waited too long for a connection is never sent late', async t => {
  const server = await rawServer(t, (socket, _request, nth) => {
    if (nth === 1) setTimeout(() => socket.write(answer(200)), 300)
    else socket.write(answer(200))
  })
  const http = httpTransport({ guard: open(), limits: { connections: 1 } })
  t.teardown(() => http.close())
  const first = http.send({ url: server.url, body: 'first' }, sendContext())
  t.match(await http.send({ url: server.url, body: 'late' }, sendContext({ timeoutMs: 100 })), {
    kind: 'failed',
    reason: 'connect_timeout'
  })
  t.match(await first, { kind: 'delivered' })
  t.match(await http.send({ url: server.url, body: 'third' }, sendContext()), { kind: 'delivered' })
  t.strictSame(
    server.received.map(each => String(each.body)),
    ['first', 'third']
  )
})

t.test('thirty origins through room for ten: all served, idle ones closed', async t => {
  // Servers that would keep a connection for long: only we close it.
  const kept = answer(200, '', { 'keep-alive': 'timeout=50' })
  const servers = await Promise.all(
    Array.from({ length: 30 }, () => rawServer(t, socket => socket.write(kept)))
  )
  const http = httpTransport({ guard: open(), limits: { origins: 10, idleMs: 10_000 } })
  t.teardown(() => http.close())
  for (const server of servers)
    t.match(await http.send({ url: server.url }, sendContext()), { kind: 'delivered' })
  const inUse = () => servers.flatMap((each, n) => (each.open.size > 0 ? [n] : []))
  await until('those without room are closed', () => inUse().length <= 10)
  t.same(
    inUse(),
    Array.from({ length: 10 }, (_, n) => 20 + n)
  )
  const now = performance.now.bind(performance)
  t.capture(performance, 'now', () => now() + 10_001)
  t.match(await http.send({ url: servers[0]?.url ?? '' }, sendContext()), { kind: 'delivered' })
  const began = stopwatch(t)
  await until('the idle ones are closed', () => inUse().length <= 1)
  t.same(inUse(), [0])
  t.ok(began() < 20_000, 'long before the time that the servers offer')
})
