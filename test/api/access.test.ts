import { createHash } from 'node:crypto'
import t from 'tap'
import { access } from '../../src/api/access.ts'
import { scopes, type ApiKey } from '../../src/api/deps.ts'
import { buildApp } from '../../src/api/app.ts'
import { api, fakeService, inject, order } from './fake.ts'

const secretOf = (name: string) => `ack_${name.padEnd(30, '0').replace(/\W/g, '_')}`
const bearer = (name: string) => ({ authorization: `Bearer ${secretOf(name)}` })

const roles: Record<string, Partial<ApiKey>> = {
  ...Object.fromEntries(scopes.map(scope => [scope, { scopes: [scope] }])),
  'every scope': { scopes },
  'every scope, but another messageCode': { scopes, messageCodes: ['stock.moved'] },
  'no scope': { scopes: [] },
  'a scope that is none': { scopes: ['admin'] }
}

t.test('every route, asked with every kind of key, lets in just those the table names', async t => {
  const { app, addKey, deps } = await api(t, { auth: true })
  for (const [name, key] of Object.entries(roles)) addKey(secretOf(name), key)
  const asked: string[] = []
  for (const [route, who] of Object.entries(access)) {
    const [method = '', pattern = ''] = route.split(' ')
    const url = pattern.replace(':taskNo', 'none').replace(':name', 'none').replace('*', 'index.css')
    const call = async (headers: Record<string, string>) =>
      await app.inject({ method: method as 'GET', url, headers })
    const cells: [role: string, headers: Record<string, string>, may: boolean][] = [
      ['no key', {}, who === 'open'],
      ['an unknown key', bearer('unknown'), who === 'open'],
      ['another scheme', { authorization: 'Basic YTpi' }, who === 'open'],
      ...Object.entries(roles).map(([name, key]): [string, Record<string, string>, boolean] => [
        name,
        bearer(name),
        who === 'open' || who.some(scope => key.scopes?.includes(scope))
      ])
    ]
    for (const [role, headers, may] of cells) {
      const { statusCode, body } = await call(headers)
      const refused = body.startsWith('{"type":"urn:ackbox:problem:UNAUTHORIZED"')
        ? 401
        : body.startsWith('{"type":"urn:ackbox:problem:FORBIDDEN"')
          ? 403
          : 0
      const stranger = !(role in roles)
      t.equal(refused, may ? 0 : stranger ? 401 : 403, `${route} with ${role}`)
      t.ok(statusCode < 500, `${route} with ${role}: ${statusCode}`)
      asked.push(route)
    }
  }
  t.equal(asked.length, Object.keys(access).length * (Object.keys(roles).length + 3))
  t.ok(deps.auth)
})

t.test('a route that nobody put into the table stops the start', async t => {
  const { deps } = fakeService()
  const app = await buildApp(deps)
  t.teardown(() => app.close())
  const routes = app.printRoutes({ commonPrefix: false })
  t.match(routes, /redeliver/)
  await t.rejects(async () => {
    const late = await buildApp(deps, extra => {
      extra.get('/new', async () => 'x')
    })
    await late.close()
  }, /GET \/new is not in api\/access.ts/)
})

t.test('a producer sees, posts, stops and redelivers only its own message codes', async t => {
  const { app, addKey, asked } = await api(t, { auth: true })
  addKey(secretOf('all'), { name: 'all', scopes })
  addKey(secretOf('orders'), { name: 'orders', scopes, messageCodes: ['order.paid'] })
  const orders = bearer('orders')
  t.equal((await inject(app, '/tasks', { ...order, taskNo: 'mine' }, orders)).statusCode, 201)
  t.equal(asked[0]?.createdBy, 'orders')
  t.equal(
    (await inject(app, '/tasks', { ...order, messageCode: 'stock.moved', taskNo: 'theirs' }, bearer('all')))
      .statusCode,
    201
  )
  const refused = await inject(
    app,
    '/tasks',
    { ...order, messageCode: 'stock.moved', taskNo: 'other' },
    orders
  )
  t.match(refused.json(), { status: 403, code: 'CODE_FORBIDDEN', pointer: '/messageCode' }, 'E31')
  t.match(
    (await inject(app, '/tasks', { ...order, messageCode: 'nobody.knows' }, orders)).json(),
    { status: 403 },
    'nor learn which codes there are'
  )
  t.match(
    (
      await inject(
        app,
        '/tasks/batch',
        {
          tasks: [
            { ...order, taskNo: 'b' },
            { ...order, messageCode: 'stock.moved' }
          ]
        },
        orders
      )
    ).json(),
    { results: [{ status: 201 }, { status: 403, code: 'CODE_FORBIDDEN' }] }
  )
  const none = (await app.inject({ url: '/tasks/none', headers: orders })).body
  t.equal(
    (await app.inject({ url: '/tasks/theirs', headers: orders })).body,
    none,
    'what is not yours is not there'
  )
  t.equal((await app.inject({ url: '/tasks/theirs?wait=HANDLED&timeout=1', headers: orders })).body, none)
  t.equal((await app.inject({ method: 'DELETE', url: '/tasks/theirs', headers: orders })).statusCode, 404)
  t.equal(
    (await app.inject({ method: 'POST', url: '/tasks/theirs/redeliver', headers: orders })).statusCode,
    404
  )
  t.equal((await app.inject({ method: 'DELETE', url: '/tasks/mine', headers: orders })).statusCode, 200)
  const listed = (await app.inject({ url: '/tasks', headers: orders })).json<{
    tasks: { messageCode: string }[]
  }>()
  t.same(new Set(listed.tasks.map(task => task.messageCode)), new Set(['order.paid']))
  t.match((await app.inject({ url: '/tasks?messageCode=stock.moved', headers: orders })).json(), {
    status: 403
  })
  t.match((await app.inject({ url: '/handlers', headers: bearer('all') })).json(), {
    handlers: [{ messageCode: 'order.paid' }]
  })
})

t.test('a key is looked up once in five seconds, and a revoked one stops working by then', async t => {
  let clock = 0
  t.capture(performance, 'now', () => clock)
  const { app: timed, ...fake } = await api(t, { auth: true })
  fake.addKey(secretOf('p'), { scopes: ['tasks:read'] })
  const ask = async () => (await timed.inject({ url: '/tasks', headers: bearer('p') })).statusCode
  for (let i = 0; i < 20; i++) t.equal(await ask(), 200)
  t.equal(fake.lookups.keys, 1)
  fake.keys.clear()
  clock = 4_999
  t.equal(await ask(), 200)
  clock = 5_000
  t.equal(await ask(), 401)
  t.equal(fake.lookups.keys, 2)
})

t.test(
  'a producer that comes with 200 connections at once is not taken for somebody who guesses',
  async t => {
    const { app, addKey, lookups } = await api(t, { auth: true })
    addKey(secretOf('crowd'), { scopes: ['tasks:read'] })
    const answers = await Promise.all(
      Array.from({ length: 200 }, () => app.inject({ url: '/tasks', headers: bearer('crowd') }))
    )
    t.same(new Set(answers.map(answer => answer.statusCode)), new Set([200]))
    t.equal(lookups.keys, 1)
  }
)

t.test('a flood of made-up keys is no flood of queries', async t => {
  const { app, lookups } = await api(t, { auth: true })
  const answers = await Promise.all(
    Array.from(
      { length: 200 },
      async (_, i) => (await app.inject({ url: '/tasks', headers: bearer(`guess${i}`) })).statusCode
    )
  )
  t.ok(lookups.keys <= 25, `${lookups.keys} look-ups`)
  t.same(new Set(answers), new Set([401, 429]))
  for (const malformed of [
    '',
    'Bearer',
    'Bearer ',
    'Bearer ack_short',
    'Bearer xyz_0123456789012345678901234567',
    `Bearer ack_${'x'.repeat(5_000)}`,
    'Bearer ack_\u00f60000000000000000000000'
  ]) {
    t.equal((await app.inject({ url: '/tasks', headers: { authorization: malformed } })).statusCode, 401)
  }
  t.ok(lookups.keys <= 25, 'a key of the wrong form is not even looked up')
})

t.test(
  'a key is looked up by its hash: nothing compares the key itself, and nothing behind it knows it',
  async t => {
    const { app, addKey, deps } = await api(t, { auth: true })
    addKey(secretOf('p'), { scopes: ['tasks:read'] })
    const find = deps.findKey.bind(deps)
    const asked: string[] = []
    deps.findKey = hashed => {
      asked.push(hashed)
      return find(hashed)
    }
    for (const name of ['p', 'p-', 'q']) await app.inject({ url: '/tasks', headers: bearer(name) })
    t.same(
      asked,
      ['p', 'p-', 'q'].map(name => createHash('sha256').update(secretOf(name)).digest('hex'))
    )
  }
)

t.test('one key may be held to so many requests a second, and others are not held up by it', async t => {
  const { app, addKey } = await api(t, { auth: true, keyPerSecond: 5 })
  addKey(secretOf('busy'), { id: 'busy', scopes: ['tasks:read'] })
  addKey(secretOf('calm'), { id: 'calm', scopes: ['tasks:read'] })
  const answers = []
  for (let i = 0; i < 20; i++) answers.push(await app.inject({ url: '/tasks', headers: bearer('busy') }))
  const refused = answers.filter(one => one.statusCode === 429)
  t.ok(refused.length >= 10)
  t.match(refused[0]?.headers, { 'retry-after': '1' })
  t.equal((await app.inject({ url: '/tasks', headers: bearer('calm') })).statusCode, 200)
})

t.test('I47: no answer holds the key it was asked with', async t => {
  const { app, addKey } = await api(t, { auth: true })
  addKey(secretOf('canary'), { scopes: [] })
  for (const url of ['/tasks', '/nowhere', '/tasks/x', '/metrics']) {
    const answer = await app.inject({ url, headers: bearer('canary') })
    t.notMatch(answer.body + JSON.stringify(answer.headers), /canary/)
  }
})
