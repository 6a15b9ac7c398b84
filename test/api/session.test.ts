import { gunzipSync } from 'node:zlib'
import { csrfOf } from '../../src/api/auth.ts'
import { scopes } from '../../src/db/api-keys.ts'
import t, { type Test } from 'tap'
import { api, inject } from './fake.ts'
import { only } from '../support/only.ts'

const key = 'ack_0123456789abcdef0123456789abcdef'

async function signedIn(t: Test, more: object = {}) {
  const made = await api(t, { auth: true, ...more })
  made.addKey(key, { name: 'ops-1', scopes })
  const answer = await inject(made.app, '/session', { key })
  const said = answer.json<{ csrf: string }>()
  const [cookie = ''] = String(answer.headers['set-cookie']).split(';')
  const pause = (headers: Record<string, string>) =>
    made.app.inject({ method: 'POST', url: '/downstreams/warehouse/pause', headers })
  return { ...made, answer, said, cookie, pause }
}

t.test('a key opens a session; its cookie holds neither the key nor anything made of it', async t => {
  const { app, answer, said, cookie, keys } = await signedIn(t)
  t.match(said, { signedIn: true, name: 'ops-1', csrf: /^[\w-]{43}$/ })
  t.match(
    String(answer.headers['set-cookie']),
    /^ackbox=ses_[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=43200$/
  )
  t.notOk(keys.has(cookie.split('=')[1] ?? ''), 'kept as a hash only')
  t.match((await app.inject({ url: '/session', headers: { cookie } })).json(), {
    name: 'ops-1',
    csrf: said.csrf
  })
  t.equal((await app.inject({ url: '/downstreams', headers: { cookie } })).statusCode, 200)
  t.equal(
    (await app.inject({ url: '/session', headers: { cookie: 'ackbox=ses_nonsense' } })).json<{
      signedIn: boolean
    }>().signedIn,
    false
  )
  t.equal(
    (await app.inject({ url: '/downstreams', headers: { cookie: `ackbox=ses_${'x'.repeat(43)}` } }))
      .statusCode,
    401
  )
  t.equal((await inject(app, '/session', { key: `${key}0` })).statusCode, 401)
  t.equal((await inject(app, '/session', { key: 'nonsense' })).statusCode, 422)
})

t.test('a write with the cookie needs its token; with a key in the header it needs none', async t => {
  const { cookie, said, pause, app } = await signedIn(t)
  const refused = [
    {},
    { 'ackbox-csrf': '' },
    { 'ackbox-csrf': `${said.csrf.slice(1)}x` },
    { 'ackbox-csrf': 'é'.repeat(22) }
  ]
  for (const headers of refused)
    t.match((await pause({ cookie, ...headers })).json(), { status: 403, code: 'CSRF' })
  t.equal((await pause({ cookie, 'ackbox-csrf': said.csrf })).statusCode, 200)
  t.match((await pause({ cookie, 'ackbox-csrf': said.csrf, origin: 'https://evil.example' })).json(), {
    code: 'CROSS_ORIGIN'
  })
  t.equal((await pause({ authorization: `Bearer ${key}` })).statusCode, 200)
  t.equal(
    (await pause({ cookie, authorization: 'Bearer ack_unknownunknownunknown' })).statusCode,
    401,
    'the header counts'
  )
  // As a proxy sends it that asks for a login of its own.
  const authorization = 'Basic dXNlcjpwYXNz'
  t.match((await pause({ cookie, authorization })).json(), { code: 'CSRF' })
  t.equal((await pause({ cookie, authorization, 'ackbox-csrf': said.csrf })).statusCode, 200)
  t.equal((await pause({ authorization })).statusCode, 401)
  t.match((await app.inject({ method: 'DELETE', url: '/session', headers: { cookie } })).json(), {
    code: 'CSRF'
  })
  const out = await app.inject({
    method: 'DELETE',
    url: '/session',
    headers: { cookie, 'ackbox-csrf': said.csrf }
  })
  t.match(String(out.headers['set-cookie']), /^ackbox=; .*Max-Age=0$/)
  t.equal(
    (await app.inject({ url: '/downstreams', headers: { cookie } })).statusCode,
    401,
    'the cookie opens nothing right after the sign-out'
  )
})

t.test(
  'a sign-out ends a session that exists; one that somebody invents costs no statement of its own',
  async t => {
    const { app, deps, cookie, said, lookups } = await signedIn(t)
    const ended: string[] = []
    const end = deps.endSession
    deps.endSession = session => {
      ended.push(session)
      return end(session)
    }
    const out = (session: string, csrf: string) =>
      app.inject({ method: 'DELETE', url: '/session', headers: { cookie: session, 'ackbox-csrf': csrf } })
    const id = `ses_${'x'.repeat(43)}`
    t.match(await out(`ackbox=${id}`, csrfOf(id)), { statusCode: 200, body: /"signedIn":false/ })
    t.same(ended, [])
    const before = lookups.keys
    t.match(await out(cookie, said.csrf), { statusCode: 200, body: /"signedIn":false/ })
    t.equal(ended.length, 1)
    t.equal(lookups.keys, before + 1)
    t.equal((await app.inject({ url: '/downstreams', headers: { cookie } })).statusCode, 401)
  }
)

t.test('under https the cookie is Secure and of this host alone', async t => {
  const { answer, cookie, app } = await signedIn(t, { publicUrl: 'https://ackbox.example' })
  t.match(String(answer.headers['set-cookie']), /^__Host-ackbox=ses_.*; Secure$/)
  t.equal((await app.inject({ url: '/downstreams', headers: { cookie } })).statusCode, 200)
  const plain = cookie.replace('__Host-', '')
  t.equal(
    (await app.inject({ url: '/downstreams', headers: { cookie: plain } })).statusCode,
    401,
    'another name is none'
  )
})

t.test('without keys nobody needs to sign in', async t => {
  const { app } = await api(t)
  t.match((await app.inject('/session')).json(), { signedIn: true, auth: false, scopes: only(...scopes) })
  t.equal((await inject(app, '/session', { key })).statusCode, 201)
})

t.test('a key makes no key that may do more than itself', async t => {
  const { app, addKey, audits } = await api(t, { auth: true })
  addKey(key, { name: 'narrow', scopes: ['ops:read', 'ops:write'], messageCodes: ['order.paid'] })
  const make = (body: object) => inject(app, '/api-keys', body, { authorization: `Bearer ${key}` })
  for (const more of [
    { scopes: ['tasks:read'] },
    { scopes: ['ops:read'], messageCodes: ['stock.moved'] },
    { scopes: ['ops:read', 'tasks:write'], messageCodes: ['order.paid'] }
  ])
    t.match((await make({ name: 'more', ...more })).json(), { status: 403, code: 'FORBIDDEN' })
  t.same(audits, [])
  t.equal((await make({ name: 'less', scopes: ['ops:read'] })).statusCode, 201)
})

t.test('an operator without tasks:read sees what became of a task, not what it holds', async t => {
  const { app, addKey, post } = await api(t, { auth: true })
  addKey(key, { name: 'all', scopes })
  addKey(`${key}0`, { name: 'looker', scopes: ['ops:read'] })
  await post(
    { taskNo: 'one', messageCode: 'order.paid', messageBody: { orderId: 'secret' } },
    { authorization: `Bearer ${key}` }
  )
  const read = (secret: string) =>
    app.inject({ url: '/tasks/one', headers: { authorization: `Bearer ${secret}` } })
  t.match((await read(key)).body, /secret/)
  const seen = await read(`${key}0`)
  t.match(seen.json(), { taskNo: 'one', deliveries: [{ downstream: 'warehouse' }] })
  t.notMatch(seen.body, /secret/)
})

t.test('the pages run no script and no style but their own, wherever they are asked for', async t => {
  const { app } = await api(t, { auth: true })
  for (const url of ['/', '/ui'])
    t.match(await app.inject(url), { statusCode: 302, headers: { location: '/ui/' } })
  t.match(await app.inject('/?lang=zh&theme=dark'), { headers: { location: '/ui/?lang=zh&theme=dark' } })
  for (const url of ['/ui/', '/ui/tasks', '/ui/task?no=x']) {
    const page = await app.inject(url)
    t.match(page, { statusCode: 200, headers: { 'content-type': /html/, 'x-frame-options': 'DENY' } })
    const policy = String(page.headers['content-security-policy'])
    t.match(policy, /default-src 'none'; script-src 'self'; style-src 'self'/)
    t.notMatch(policy, /unsafe/)
    t.notMatch(page.body, /<script>|<style|https?:/)
  }
  let bytes = 0
  for (const [, link = ''] of (await app.inject('/ui/')).body.matchAll(/(?:src|href)="([^"]+)"/g)) {
    const file = await app.inject({ url: link, headers: { 'accept-encoding': 'gzip' } })
    t.match(file, { statusCode: 200, headers: { 'content-encoding': 'gzip' } }, link)
    bytes += file.rawPayload.length
    const again = await app.inject({ url: link, headers: { 'if-none-match': String(file.headers.etag) } })
    t.match(again, { statusCode: 304, headers: { vary: 'accept-encoding' } })
    const plain = await app.inject({ url: link, headers: { 'accept-encoding': 'gzip;q=0, br' } })
    t.equal(plain.headers['content-encoding'], undefined, 'weight 0 refuses gzip')
  }
  t.ok(bytes > 10_000 && bytes <= 120 * 1_024, `${bytes} bytes in all`)
  const bundle = '/docs/static/swagger-ui-bundle.js'
  const whole = await app.inject(bundle)
  const packed = await app.inject({ url: bundle, headers: { 'accept-encoding': 'gzip' } })
  t.match(packed, { statusCode: 200, headers: { 'content-encoding': 'gzip', vary: 'accept-encoding' } })
  t.ok(gunzipSync(packed.rawPayload).equals(whole.rawPayload), 'Swagger UI arrives compressed, and whole')
  t.equal((await app.inject('/ui/nothing.js')).statusCode, 404)
  t.equal((await app.inject('/ui/..%2f..%2fpackage.json')).statusCode, 404)
})

t.test('one key signs in 30 times at once, and others are not held up by it', async t => {
  const { app, addKey, keys } = await api(t, { auth: true })
  addKey(key, { id: 'busy', name: 'busy', scopes: ['tasks:read'], messageCodes: ['order.paid'] })
  addKey(`${key}0`, { id: 'calm', name: 'calm', scopes })
  const before = keys.size
  const answers = []
  for (let n = 0; n < 60; n++) answers.push(await inject(app, '/session', { key }))
  const refused = answers.filter(one => one.statusCode === 429)
  t.equal(answers.slice(0, 30).filter(one => one.statusCode === 201).length, 30)
  t.ok(refused.length > 0, 'a minute brings 10')
  t.match(refused[0]?.json(), { code: 'TOO_MANY_REQUESTS' })
  t.match(refused[0]?.headers, { 'retry-after': /^[1-6]$/ })
  t.equal(keys.size - before, 60 - refused.length, 'what is refused opens no session')
  t.equal((await inject(app, '/session', { key: `${key}0` })).statusCode, 201)
})

t.test('a sign-in takes its turn among the requests of its key', async t => {
  const { app, addKey } = await api(t, { auth: true, keyPerSecond: 1 })
  addKey(key, { id: 'busy', name: 'busy', scopes: ['tasks:read'] })
  const codes = new Set<number>()
  for (let n = 0; n < 20; n++) codes.add((await inject(app, '/session', { key })).statusCode)
  t.same(codes, new Set([201, 429]))
})
