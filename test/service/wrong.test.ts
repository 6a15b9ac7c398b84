// Failures at a start: one line that names the remedy, an exit code, and nothing left behind.
// Takes long: npm run test:long.
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, writeFileSync } from 'node:fs'
import { createServer, type AddressInfo } from 'node:net'
import path from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { lyingProxy } from '../support/proxy.ts'
import { emptyDb, testDb } from '../support/postgres.ts'
import { ownRedis } from '../support/redis.ts'
import { call, folder, handlersDir, launch, secret, start } from '../support/service.ts'
import { stopwatch } from '../support/stopwatch.ts'

t.setTimeout(2_400_000)
t.jobs = 3

type Env = Record<string, string>

/** Starts a process that must fail. Returns its lines for a person: all output except log lines. */
async function refused(t: Test, env: Env): Promise<string[]> {
  const began = stopwatch(t)
  const attempt = launch(t, { PORT: '0', DATA_DIR: path.join(folder(t), 'data'), ...env })
  const exit = await attempt.exited
  const seconds = began() / 1000
  t.same(exit, { code: 1, signal: null }, 'it ends with code 1')
  // It may try again a few times. With endless retries it would hang.
  t.ok(seconds < 60, `soon: after ${seconds.toFixed(1)} s`)
  t.notMatch(attempt.output(), /^\s+at .*:\d+/m, 'without a stack trace')
  t.notMatch(attempt.output(), /this is a bug/, 'and does not take it for a bug of ours')
  t.notMatch(attempt.output(), secret, 'and tells no secret')
  return attempt
    .output()
    .split('\n')
    .filter(line => line !== '' && !line.startsWith('{'))
}

function oneLine(name: string, says: RegExp[], env: (t: Test) => Promise<Env | undefined> | Env): void {
  void t.test(name, { buffered: true }, async t => {
    const settings = await env(t)
    if (!settings) return
    const lines = await refused(t, settings)
    t.equal(lines.length, 1, `one line: ${lines.join('\n')}`)
    for (const part of says) t.match(lines[0], part)
  })
}

const withDatabase = (url: string | URL): Env => ({
  DATABASE_URL: String(url),
  SECRET: secret,
  AUTH: 'off',
  DEMO: 'on'
})
async function changed(t: Test, change: (url: URL) => void): Promise<Env> {
  const url = new URL((await testDb(t)).url)
  change(url)
  return withDatabase(url)
}

oneLine('a DATABASE_URL with a host that does not exist is said', [/check DATABASE_URL/, /no-such-host/], t =>
  changed(t, url => {
    url.hostname = 'no-such-host.invalid'
  })
)

oneLine(
  'a DATABASE_URL with a port where nobody listens is said',
  [/check DATABASE_URL/, /ECONNREFUSED/],
  t =>
    freePort().then(port =>
      changed(t, url => {
        url.port = String(port)
      })
    )
)

oneLine('a DATABASE_URL where somebody listens and says nothing is said', [/check DATABASE_URL/], async t => {
  const silent = createServer(socket => socket.on('error', () => {}))
  silent.listen(0, '127.0.0.1')
  await once(silent, 'listening')
  t.teardown(() => silent.close())
  return withDatabase(`postgres://ackbox@127.0.0.1:${(silent.address() as AddressInfo).port}/ackbox`)
})

oneLine('a wrong password of PostgreSQL is said', [/check DATABASE_URL/, /password/], t =>
  changed(t, url => {
    url.password = 'wrong'
  })
)

oneLine('a database that does not exist is said', [/check DATABASE_URL/, /"nowhere" does not exist/], t =>
  changed(t, url => {
    url.pathname = '/nowhere'
  })
)

oneLine(
  'a user of PostgreSQL who may not read our tables is told what to do',
  [/may not do this \(permission denied/, /the owner of the tables/],
  async t => {
    const { url, sql } = await testDb(t)
    const role = `stranger_${process.pid}`
    await sql.unsafe(`create role ${role} login password 'p'`)
    t.teardown(() => sql.unsafe(`drop role ${role}`))
    return withDatabase(Object.assign(new URL(url), { username: role, password: 'p' }))
  }
)

oneLine(
  'a PostgreSQL that is too old is said',
  [/PostgreSQL .* is too old: Ackbox needs 14 or newer/],
  async t => {
    const { url, sql } = await testDb(t)
    const [row] = await sql<{ number: string }[]>`select current_setting('server_version_num') as number`
    const real = row?.number ?? ''
    const port = await lyingProxy(t, new URL(url), answer => answer.replaceAll(real, '130022'))
    const lied = new URL(url)
    lied.port = String(port)
    return withDatabase(lied)
  }
)

oneLine(
  'a REDIS_URL where nobody listens is said',
  [/Redis at 127\.0\.0\.1:\d+/, /check REDIS_URL/],
  async t => ({
    ...withDatabase((await testDb(t)).url),
    REDIS_URL: `redis://127.0.0.1:${await freePort()}`
  })
)

oneLine('a wrong password of Redis is said', [/refuses the user or password of REDIS_URL/], async t => {
  const redis = await ownRedis(t, '--requirepass', 'right')
  if (!redis) return undefined
  return { ...withDatabase((await testDb(t)).url), REDIS_URL: `redis://:wrong@127.0.0.1:${redis.port}` }
})

oneLine(
  'a Redis that is too old is said',
  [/Redis at .* is 6\.0\S*: Ackbox needs 6\.2 or newer/],
  async t => {
    const redis = await ownRedis(t)
    if (!redis) return undefined
    const lie = (answer: string): string =>
      answer.replace(/redis_version:[\d.]+/, ({ length }) => 'redis_version:6.0.'.padEnd(length, '1'))
    const port = await lyingProxy(t, new URL(redis.url), lie)
    return { ...withDatabase((await testDb(t)).url), REDIS_URL: `redis://127.0.0.1:${port}` }
  }
)

oneLine('a port that is taken is said', [/127\.0\.0\.1:\d+ is in use/, /PORT/], async t => {
  const taken = createServer()
  taken.listen(0, '127.0.0.1')
  await once(taken, 'listening')
  t.teardown(() => taken.close())
  const { port } = taken.address() as AddressInfo
  return { ...withDatabase((await testDb(t)).url), PORT: String(port) }
})

const settings: [what: string, env: Env, says: RegExp][] = [
  [
    'a DATABASE_URL without a SECRET',
    { DATABASE_URL: 'postgres://a@127.0.0.1/a' },
    /SECRET is required.*openssl rand/
  ],
  ['one role alone on an embedded PostgreSQL', { ROLE: 'worker' }, /ROLE.*needs DATABASE_URL/],
  [
    'AUTH=off for everybody in the network',
    { HOST: '0.0.0.0', AUTH: 'off' },
    /AUTH=off.*loopback.*npm run key/
  ],
  [
    'a HOST that is not ours',
    { ...withDatabase('postgres://a@127.0.0.1/a'), HOST: '192.0.2.1', AUTH: 'on', DEMO: 'off' },
    /192\.0\.2\.1.*check HOST/
  ],
  [
    'a HOST that nobody knows',
    { ...withDatabase('postgres://a@127.0.0.1/a'), HOST: 'nope.invalid', AUTH: 'on', DEMO: 'off' },
    /HOST nope\.invalid cannot be resolved/
  ]
]
for (const [what, env, says] of settings) oneLine(`${what} is said`, [says], () => env)

t.test(
  'a SECRET too short, a PORT out of range, an unknown ROLE and an odd EGRESS_ALLOW are said at once, a line each',
  { buffered: true },
  async t => {
    const lines = await refused(t, {
      SECRET: 'short',
      PORT: '99999',
      ROLE: 'api,wroker,dispatcher',
      EGRESS_ALLOW: '10.0.0.0/8,half a host'
    })
    for (const says of [
      /SECRET is too short: 32 characters/,
      /PORT must be a whole number from 0 to 65535, but is "99999"/,
      /ROLE must be some of api, worker, dispatcher/,
      /EGRESS_ALLOW must be.*"half a host"/
    ])
      t.equal(lines.filter(line => says.test(line)).length, 1, String(says))
    t.equal(lines.length, 4, lines.join('\n'))
  }
)

t.test('missing tables are said, and npm run migrate makes them', { buffered: true }, async t => {
  const url = await emptyDb(t)
  const [line, ...more] = await refused(t, withDatabase(url))
  t.match(line, /lacks .*npm run migrate/)
  t.same(more, [], 'in one line')
  const program = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')
  const run = (): Promise<{ stdout: string }> =>
    promisify(execFile)(process.execPath, [program, 'migrate'], {
      env: { PATH: process.env['PATH'], DATABASE_URL: url }
    })
  t.match((await run()).stdout, /^applied /, 'the migration says what it did')
  t.match((await run()).stdout, /nothing to do/, 'and may be run again')
  const service = await start(t, { ...withDatabase(url), DATA_DIR: folder(t) })
  t.equal((await call(`${service.url}/readyz`)).status, 200, 'then it starts')
})

t.test('migrate says of a DATABASE_URL just what start says', { buffered: true, jobs: 1 }, async t => {
  const program = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')
  const wrong: [name: string, url: string, says: RegExp][] = [
    ['no URL at all', 'localhost/ackbox', /DATABASE_URL must be a URL that starts with postgres:\/\//],
    ['another database', 'mysql://a:hunter2@127.0.0.1/a', /DATABASE_URL must be a URL that starts/],
    ['no URL behind its start', 'postgres://a:hunter2@localhost:notaport/a', /DATABASE_URL cannot be read/],
    ['nobody listens', `postgres://a@127.0.0.1:${await freePort()}/a`, /cannot be used \(.*ECONNREFUSED/],
    [
      'no such database',
      (await testDb(t)).url.replace(/\/[^/]+$/, '/no-such-database'),
      /refuses the connection/
    ]
  ]
  for (const [name, url, says] of wrong) {
    const env = { PATH: process.env['PATH'], DATABASE_URL: url }
    const failed = (await promisify(execFile)(process.execPath, [program, 'migrate'], { env }).catch(
      (err: unknown) => err
    )) as { code: number; stderr: string }
    t.equal(failed.code, 1, name)
    t.match(failed.stderr, says, name)
    t.same(failed.stderr.trim().split('\n'), await refused(t, withDatabase(url)), `${name}: the same line`)
  }
})

t.test(
  'everything wrong with the handlers is said at once, and no PostgreSQL is left running',
  { buffered: true },
  async t => {
    const handlers = folder(t)
    writeFileSync(path.join(handlers, 'syntax.mjs'), 'export default {')
    writeFileSync(path.join(handlers, 'nothing.mjs'), 'export const nothing = 1\n')
    const data = path.join(folder(t), 'data')
    const said = (await refused(t, { HANDLERS_DIR: handlers, DATA_DIR: data })).join('\n')
    t.match(said, /2 errors in the handlers of/)
    t.match(said, /syntax\.mjs[^]*SyntaxError/)
    t.match(said, /nothing\.mjs[^]*default/)
    t.notOk(existsSync(path.join(data, 'postgres/postmaster.pid')), 'the embedded PostgreSQL has ended')
  }
)

t.test('a folder of handlers that does not exist is said', { buffered: true }, async t => {
  const { url } = await testDb(t)
  const said = await refused(t, { ...withDatabase(url), HANDLERS_DIR: '/no/such/folder' })
  t.match(said.join('\n'), /\/no\/such\/folder/)
})

t.test(
  'a second start on the same DATA_DIR is told who holds it, and does the first no harm',
  { buffered: true },
  async t => {
    const data = folder(t)
    const first = await start(t, {
      DATA_DIR: data,
      HANDLERS_DIR: handlersDir,
      TEST_SINK: 'http://127.0.0.1:1',
      DEMO: 'off'
    })
    const [line, ...more] = await refused(t, { DATA_DIR: data })
    t.match(line, new RegExp(`held by another Ackbox, pid ${first.pid} .*port \\d+.*DATA_DIR`))
    t.same(more, [], 'in one line')
    t.equal((await call(`${first.url}/readyz`)).status, 200, 'the first one goes on')
    t.equal((await first.kill('SIGTERM')).code, 0)
    t.notOk(existsSync(path.join(data, 'postgres/postmaster.pid')), 'and ends with its PostgreSQL')
  }
)
