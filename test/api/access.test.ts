import { scopes, type ApiKey } from '../../src/db/api-keys.ts'
import { createHash } from 'node:crypto'
import t from 'tap'
import { access } from '../../src/api/access.ts'
import { buildApp } from '../../src/api/app.ts'
import { defaultTaskNo } from '../../src/json/reader.ts'
import { api, fakeService, inject, order } from './fake.ts'
import { only } from '../support/only.ts'

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
  const { app, addKey, deps } = await api(t, { auth: true, dtmTargets: new Map() })
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

for (const auth of [true, false]) {
  t.test(
    `while PostgreSQL cannot be reached, no request adds a statement: AUTH=${auth ? 'key' : 'off'}`,
    async t => {
      let isAway = true
      let looked = 0
      const { app, addKey, deps } = await api(t, { auth, isDatabaseUnreachable: () => isAway })
      addKey(secretOf('known'), { scopes })
      const { findKey, listTasks } = deps
      Object.assign(deps, {
        findKey: (hashed: string) => (looked++, findKey(hashed)),
        listTasks: (filter: Parameters<typeof listTasks>[0]) => (looked++, listTasks(filter))
      })
      const ask = async (url: string, headers = bearer('known')) => await app.inject({ url, headers })
      for (const url of ['/tasks', '/tasks/none', '/deliveries', '/alarms', '/downstreams', '/nodes']) {
        const { statusCode, headers } = await ask(url)
        t.equal(statusCode, 503, url)
        t.ok(Number(headers['retry-after']) >= 1, url)
      }
      t.equal((await ask('/tasks', bearer('invented'))).statusCode, 503)
      const session = { method: 'POST', url: '/session', payload: { key: secretOf('known') } } as const
      t.equal((await app.inject(session)).statusCode, 503)
      t.equal(looked, 0)
      t.equal((await ask('/healthz')).statusCode, 200)
      t.equal((await ask('/metrics')).statusCode, 200, 'alerts need them most then')
      isAway = false
      t.equal((await ask('/tasks')).statusCode, 200)
      t.ok(looked > 0)
    }
  )
}

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
    { results: only({ status: 201 }, { status: 403, code: 'CODE_FORBIDDEN' }) }
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
    handlers: only({ messageCode: 'order.paid' })
  })
})

t.test(
  'who may not read bodies sees no piece of one either: not the difference of an edited copy',
  async t => {
    const { app, addKey } = await api(t, { auth: true })
    addKey(secretOf('all'), { name: 'all', scopes })
    addKey(secretOf('ops'), { name: 'ops', scopes: ['ops:read', 'ops:write'] })
    const copied = { by: 'shop', copiedFrom: 'first', difference: '- "card": "4111"' }
    await inject(app, '/tasks', { ...order, taskNo: 'copy', extend: copied }, bearer('all'))
    await inject(
      app,
      '/tasks',
      { ...order, taskNo: 'own', extend: { difference: 'of its own' } },
      bearer('all')
    )
    const read = async (url: string, who: string, method: 'GET' | 'DELETE' = 'GET') => {
      const { statusCode, body } = await app.inject({ method, url, headers: bearer(who) })
      t.equal(statusCode, 200, `${method} ${url}`)
      return body
    }
    for (const url of ['/tasks/copy', '/tasks']) {
      t.match(await read(url, 'all'), '4111', url)
      t.notMatch(await read(url, 'ops'), '4111', url)
      t.match(await read(url, 'ops'), '"copiedFrom":"first"', url)
    }
    t.match(JSON.parse(await read('/tasks/own', 'ops')), { extend: { difference: 'of its own' } })
    const removed = await read('/tasks/copy', 'ops', 'DELETE')
    t.match(removed, '"copiedFrom":"first"')
    t.notMatch(removed, '4111')
  }
)

t.test('the numbers that tasks of others get by default are not for a key of some message codes', async t => {
  const { app, addKey, deps } = await api(t, { auth: true })
  const [[, shown] = []] = deps.handlers
  if (!shown) throw new Error('no handler')
  const [short, long] = ['stock.moved', `${'long'.repeat(8)}.moved`]
  const known = ['order.paid', short, long, `${long}.too`]
  const change = { handlers: new Map(known.map(code => [code, { ...shown, messageCode: code }])) }
  Object.assign(deps, change)
  addKey(secretOf('all'), { name: 'all', scopes })
  addKey(secretOf('some'), { name: 'some', scopes, messageCodes: ['order.paid', `${long}.too`] })
  addKey(secretOf('long'), { name: 'long', scopes, messageCodes: ['order.paid', long, `${long}.too`] })
  const post = async (who: string, more: object) =>
    (await inject(app, '/tasks', { ...order, ...more }, bearer(who))).json<{ status: number | string }>()
      .status
  const md5 = (n: number) => String(n).padStart(32, '0')
  const hex = (n: number) => String(n).padStart(64, 'f')

  t.equal(await post('some', { taskNo: `${short}::${md5(1)}` }), 422)
  t.equal(await post('some', { taskNo: `${short}:vip:${md5(1)}` }), 422)
  t.equal(await post('some', { taskNo: `${short}:a:b:${md5(1)}` }), 'SENDING', 'no scene is called so')
  t.equal(await post('some', { taskNo: `${short}::${md5(1).slice(1)}` }), 'SENDING', 'no MD5 is so short')
  t.equal(await post('some', { taskNo: `order.paid::${md5(1)}` }), 'SENDING', 'its own code')
  t.equal(await post('some', { taskNo: `shop::${md5(1)}` }), 'SENDING', 'a code that nobody has')
  t.equal(await post('all', { taskNo: `${short}::${md5(2)}` }), 'SENDING', 'a key of all codes')

  t.equal(await post('some', { taskNo: hex(1) }), 422, 'it could be the hash of a long code of others')
  t.equal(await post('long', { taskNo: hex(1) }), 'SENDING', 'all of the long codes are its own')
  t.equal(await post('all', { taskNo: hex(2) }), 'SENDING')
  t.equal(await post('some', { taskNo: hex(2) }), 'SENDING', 'what is known with this content is answered')
  const scened = { messageCode: `${long}.too`, sceneType: 's'.repeat(64) }
  const taskNo = defaultTaskNo(scened.messageCode, scened.sceneType, JSON.stringify(order.messageBody))
  t.match(taskNo, /^[0-9a-f]{64}$/)
  t.equal(await post('some', { ...scened, taskNo }), 'SENDING', 'the default of its own task, said by itself')
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

t.test(
  'a flood of made-up keys keeps no key of the same address out, be it new or known for long',
  async t => {
    let clock = 0
    t.capture(performance, 'now', () => clock)
    const { app, addKey, lookups } = await api(t, { auth: true })
    const ask = async (name: string) =>
      (await app.inject({ url: '/tasks', headers: bearer(name) })).statusCode
    for (const name of ['known', 'new', 'newer']) addKey(secretOf(name), { scopes: ['tasks:read'] })
    t.equal(await ask('known'), 200)
    const guesses = await Promise.all(Array.from({ length: 3_000 }, (_, i) => ask(`guess${i}`)))
    t.same(new Set(guesses), new Set([401]))
    t.equal(await ask('new'), 200)
    const before = lookups.keys
    t.same([await ask('known'), await ask('new')], [200, 200])
    t.equal(lookups.keys, before, 'guesses made nobody forget a key')
    clock = 5_000
    t.same([await ask('known'), await ask('newer')], [200, 200])
  }
)

t.test('a key that is wrong, or of no form of ours, is not looked up again and again', async t => {
  const { app, lookups } = await api(t, { auth: true })
  for (let i = 0; i < 20; i++)
    t.equal((await app.inject({ url: '/tasks', headers: bearer('wrong') })).statusCode, 401)
  t.equal(lookups.keys, 1)
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
  t.equal(lookups.keys, 1, 'a key of the wrong form is not even looked up')
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

t.test(
  'acts of a key are limited, those of keys that share its limits included; its requests and a producer are not',
  async t => {
    const { app, addKey } = await api(t, { auth: true, actsPerSecond: 1 })
    addKey(secretOf('a'), { id: 'a', scopes: ['ops:write', 'ops:read'] })
    addKey(secretOf('b'), { id: 'b', quotaId: 'a', scopes: ['ops:write'] })
    addKey(secretOf('calm'), { id: 'calm', scopes: ['ops:write'] })
    addKey(secretOf('producer'), { id: 'producer', scopes: ['tasks:write'] })
    const ask = async (name: string, method: 'GET' | 'POST' | 'DELETE', url: string) =>
      await app.inject({ method, url, headers: bearer(name) })
    const statuses: number[] = []
    for (let i = 0; i < 30; i++)
      statuses.push((await ask(i % 2 ? 'a' : 'b', 'DELETE', '/api-keys/key_0123456789ab')).statusCode)
    t.same(
      statuses.slice(0, 10),
      Array.from({ length: 10 }, () => 404),
      'ten times as many at once'
    )
    t.ok(statuses.filter(status => status === 429).length > 10)
    t.equal((await ask('a', 'GET', '/tasks')).statusCode, 200)
    t.equal((await ask('calm', 'DELETE', '/api-keys/key_0123456789ab')).statusCode, 404)
    for (const [method, url] of [
      ['POST', '/tasks/none/commit'],
      ['DELETE', '/tasks/none']
    ] as const) {
      const answers = []
      for (let i = 0; i < 30; i++) answers.push((await ask('producer', method, url)).statusCode)
      t.same(new Set(answers), new Set([404]), `a producer ends its own tasks by ${method}`)
    }
    const deletes = []
    for (let i = 0; i < 30; i++) deletes.push((await ask('calm', 'DELETE', '/tasks/none')).statusCode)
    t.ok(deletes.includes(429), 'an operator may not delete as many')
  }
)

t.test('I47: no answer holds the key it was asked with', async t => {
  const { app, addKey } = await api(t, { auth: true })
  addKey(secretOf('canary'), { scopes: [] })
  for (const url of ['/tasks', '/nowhere', '/tasks/x', '/metrics']) {
    const answer = await app.inject({ url, headers: bearer('canary') })
    t.notMatch(answer.body + JSON.stringify(answer.headers), /canary/)
  }
})
