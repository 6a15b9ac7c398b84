import t from 'tap'
import { access } from '../../src/api/access.ts'
import { buildHealthApp } from '../../src/api/app.ts'
import { problems } from '../../src/runtime/errors.ts'
import { api, fakeService, listening, order } from './fake.ts'
import { request, talk } from './socket.ts'

const at = (host: string, more: Record<string, string> = {}) => ({ host, ...more })
const acts = ['POST /downstreams/warehouse/pause', 'POST /tasks', 'DELETE /tasks/one', 'POST /callback']
const split = (route: string) => {
  const [method = '', url = ''] = route.split(' ')
  return { method: method as 'GET', url }
}

t.test(
  'without keys no route answers under a name that is not ours, nor does a path without a route',
  async t => {
    const { app, stored, audits } = await api(t)
    const urls = Object.keys(access).map(route =>
      route.replace(':taskNo', 'one').replace(':name', 'warehouse').replace('*', 'static/index.css')
    )
    for (const route of [...urls, 'GET /nowhere', 'PUT /tasks', 'OPTIONS /tasks', 'HEAD /tasks']) {
      const answer = await app.inject({ ...split(route), headers: at('evil.example:3000') })
      t.equal(answer.statusCode, 421, route)
      t.equal(answer.headers['access-control-allow-origin'], undefined)
      if (!route.startsWith('HEAD'))
        t.match(answer.json(), { code: 'MISDIRECTED', detail: /set PUBLIC_URL/ }, route)
    }
    t.equal(stored.size, 0)
    t.same(audits, [])
    const health = await buildHealthApp(fakeService().deps)
    t.teardown(() => health.close())
    for (const url of ['/healthz', '/readyz', '/metrics'])
      t.equal(
        (await health.inject({ url, headers: at('evil.example') })).statusCode,
        421,
        `${url} of a worker`
      )
  }
)

t.test(
  'without keys this machine is served by its names, its HOST and PUBLIC_URL, and by nothing alike',
  async t => {
    const { app } = await api(t, { host: '127.0.0.2', publicUrl: 'https://Ackbox.Example:8443/in' })
    const served = [
      '127.0.0.1',
      '127.0.0.1:3000',
      '[::1]',
      '[::1]:3000',
      'localhost',
      'LOCALHOST:80',
      '127.0.0.2:3000',
      'ackbox.example',
      'ackbox.example:8443'
    ]
    for (const host of served)
      t.equal((await app.inject({ url: '/tasks', headers: at(host) })).statusCode, 200, host)
    const others = [
      'evil.example',
      '127.0.0.3',
      '0.0.0.0:3000',
      'localhost.evil.example',
      'evil-localhost',
      'ackbox.example.evil.example',
      '127.0.0.1.evil.example',
      '127.0.0.1@evil.example',
      'evil.example:80@127.0.0.1',
      '127.0.0.1:80:80',
      '127.0.0.1/evil.example',
      '127.0.0.1 evil.example',
      '127.0.0.1, evil.example',
      '[::1].evil.example',
      '::1',
      '[::2]',
      ' ',
      'x'.repeat(8_000)
    ]
    for (const host of others)
      t.equal((await app.inject({ url: '/tasks', headers: at(host) })).statusCode, 421, host)
    const six = await api(t, { host: '::1', publicUrl: 'https://ackbox.example' })
    t.equal((await six.app.inject({ url: '/tasks', headers: at('[::1]:3000') })).statusCode, 200)
  }
)

t.test('the name in an absolute target counts as much as the Host', async t => {
  const { port } = await listening(t)
  const ask = async (line: string, ...headers: string[]) =>
    (await talk(port, request(`${line} HTTP/1.1`, headers))).all[0]?.status
  const ours = 'Host: 127.0.0.1'
  t.equal(await ask('GET http://127.0.0.1/tasks', ours), 200)
  t.equal(await ask('GET http://ackbox.test:80/tasks', ours), 200)
  t.equal(await ask('GET http://evil.example/tasks', ours), 421)
  t.equal(await ask('GET HTTPS://evil.example', ours), 421)
  t.equal(await ask('GET http://127.0.0.1@evil.example/tasks', ours), 421)
  t.equal(await ask('GET http://evil.example@127.0.0.1/tasks', ours), 421)
  t.equal(await ask('GET http://127.0.0.1/tasks', 'Host: evil.example'), 421)
  t.equal(await ask('POST http://evil.example/downstreams/warehouse/pause', ours, 'Content-Length: 0'), 421)
  t.equal(await ask('GET /tasks', ours, 'Host: evil.example'), 400, 'two Hosts are none')
  t.equal(await ask('GET /tasks', 'Host:'), 421)
  t.equal(await ask('GET /tasks', 'Host: evil.example', 'Connection: Upgrade', 'Upgrade: websocket'), 421)
  const upgrade = ['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13']
  t.equal(
    await ask('GET /tasks', ours, ...upgrade, 'Origin: http://evil.example'),
    200,
    'and nothing is upgraded'
  )
  const old = await talk(port, request('GET /healthz HTTP/1.0', []))
  t.match(old.all[0], { status: 200 }, 'a probe that knows no Host')
})

/** The headers by which a browser names the origin of a request, and whether that request is allowed. */
const said: [headers: Record<string, string>, may: boolean][] = [
  [{}, true],
  [{ 'sec-fetch-site': 'same-origin' }, true],
  [{ 'sec-fetch-site': 'none' }, true],
  [{ origin: 'http://127.0.0.1:3000' }, true],
  [{ origin: 'http://127.0.0.1:3000', 'sec-fetch-site': 'same-origin' }, true],
  [{ origin: 'https://ackbox.example', 'sec-fetch-site': 'same-origin' }, true],
  [{ origin: 'https://ackbox.example' }, true],
  [{ 'sec-fetch-site': 'cross-site' }, false],
  [{ 'sec-fetch-site': 'same-site' }, false],
  [{ 'sec-fetch-site': 'something-new' }, false],
  [{ 'sec-fetch-site': 'same-origin, cross-site' }, false],
  [{ origin: 'http://127.0.0.1:3000', 'sec-fetch-site': 'same-site' }, false],
  [{ origin: 'https://ackbox.example', 'sec-fetch-site': 'cross-site' }, false],
  [{ origin: 'null' }, false],
  [{ origin: '' }, false],
  [{ origin: 'http://127.0.0.1' }, false],
  [{ origin: 'http://127.0.0.1:3001' }, false],
  [{ origin: 'http://localhost:3000' }, false],
  [{ origin: 'http://evil.example' }, false],
  [{ origin: 'http://evil.example:3000' }, false],
  [{ origin: 'http://ackbox.example' }, false],
  [{ origin: 'https://ackbox.example:444' }, false],
  [{ origin: 'https://ackbox.example.evil.example' }, false],
  [{ origin: 'http://127.0.0.1:3000, http://evil.example' }, false],
  [{ origin: 'chrome-extension://127.0.0.1:3000' }, false]
]

t.test(
  'without keys a page of another origin changes nothing; GET and those that are no browser go on',
  async t => {
    const { app } = await api(t, { publicUrl: 'https://ackbox.example' })
    const host = '127.0.0.1:3000'
    for (const [headers, may] of said) {
      for (const route of [...acts, 'OPTIONS /tasks', 'PUT /tasks']) {
        const { statusCode, body } = await app.inject({ ...split(route), headers: at(host, headers) })
        t.equal(
          body.includes('"code":"CROSS_ORIGIN"'),
          !may,
          `${route} ${JSON.stringify(headers)}: ${statusCode}`
        )
        t.equal(statusCode === 403, !may)
      }
      for (const method of ['GET', 'HEAD'] as const)
        t.equal((await app.inject({ method, url: '/tasks', headers: at(host, headers) })).statusCode, 200)
    }
    const through = { origin: 'https://localhost:8443', 'sec-fetch-site': 'same-origin' }
    const pause = split('POST /downstreams/warehouse/pause')
    t.equal(
      (await app.inject({ ...pause, headers: at('localhost:8443', through) })).statusCode,
      200,
      'by a proxy'
    )
    t.equal(
      (await app.inject({ ...pause, headers: at('localhost', through) })).statusCode,
      403,
      'that hides its port'
    )
  }
)

t.test('a preflight of another origin is told nothing that would let its page on', async t => {
  const { app } = await api(t)
  const headers = at('127.0.0.1', {
    origin: 'http://evil.example',
    'access-control-request-method': 'POST',
    'access-control-request-headers': 'content-type'
  })
  const answer = await app.inject({ method: 'OPTIONS', url: '/tasks', headers })
  t.equal(answer.statusCode, 403)
  t.same(
    Object.keys(answer.headers).filter(name => name.startsWith('access-control')),
    []
  )
})

t.test(
  'with keys the same holds for whatever carries a cookie, under any Host, and for nothing else',
  async t => {
    const { app, addKey } = await api(t, { auth: true, publicUrl: 'https://ackbox.example' })
    const secret = 'ack_0123456789012345678901234567'
    addKey(secret, { scopes: ['tasks:write', 'ops:write'] })
    const authorization = `Bearer ${secret}`
    const pause = split('POST /downstreams/warehouse/pause')
    const ask = async (host: string, headers: Record<string, string>) =>
      (await app.inject({ ...pause, headers: at(host, { authorization, ...headers }) })).statusCode
    for (const [headers, may] of said) {
      const text = JSON.stringify(headers)
      t.equal(await ask('127.0.0.1:3000', headers), 200, `no cookie ${text}`)
      t.equal(await ask('127.0.0.1:3000', { ...headers, cookie: 'a=b' }), may ? 200 : 403, `a cookie ${text}`)
    }
    t.equal(await ask('ops.internal', { cookie: 'a=b' }), 200)
    t.equal(await ask('ops.internal', { cookie: 'a=b', origin: 'https://ops.internal' }), 200)
    const hidden = { cookie: 'a=b', origin: 'https://ops.internal' }
    t.equal(await ask('ackbox', hidden), 403)
    t.equal(
      await ask('ackbox', { ...hidden, 'sec-fetch-site': 'same-origin' }),
      200,
      'a proxy with a Host of its own'
    )
    const receipt = { taskNo: 'one', messageCode: order.messageCode }
    const callback = { ...split('POST /callback'), payload: receipt }
    t.equal(
      (await app.inject({ ...callback, headers: { 'ackbox-callback-token': 'good' } })).statusCode,
      problems.TASK_NOT_FOUND[0],
      'a server that sends a receipt'
    )
  }
)
