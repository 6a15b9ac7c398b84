// The rights of keys, tested on whole processes with one real database.
// Takes long: npm run test:long.
import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { access, acts as limitedActs } from '../../src/api/access.ts'
import { createKey, revokeKey, scopes, type Scope } from '../../src/db/api-keys.ts'
import type { Sql } from '../../src/db/pool.ts'
import { uuidv7 } from '../../src/domain/ids.ts'
import { defaultTaskNo } from '../../src/json/reader.ts'
import { tokens } from '../../src/domain/tokens.ts'
import { only } from '../support/only.ts'
import { plainNode, start, type Process } from '../support/service.ts'
import { stage, type Stage } from '../support/stage.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

interface Answer {
  status: number
  text: string
  body: Record<string, unknown>
}

/** Sends requests with this key. Null: without a key. */
function caller(url: string, key: string | null) {
  return async (route: string, body?: unknown, headers: Record<string, string> = {}): Promise<Answer> => {
    const [method = '', target = ''] = route.split(' ')
    const answer = await fetch(url + target, {
      method,
      headers: {
        ...(key === null ? {} : { authorization: `Bearer ${key}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) })
    })
    const text = await answer.text()
    const json = /json/.test(answer.headers.get('content-type') ?? '')
    return { status: answer.status, text, body: json ? (JSON.parse(text) as Record<string, unknown>) : {} }
  }
}

/** One process with all roles and AUTH on, with ended tasks of two kinds; and a second process with the role api only. */
async function twoProducers(t: Test): Promise<{ on: Stage; both: [Process, Process]; admin: string }> {
  const { on, one, admin } = await producer(t)
  return { on, both: [one, await start(t, { ...on.env, AUTH: 'on', ROLE: 'api' })], admin }
}

async function producer(t: Test): Promise<{ on: Stage; one: Process; admin: string }> {
  const on = await stage(t, {
    answer: ({ headers }) => (String(headers['ackbox-task-no']).includes('failed') ? 500 : 200)
  })
  if (!on) throw new Error('no stage')
  const env = { ...on.env, AUTH: 'on' }
  const one = await start(t, env)
  const { key: admin } = await createKey(on.sql, {
    name: 'admin',
    scopes: [...scopes],
    messageCodes: null,
    who: { name: 'test' }
  })
  const call = caller(one.url, admin)
  for (const [whose, messageCode] of Object.entries({ mine: 'test.plain', theirs: 'test.receipt' })) {
    for (const end of ['handled', 'failed']) {
      // A task that must end HANDLED may need another try on a busy machine.
      const more = end === 'failed' ? { orderingKey: `key-of-${whose}`, retryTimes: 1 } : {}
      const task = { taskNo: `${whose}-${end}`, messageCode, messageBody: { n: 1 }, ...more }
      t.equal((await call('POST /tasks', task)).status, 201)
      const { body } = await call(`GET /tasks/${whose}-${end}?wait=HANDLED`)
      t.equal(body['status'], end.toUpperCase())
    }
  }
  return { on, one, admin }
}

/** Inserts a rejected outbox row. Returns its id. */
async function rejectedRow(sql: Sql, messageCode: string): Promise<string> {
  const id = uuidv7()
  await sql`
    insert into outbox_rejected (id, task_no, message_code, message_body, scene_type, created_by, problem)
    values (${id}, ${`rejected-${id}`}, ${messageCode}, '{"n":1}', '', 'sql:shop', '{"status":422}')`
  return id
}

t.test('what others posted is not there for a key of other message codes, by whatever route', async t => {
  const { on, one, admin } = await producer(t)
  const { key } = await createKey(on.sql, {
    name: 'limited',
    scopes: [...scopes],
    messageCodes: ['test.plain'],
    who: { name: 'test' }
  })
  const [call, all] = [caller(one.url, key), caller(one.url, admin)]
  const before = await on.sql`select * from delivery order by task_id, downstream`
  const asked = new Set<string>()
  const ask = (route: string, body?: unknown): Promise<Answer> => {
    asked.add(route.replace(/\?.*/, ''))
    return call(route, body)
  }

  const lists = Object.keys(access).filter(route =>
    /^GET \/(tasks|deliveries|alarms|downstreams|handlers)$/.test(route)
  )
  for (const list of lists) {
    const seen = await ask(list)
    t.equal(seen.status, 200, list)
    t.match((await all(list)).text, /theirs|receipted/, `${list} has something of theirs for who may see it`)
    t.match(seen.text, /mine|test\.plain|"plain"/, `${list} has what is its own`)
    t.notMatch(seen.text, /theirs|test\.receipt|receipted/, `${list} has nothing of theirs`)
  }
  for (const list of ['GET /tasks', 'GET /deliveries', 'GET /alarms']) {
    t.match(await ask(`${list}?messageCode=test.receipt`), { status: 403, body: { code: 'CODE_FORBIDDEN' } })
    const { body } = await all(`${list}?limit=1`)
    const narrowed = ['downstream=receipted', `cursor=${String(body['nextCursor'])}&limit=1`]
    if (list !== 'GET /alarms') narrowed.push('status=FAILED', 'status=HANDLED')
    for (const query of narrowed)
      t.notMatch((await ask(`${list}?${query}`)).text, /theirs|receipted/, `${list}?${query}`)
  }

  for (const route of Object.keys(access).filter(one => one.includes('/:taskNo'))) {
    const at = (taskNo: string) => ask(route.replace(':taskNo', taskNo))
    const none = await at('nobody-knows-it')
    t.equal(none.status, 404, route)
    for (const taskNo of ['theirs-handled', 'theirs-failed'])
      t.equal((await at(taskNo)).text, none.text, `${route}: ${taskNo} is as one that never was`)
  }
  const none = await ask('GET /tasks/nobody-knows-it')
  t.equal((await ask('GET /tasks/theirs-handled?wait=HANDLED&timeout=1')).text, none.text)
  t.equal((await ask('POST /tasks/theirs-handled/redeliver', { force: true })).status, 404)

  for (const act of ['pause', 'resume']) {
    t.equal((await ask(`POST /downstreams/receipted/${act}`)).status, 404, `${act} a downstream of others`)
    t.equal((await ask(`POST /downstreams/plain/${act}`)).status, 200, `${act} its own`)
  }
  t.match(
    await ask('GET /metrics'),
    { status: 403, body: { code: 'CODE_FORBIDDEN' } },
    'they tell of everybody'
  )
  const row = await rejectedRow(on.sql, 'test.receipt')
  t.notMatch((await ask('GET /outbox/rejected')).text, row, 'a rejected row of others')
  for (const act of [`POST /outbox/rejected/${row}/retry`, `DELETE /outbox/rejected/${row}`])
    t.match(await ask(act), { status: 404, body: { code: 'REJECTED_NOT_FOUND' } }, act)
  t.equal((await ask('POST /outbox/nudge')).status, 202)
  t.equal(
    (await ask('PATCH /downstreams/receipted', { concurrency: 1 })).status,
    404,
    'a downstream of others'
  )
  t.equal((await ask('PATCH /downstreams/plain', { concurrency: 9 })).status, 200, 'its own')
  t.match(await ask('GET /audit'), { status: 403, body: { code: 'CODE_FORBIDDEN' } }, 'it names all tasks')
  t.notMatch((await ask('GET /nodes')).text, /theirs|receipted/)
  const dryRun = (filter: object) => ask('POST /tasks/redeliver', { filter, dryRun: true })
  t.match((await dryRun({})).body, { matched: 1 }, 'only what is its own')
  t.match((await dryRun({ taskNoPrefix: 'theirs' })).body, { matched: 0 })
  t.equal((await dryRun({ messageCode: 'test.receipt' })).status, 403)
  const shown = (code: string) => ask(`POST /handlers/${code}/dry-run`, { messageBody: { n: 1 } })
  t.equal((await shown('test.plain')).status, 200)
  for (const code of ['test.receipt', 'nobody.knows'])
    t.match(await shown(code), { status: 403, body: { code: 'CODE_FORBIDDEN' } }, 'nor which codes there are')
  const whole = await all('POST /tasks/redeliver', { filter: { taskNoPrefix: 'nobody-knows-it' } })
  const operation = String(whole.body['id'])
  t.equal(whole.status, 202)
  t.match((await ask('GET /operations')).body, { operations: { length: 0 } }, 'what was asked for all codes')
  for (const act of ['GET /operations/ID', 'GET /operations/ID/deliveries', 'POST /operations/ID/stop'])
    t.match(
      await ask(act.replace('ID', operation)),
      { status: 404, body: { code: 'OPERATION_NOT_FOUND' } },
      act
    )
  await dashboardTellsNothing(t, on, ask, all)
  await orderTellsNothing(t, ask, all)
  const theirs = { taskNo: 'theirs-new', messageCode: 'test.receipt', messageBody: { n: 1 } }
  t.equal((await ask('POST /tasks', theirs)).status, 403)
  t.match((await ask('POST /tasks/batch', { tasks: [theirs] })).body, { results: only({ status: 403 }) })
  const taken = await ask('POST /tasks', { ...theirs, taskNo: 'theirs-handled', messageCode: 'test.plain' })
  t.match(taken, { status: 409, body: { code: 'TASK_CONFLICT' } })
  t.notMatch(taken.text, /test\.receipt|receipted|HANDLED/, 'that the number is taken, and no more')

  t.same(await on.sql`select * from delivery order by task_id, downstream`, before, 'nothing changed')
  const traces = await on.sql`select what, target from audit where who = 'limited' and target <> 'plain'`
  t.same([...traces], [], 'and nothing was even tried')
  // DTM's routes are off here: test/api/dtm.test.ts tests the same for them.
  const guarded = Object.keys(access).filter(route => access[route] !== 'open' && !route.includes('dtmsvr'))
  const met = [...asked].map(route =>
    route
      .replace(/^POST \/keys\/.*\/release$/, 'POST /keys/:downstream/:key/release')
      .replace(/^POST \/handlers\/[^/]+/, 'POST /handlers/:messageCode')
      .replace(/\/(?:theirs|nobody)[\w-]*/, '/:taskNo')
      .replace(/\/(?:plain|receipted)/, '/:name')
      .replace(row, ':id')
      .replace(operation, ':id')
      .replace(/\/key_\w+/, '/:id')
      .replace(/\/[0-9a-f]{16}\//, '/:fingerprint/')
  )
  t.same(
    guarded.filter(route => !met.includes(route)),
    [],
    'a new route is asked here too'
  )
})

/** On the dashboard's routes, a key of some message codes reads nothing about other codes and creates no key with more rights. */
async function dashboardTellsNothing(
  t: Test,
  { sql }: Stage,
  ask: (route: string, body?: unknown) => Promise<Answer>,
  all: (route: string) => Promise<Answer>
): Promise<void> {
  const [failed] = await sql`select fingerprint from failure where message_code = 'test.receipt'`
  const print = String(failed?.['fingerprint'])
  t.match((await all('GET /failures')).text, print, 'what FAILED of others is there for who may see it')
  t.notMatch((await ask('GET /failures')).text, /test\.receipt|receipted/)
  t.match((await ask('GET /failures')).text, /"plain"/)
  t.match(await ask(`POST /failures/${print}/archive`, { note: 'x' }), { status: 404 })
  await until('counts are written', async () =>
    /receipted/.test((await all('GET /stats?by=downstream')).text)
  )
  t.notMatch((await ask('GET /stats?by=downstream')).text, /receipted/)
  for (const list of ['GET /failures', 'GET /stats'])
    t.match(await ask(`${list}?messageCode=test.receipt`), { status: 403, body: { code: 'CODE_FORBIDDEN' } })
  const alarm = { taskNo: 'theirs-failed', downstream: 'receipted', attempt: 1, kind: 'FAILED' }
  t.match(await ask('POST /alarms/resolve', alarm), { status: 404, body: { code: 'ALARM_NOT_FOUND' } })
  t.notMatch((await ask('GET /api-keys')).text, /"admin"/, 'nor keys that may do more')
  const wider = { name: 'wider', scopes: ['ops:read'], messageCodes: ['test.receipt'] }
  t.match(await ask('POST /api-keys', wider), { status: 403, body: { code: 'FORBIDDEN' } })
  const [other] = await sql`select id from api_key where name = 'admin'`
  t.match(await ask(`DELETE /api-keys/${String(other?.['id'])}`), { status: 404 })
  // The events themselves: test/service/events.test.ts.
  t.equal((await ask('GET /events?taskNo=%20')).status, 422)
}

async function orderTellsNothing(
  t: Test,
  ask: (route: string, body?: unknown) => Promise<Answer>,
  all: (route: string) => Promise<Answer>
): Promise<void> {
  t.match((await all('GET /keys')).text, 'key-of-theirs')
  t.notMatch((await ask('GET /keys')).text, /theirs|receipted/)
  t.match((await ask('GET /keys')).text, 'key-of-mine')
  t.match(await ask('POST /keys/receipted/key-of-theirs/release'), {
    status: 404,
    body: { code: 'KEY_NOT_FOUND' }
  })
  t.match(
    await ask('POST /reconcile', {
      downstream: 'receipted',
      from: '2026-01-01T00:00:00Z',
      to: '2026-01-02T00:00:00Z',
      taskNos: []
    }),
    {
      status: 404,
      body: { code: 'DOWNSTREAM_NOT_FOUND' }
    }
  )
}

t.test(
  'a key of some message codes can neither take the numbers that others get by default, nor ask for theirs',
  async t => {
    const { on, one, admin } = await producer(t)
    const { key } = await createKey(on.sql, {
      name: 'limited',
      scopes: [...scopes],
      messageCodes: ['test.plain'],
      who: { name: 'test' }
    })
    const [call, all] = [caller(one.url, key), caller(one.url, admin)]
    const plain = { messageCode: 'test.plain', messageBody: { n: 1 } }
    /** Posts alone and in a batch: both answers are the same, except for the pointer. */
    const post = async (task: object): Promise<Answer> => {
      const [one, many] = [
        await call('POST /tasks', task),
        await call('POST /tasks/batch', { tasks: [task] })
      ]
      const [result] = many.body['results'] as { pointer?: string }[]
      const { taskNo: _, ...more } = { ...result } as Record<string, unknown>
      if (one.status >= 400) t.same({ ...more, pointer: result?.pointer?.slice('/tasks/0'.length) }, one.body)
      return one
    }

    const theirs = { messageCode: 'test.receipt', sceneType: 'vip', messageBody: { n: 42 } }
    const number = defaultTaskNo('test.receipt', 'vip', JSON.stringify(theirs.messageBody))
    const refused = await post({ ...plain, taskNo: number })
    t.match(refused, { status: 422, body: { code: 'INVALID', pointer: '/taskNo' } })
    const posted = await all('POST /tasks', theirs)
    t.match(posted, { status: 201, body: { taskNo: number } }, 'whose it is finds it free')
    t.same(await post({ ...plain, taskNo: number }), refused, 'and that it is taken now changes nothing')

    const hashed = 'a'.repeat(64)
    t.equal(
      (await post({ ...plain, taskNo: hashed })).status,
      201,
      'no code here is so long that this is a default'
    )
    for (const taskNo of ['test.plain:vip:' + 'f'.repeat(32), 'nobody:vip:' + 'f'.repeat(32), `${number}0`])
      t.equal((await post({ ...plain, taskNo })).status, 201, taskNo)
    const own = 'test.receipt::' + 'e'.repeat(32)
    t.equal((await all('POST /tasks', { ...plain, taskNo: own })).status, 201, 'other keys may, as before')
    t.equal((await post({ ...plain, taskNo: own })).status, 200, 'and what is known already stays known')

    // The rest of the post, right or wrong, must not reveal whose number it is, or whether the number is taken.
    const foreign = { ...plain, taskNo: 'theirs-handled' }
    const other = { ...plain, taskNo: 'mine-handled', messageBody: { n: 2 } }
    const unknown = { ...plain, taskNo: 'nobody-knows-it' }
    t.same(await post(foreign), await post(other))
    t.equal((await post(foreign)).status, 409)
    for (const wrong of [
      { deliverBefore: '2020-01-01T00:00:00Z' },
      { delay: 60_000, deliverBefore: new Date(Date.now() + 1_000).toISOString() },
      { messageBody: null },
      { sceneType: 'a\u0007b' }
    ]) {
      const none = await post({ ...unknown, ...wrong })
      t.equal(none.status, 422)
      t.same(await post({ ...foreign, ...wrong }), none, `theirs, ${JSON.stringify(wrong)}`)
      t.same(await post({ ...other, ...wrong }), none, `other content, ${JSON.stringify(wrong)}`)
    }
    t.equal((await all('POST /tasks', { ...foreign, deliverBefore: '2020-01-01T00:00:00Z' })).status, 409)
  }
)

t.test('what does not exist, or has nothing left to do, leaves no row of who asked for it', async t => {
  const { on, one, admin } = await producer(t)
  const call = caller(one.url, admin)
  const asked: [route: string, status: number, body?: unknown][] = [
    ['DELETE /tasks/nobody-knows-it', 404],
    ['POST /tasks/nobody-knows-it/redeliver', 404],
    ['POST /tasks/nobody-knows-it/push', 404],
    ['POST /tasks/mine-failed/push', 409],
    ['POST /tasks/nobody-knows-it/settle', 404, { status: 'DELETED', reason: 'why' }],
    ['POST /tasks/mine-handled/settle', 409, { status: 'DELETED', reason: 'why' }],
    ['POST /tasks/mine-failed/settle', 422, { status: 'FAILED', reason: 'why' }],
    ['PATCH /downstreams/nobody-knows-it', 404, { concurrency: 1 }],
    ['PATCH /downstreams/plain', 422, { concurrency: 0 }],
    ['PATCH /downstreams/plain', 422, {}],
    ['POST /tasks/redeliver', 200, { filter: {}, dryRun: true }],
    ['POST /tasks/redeliver', 422, { filter: { status: 'HANDLED' } }],
    ['POST /downstreams/nobody-knows-it/pause', 404],
    ['POST /downstreams/nobody-knows-it/resume', 404],
    ['POST /downstreams/plain/resume', 200],
    ['DELETE /tasks/mine-handled', 409],
    ['POST /tasks/mine-handled/redeliver', 409],
    ['POST /tasks/mine-failed/redeliver', 404, { downstream: 'nobody-knows-it' }]
  ]
  for (const [route, status, body] of asked) t.equal((await call(route, body)).status, status, route)
  const rows = async () => [...(await on.sql`select what, target from audit where who = 'admin'`)]
  t.same(await rows(), [])
  for (let n = 0; n < 3; n++)
    t.equal((await call('POST /downstreams/plain/pause')).status, 200, 'paused already')
  t.same(await rows(), [{ what: 'downstream.pause', target: 'plain' }])
})

t.test('a revoked key is a stranger to every process within five seconds', async t => {
  const on = await stage(t)
  if (!on) return
  const env = { ...on.env, AUTH: 'on', ROLE: 'api' }
  const both = await Promise.all([start(t, env), start(t, env)])
  const made = await Promise.all(
    ['leaked', 'other'].map(name =>
      createKey(on.sql, { name, scopes: ['tasks:read'], messageCodes: null, who: { name: 'test' } })
    )
  )
  const [leaked, other] = made
  if (!leaked || !other) throw new Error('no keys')
  const ask = async ({ url }: Process, key: string) => (await caller(url, key)('GET /tasks')).status
  for (const one of both) t.same([await ask(one, leaked.key), await ask(one, other.key)], [200, 200])

  t.equal(await revokeKey(on.sql, { id: leaked.id, who: { name: 'test' } }), true)
  const revoked = stopwatch(t)
  const late = await Promise.all(
    both.map(async one => {
      // The key is in constant use: use must not keep a revoked key valid.
      await until('the revoked key is refused', async () => (await ask(one, leaked.key)) === 401)
      return revoked()
    })
  )
  for (const ms of late) t.ok(ms < 8_000, `after ${Math.round(ms)} ms`)
  for (const one of both) t.same([await ask(one, leaked.key), await ask(one, other.key)], [401, 200])
})

t.test('a flood of made-up keys from one address keeps nobody out who has a key', async t => {
  const on = await stage(t)
  if (!on) return
  const { url } = await start(t, { ...on.env, AUTH: 'on', ROLE: 'api' })
  const ask = async (key: string) => (await caller(url, key)('GET /tasks')).status
  const guesses: number[] = []
  const over = new AbortController()
  const flood = Array.from({ length: 16 }, async (_, who) => {
    for (let n = 0; !over.signal.aborted; n++) guesses.push(await ask(`ack_madeup${who}_${n}_0123456789`))
  })
  await until('the flood is under way', () => guesses.length > 500)
  for (let n = 0; n < 5; n++) {
    const { key } = await createKey(on.sql, {
      name: `new ${n}`,
      scopes: ['tasks:read'],
      messageCodes: null,
      who: { name: 'test' }
    })
    t.equal(await ask(key), 200, 'never seen before')
    t.equal(await ask(key), 200)
  }
  over.abort()
  await Promise.all(flood)
  t.same(new Set(guesses), new Set([401]))
})

t.test('KEY_PER_SECOND holds a key to its rate, and says when to come back', async t => {
  const on = await stage(t)
  if (!on) return
  const { url } = await start(t, { ...on.env, AUTH: 'on', ROLE: 'api', KEY_PER_SECOND: '3' })
  const key = { scopes: ['tasks:write' as const], messageCodes: null, who: { name: 'test' } }
  const [busy, calm] = [
    await createKey(on.sql, { ...key, name: 'busy' }),
    await createKey(on.sql, { ...key, name: 'calm' })
  ]
  const since = performance.now()
  const answers = await Promise.all(
    Array.from({ length: 30 }, async (_, n) => {
      const task = { taskNo: `rate-${n}`, messageCode: 'test.plain', messageBody: { n } }
      const { status } = await caller(url, busy.key)('POST /tasks', task)
      return status
    })
  )
  const taken = answers.filter(status => status === 201).length
  t.same(new Set(answers), new Set([201, 429]))
  const most = 4 + (3 * (performance.now() - since)) / 1_000
  t.ok(taken <= most, `${taken} of 30 at once, at most ${most.toFixed(1)}`)
  const [row] = await on.sql`select count(*)::int as n from task`
  t.equal(row?.['n'], taken, 'what was answered 429 is not stored')
  const other = { taskNo: 'calm', messageCode: 'test.plain', messageBody: { n: 1 } }
  t.equal((await caller(url, calm.key)('POST /tasks', other)).status, 201, 'others are not held up')
})

t.test('every act of an operator leaves a row that says who did what to whom', async t => {
  const { on, both, admin } = await twoProducers(t)
  const { sql } = on
  const call = caller(both[1].url, admin)
  const program = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')
  const run = promisify(execFile)
  const cli = async (...args: string[]): Promise<string> => {
    const env = { PATH: process.env['PATH'], DATABASE_URL: on.databaseUrl, SECRET: on.env['SECRET'] }
    return (await run(plainNode[0], [...plainNode.slice(1), program, 'key', ...args], { env })).stderr
  }
  const ok = async (route: string, body?: unknown) => t.equal((await call(route, body)).status, 200, route)
  let id = ''
  let rejected = ''
  let operation = ''
  let madeKey = ''
  const { key } = await createKey(sql, {
    name: 'another',
    scopes: ['tasks:write'],
    messageCodes: null,
    who: { name: 'test' }
  })
  const shop = caller(both[0].url, key)
  const acts: [act: string, perform: () => Promise<unknown>, row: object][] = [
    [
      'key create',
      async () => {
        id = /key_\w+/.exec(await cli('create', 'shop', '--scopes', 'tasks:write', '--codes', 'a'))?.[0] ?? ''
      },
      {
        who: /^cli/,
        what: 'key.created',
        detail: { name: 'shop', scopes: ['tasks:write'], messageCodes: ['a'] }
      }
    ],
    ['key revoke', () => cli('revoke', id), { who: /^cli/, what: 'key.revoked' }],
    [
      'POST /keys/:downstream/:key/release',
      () => ok('POST /keys/plain/key-of-mine/release'),
      { who: 'admin', what: 'key.release', detail: { taskNo: /./ } }
    ],
    [
      'POST /downstreams/:name/pause',
      () => ok('POST /downstreams/plain/pause'),
      { who: 'admin', what: 'downstream.pause', target: 'plain' }
    ],
    [
      'POST /downstreams/:name/resume',
      () => ok('POST /downstreams/plain/resume'),
      { who: 'admin', what: 'downstream.resume', target: 'plain' }
    ],
    [
      'POST /tasks/:taskNo/redeliver',
      () => ok('POST /tasks/mine-handled/redeliver', { force: true, downstream: 'plain' }),
      {
        who: 'admin',
        what: 'task.redeliver',
        target: 'mine-handled',
        detail: { force: true, downstream: 'plain' }
      }
    ],
    [
      'PATCH /downstreams/:name',
      () => ok('PATCH /downstreams/plain', { perSecond: 100 }),
      {
        who: 'admin',
        what: 'downstream.limits',
        target: 'plain',
        detail: { before: { perSecond: null }, after: { perSecond: 100 } }
      }
    ],
    [
      'POST /tasks/:taskNo/push',
      async () => {
        await sql`
          update delivery set phase = 'WAITING', next_action_at = now() + interval '1 hour', status = 0, reason = null,
            handled_at = null, handled_by = null, tries_left = 3
          where task_id = (select id from task where task_no = 'mine-failed')`
        await ok('POST /tasks/mine-failed/push')
      },
      {
        who: 'admin',
        what: 'task.push',
        target: 'mine-failed',
        detail: { before: { plain: 'SENDING' }, after: { plain: 'SENDING' } }
      }
    ],
    [
      'POST /tasks/:taskNo/settle',
      async () => {
        const task = { taskNo: 'by-hand', messageCode: 'test.plain', messageBody: { n: 1 }, delay: 60_000 }
        t.equal((await call('POST /tasks', task)).status, 201)
        await ok('POST /tasks/by-hand/settle', { status: 'HANDLED', reason: 'told by phone' })
      },
      {
        who: 'admin',
        what: 'task.settle',
        target: 'by-hand',
        detail: { reason: 'told by phone', before: { plain: 'SENDING' }, after: { plain: 'HANDLED' } }
      }
    ],
    [
      'POST /tasks/redeliver',
      async () => {
        const begun = await call('POST /tasks/redeliver', { filter: { taskNoPrefix: 'nobody' } })
        t.equal(begun.status, 202)
        operation = String(begun.body['id'])
      },
      { who: 'admin', what: 'tasks.redeliver', detail: { filter: { taskNoPrefix: 'nobody' } } }
    ],
    [
      'POST /operations/:id/stop',
      async () => {
        await sql`update operation set state = 'RUNNING', ended_at = null, leased_until = now() + interval '1 hour', owner = 'x'`
        await ok(`POST /operations/${operation}/stop`)
      },
      { who: 'admin', what: 'operation.stop', detail: { before: 'RUNNING', after: 'STOPPED' } }
    ],
    [
      'DELETE /tasks/:taskNo',
      async () => {
        const task = { taskNo: 'later', messageCode: 'test.plain', messageBody: { n: 1 }, delay: 60_000 }
        t.equal((await call('POST /tasks', task)).status, 201)
        await ok('DELETE /tasks/later')
      },
      { who: 'admin', what: 'task.delete', target: 'later' }
    ],
    [
      'POST /outbox/rejected/:id/retry',
      async () => {
        rejected = await rejectedRow(sql, 'test.plain')
        t.equal((await call(`POST /outbox/rejected/${rejected}/retry`)).status, 202)
      },
      { who: 'admin', what: 'outbox.retry' }
    ],
    [
      'DELETE /outbox/rejected/:id',
      async () => {
        rejected = await rejectedRow(sql, 'test.plain')
        await ok(`DELETE /outbox/rejected/${rejected}`)
      },
      { who: 'admin', what: 'outbox.delete' }
    ],
    [
      'POST /failures/:fingerprint/archive',
      async () => {
        const [failed] = await sql`select fingerprint from failure limit 1`
        await ok(`POST /failures/${String(failed?.['fingerprint'])}/archive`, { note: 'known' })
      },
      { who: 'admin', what: 'failure.archive', detail: { note: 'known' } }
    ],
    [
      'POST /alarms/resolve',
      async () => {
        const [alarm] = await sql`
          select t.task_no as "taskNo", a.downstream, a.attempt, a.kind from alarm a join task t on t.id = a.task_id
          where a.resolved_at is null limit 1`
        await ok('POST /alarms/resolve', { ...alarm })
      },
      { who: 'admin', what: 'alarm.resolve' }
    ],
    [
      'POST /api-keys',
      async () => {
        const made = await caller(both[0].url, admin)('POST /api-keys', {
          name: 'made',
          scopes: ['ops:read']
        })
        t.equal(made.status, 201)
        madeKey = String(made.body['id'])
      },
      { who: 'admin', what: 'key.created' }
    ],
    ['DELETE /api-keys/:id', () => ok(`DELETE /api-keys/${madeKey}`), { who: 'admin', what: 'key.revoked' }],
    ...(['check', 'rollback', 'commit'] as const).map(
      (how): [act: string, perform: () => Promise<unknown>, row: object] => [
        `POST /tasks/:taskNo/${how}`,
        async () => {
          const task = {
            taskNo: `half-${how}`,
            messageCode: 'test.plain',
            messageBody: { n: 1 },
            prepared: true
          }
          t.equal((await shop('POST /tasks', task)).status, 201)
          await ok(`POST /tasks/half-${how}/${how}`)
        },
        { who: 'admin', what: `task.${how}`, target: `half-${how}` }
      ]
    )
  ]
  const [adminKey] = await sql`select id from api_key where name = 'admin'`
  for (const [act, perform, row] of acts) {
    const [last] = await sql<{ id: number }[]>`select coalesce(max(id), 0)::int as id from audit`
    await perform()
    const rows =
      await sql`select who, key_id, what, target, detail, at from audit where id > ${last?.id ?? 0}`
    t.match([...rows], [row], act)
    t.equal(rows[0]?.['key_id'], act.startsWith('key') ? null : adminKey?.['id'], `${act}: by which key`)
    t.equal(rows.length, 1, `${act}: one row`)
    if (act.startsWith('key')) t.equal(rows[0]?.['target'], id, act)
    if (act.includes('/outbox/')) t.equal(rows[0]?.['target'], rejected, act)
  }
  const { audit } = (await call(`GET /audit?limit=200&keyId=${adminKey?.['id']}`)).body as { audit: object[] }
  t.same(new Set(audit.map(row => (row as { keyId?: string }).keyId)), new Set([adminKey?.['id']]))
  const mayAct = Object.keys(access).filter(route => access[route]?.includes('ops:write' satisfies Scope))
  const told = new Set(acts.map(([act]) => act))
  t.same(
    [...told].filter(act => access[act]).toSorted(),
    Object.keys(limitedActs).toSorted(),
    'each act that writes a row takes a token of its key'
  )
  t.same(
    // Producers nudge all the time too, and a nudge changes nothing.
    mayAct.filter(route => !told.has(route) && route !== 'POST /outbox/nudge' && route !== 'GET /api-keys'),
    [],
    'a new act needs its row here'
  )
  const rows = async () => (await sql<[{ rows: number }]>`select count(*)::int as rows from audit`)[0].rows
  const before = await rows()
  for (const path of ['/tasks/mine-failed', '/tasks', '/deliveries', '/alarms', '/audit'])
    await ok(`GET ${path}`)
  t.equal(await rows(), before, 'and looking leaves none')
})

t.test('a token fits the delivery it came with, and no other, nor a later one of its number', async t => {
  const { on, both } = await twoProducers(t)
  const sent = on.downstream.requests.find(one => one.headers['ackbox-task-no'] === 'theirs-handled')
  const token = String(sent?.headers['ackbox-callback-token'])
  const receipt = (body: object, header: string) =>
    caller(both[1].url, null)('POST /callback', body, { 'ackbox-callback-token': header })
  const right = { taskNo: 'theirs-handled', messageCode: 'test.receipt' }
  t.equal((await receipt(right, token)).status, 200)
  const garbage = await receipt(right, 'garbage')
  t.equal(garbage.status, 401)
  for (const taskNo of ['theirs-failed', 'mine-handled', 'nobody-knows-it', 'THEIRS-HANDLED'])
    t.same(await receipt({ ...right, taskNo }, token), garbage, taskNo)
  const other = token.replace('.receipted.', '.plain.')
  t.not(other, token)
  t.same(await receipt(right, other), garbage, 'nor one that was rewritten for another downstream')
  t.match(await receipt({ ...right, downstream: 'plain' }, token), {
    status: 422,
    body: { code: 'WRONG_DOWNSTREAM' }
  })
  t.match(await receipt({ ...right, messageCode: 'test.plain' }, token), {
    status: 422,
    body: { code: 'WRONG_CODE' }
  })

  // A token of a task that retention removed, and whose number was posted again since.
  const issued = (ago: number) =>
    tokens({ current: on.env['SECRET'] ?? '' }).issue({
      taskNo: 'theirs-failed',
      downstream: 'receipted',
      attempt: 1,
      at: new Date(Date.now() - ago)
    })
  const failed = { ...right, taskNo: 'theirs-failed' }
  t.match(await receipt(failed, issued(30 * 86_400_000)), { status: 404, body: { code: 'TASK_NOT_FOUND' } })
  const kept = await on.sql`
    select from receipt r join task t on t.id = r.task_id where t.task_no = 'theirs-failed'`
  t.equal(kept.length, 0, 'and nothing is kept of it')
  t.match(await receipt(failed, issued(0)), { status: 200, body: { status: 'HANDLED', late: true } })
})

t.test(
  'a key of one message code can neither pass for another key, nor take its places, nor fill the audit',
  async t => {
    const on = await stage(t, { answer: () => 500 })
    if (!on) return
    const one = await start(t, { ...on.env, AUTH: 'on' })
    const keyOf = async (name: string, messageCodes: string[] | null) => {
      const { key } = await createKey(on.sql, {
        name,
        scopes: [...scopes],
        messageCodes,
        who: { name: 'test' }
      })
      return { key, call: caller(one.url, key) }
    }
    const [full, tenantA, tenantB] = [
      await keyOf('full', null),
      await keyOf('tenant-a', ['test.plain']),
      await keyOf('tenant-b', ['test.receipt'])
    ]
    const task = { taskNo: 'failing', messageCode: 'test.plain', messageBody: { n: 1 }, retryTimes: 1 }
    t.equal((await tenantA.call('POST /tasks', task)).status, 201)
    await until('it failed', async () => /FAILED/.test((await tenantA.call('GET /tasks/failing')).text))

    const make = async (name: string) =>
      await tenantA.call('POST /api-keys', { name, scopes: ['tasks:read', 'ops:write'] })
    for (const name of ['full', 'tenant-b', 'TENANT-B'])
      t.match(await make(name), { status: 409, body: { code: 'API_KEY_NAME_TAKEN', pointer: '/name' } }, name)

    // Nobody else has a place in the live view while this key and those that it created ask for all.
    const made: string[] = []
    for (let n = 0; n < 3; n++) made.push(String((await make(`pod-${n}`)).body['key']))
    const stop = new AbortController()
    t.teardown(() => stop.abort())
    const watch = async (key: string) => {
      const answer = await fetch(`${one.url}/events`, {
        headers: { authorization: `Bearer ${key}` },
        signal: stop.signal
      })
      return answer.status
    }
    const seen = await Promise.all(Array.from({ length: 210 }, (_, n) => watch(made[n % 3] ?? '')))
    t.same(new Set(seen), new Set([200, 429]))
    t.equal(seen.filter(status => status === 200).length, 100)
    t.same(await Promise.all([1, 2, 3].map(() => watch(tenantB.key))), [200, 200, 200])

    const audited = async () =>
      (await on.sql<[{ rows: number }]>`select count(*)::int as rows from audit`)[0].rows
    const before = await audited()
    const floods = await Promise.all(Array.from({ length: 300 }, (_, n) => make(`flood-${n}`)))
    const late = floods.find(answer => answer.status === 429)
    t.match(late?.body, { code: 'TOO_MANY_REQUESTS' })
    const again = await Promise.all(
      Array.from({ length: 300 }, (_, n) => caller(one.url, made[n % 3] ?? '')('DELETE /api-keys/nobody'))
    )
    t.ok(again.filter(answer => answer.status === 429).length > 100, 'its keys take the same tokens')
    t.ok((await audited()) - before <= 97, 'it has 100 live keys at most')
    t.equal((await full.call('POST /api-keys', { name: 'free', scopes: ['ops:read'] })).status, 201)

    const pages: number[] = []
    for (let path = '/api-keys?limit=10'; path !== '';) {
      const { body } = await full.call(`GET ${path}`)
      pages.push((body['apiKeys'] as object[]).length)
      const next = body['nextCursor'] as string | undefined
      path = next === undefined ? '' : `/api-keys?limit=10&cursor=${next}`
    }
    t.ok(pages.length > 2 && pages.slice(0, -1).every(length => length === 10))
    t.match(await full.call('GET /api-keys?cursor=%3B'), { status: 422, body: { code: 'INVALID' } })
  }
)

t.test('while a bulk redelivery runs, nobody begins another one with its filter', async t => {
  const on = await stage(t, { answer: () => 500 })
  if (!on) return
  // No dispatcher: the operation stays as it is.
  const one = await start(t, { ...on.env, AUTH: 'on', ROLE: 'api' })
  const keyOf = async (name: string, messageCodes: string[] | null) =>
    caller(
      one.url,
      (await createKey(on.sql, { name, scopes: [...scopes], messageCodes, who: { name: 'test' } })).key
    )
  const [all, bound, other] = [
    await keyOf('all', null),
    await keyOf('bound', ['test.plain']),
    await keyOf('other', ['test.receipt'])
  ]
  const begin = async (call: typeof all, filter: object) => await call('POST /tasks/redeliver', { filter })
  const own = { messageCode: 'test.plain', from: '2026-01-02T03:04:05+08:00' }
  const both = await Promise.all(Array.from({ length: 8 }, () => begin(bound, own)))
  const [first] = both.filter(answer => answer.status === 202)
  t.equal(both.filter(answer => answer.status === 202).length, 1)
  const id = String(first?.body['id'])
  t.match(first?.body, { createdBy: 'bound', createdById: /^key_/ })
  const refused = { status: 409, body: { code: 'OPERATION_RUNNING', detail: new RegExp(id) } }
  t.match(await begin(bound, own), refused)
  t.match(
    await begin(all, { from: '2026-01-01T19:04:05.000Z', messageCode: 'test.plain' }),
    refused,
    'the same filter'
  )
  t.equal((await begin(all, { messageCode: 'test.plain' })).status, 202, 'another filter')
  t.equal((await begin(bound, {})).status, 202)
  t.equal((await begin(other, {})).status, 202, 'other messageCodes')
  t.equal((await begin(all, {})).status, 202, 'more messageCodes than those that run')
  t.equal((await begin(other, {})).status, 409)
  t.equal(
    (await on.sql`select from audit where what = 'tasks.redeliver'`).length,
    5,
    'a refusal leaves no row'
  )
  t.equal((await all(`POST /operations/${id}/stop`)).status, 200)
  t.equal((await begin(bound, own)).status, 202, 'once it has ended')
})
