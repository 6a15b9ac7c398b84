// Recognizable secrets are planted wherever the service takes a secret. Then all of its output is searched for them.
// Takes long: npm run test:long.
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { access } from '../../src/api/access.ts'
import { createKey, revokeKey, scopes } from '../../src/db/api-keys.ts'
import type { Sql } from '../../src/db/pool.ts'
import { freePort } from '../../src/embedded/port.ts'
import { signingSecret } from '../../src/domain/tokens.ts'
import { testDb } from '../support/postgres.ts'
import { ownRedis } from '../support/redis.ts'
import { folder, launch, plainNode, start } from '../support/service.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

const canary = (name: string): string => `canary-${name}-Zq7xW2vK9mR4tB8n`
const secrets = {
  SECRET: `${canary('secret')}-Xf3Gh6Jk1Lp0`,
  SECRET_PREVIOUS: `${canary('previous')}-Yd5Sa8Qw2Ez4`,
  redis: canary('redis'),
  broker: canary('broker'),
  downstream: canary('downstream'),
  query: canary('query'),
  alarm: canary('alarm'),
  postgres: canary('postgres'),
  signing: `whsec_${Buffer.from(canary('own-signing-secret-of-a-handler')).toString('base64')}`
}

/** Imports the module that the service itself loaded, because the folder of a test has no node_modules. */
const handlers = (downstream: string): string => `
import { defineHandler, env, z } from '${new URL('../../src/handler/define.js', import.meta.url).href}'
const headers = () => ({ authorization: 'Bearer ' + env.DOWN_KEY, 'x-api-key': env.DOWN_KEY })
const http = (name, more = {}) => ({
  transport: 'http',
  request: ({ raw }) => ({ url: '${downstream}/' + name + '?key=' + env.QUERY_KEY, headers: headers(), body: raw }),
  retry: { times: 2, backoff: '50ms' }, limit: { timeout: '2s' }, ...more
})
const to = (transport, broker, request) => ({
  transport, request: () => ({ broker, ...request }), retry: { times: 1 }, limit: { timeout: '1500ms' }
})
export default defineHandler({
  messageCode: 'canary.sung',
  body: z.object({ n: z.int() }),
  downstreams: {
    good: http('good', { needCallback: true, secrets: [env.SIGNING] }),
    echo: http('echo'),
    refused: http('refused', { accepted: () => 'refused' }),
    hangs: http('hangs', { limit: { timeout: '300ms' }, retry: { times: 1 } }),
    wrong: { transport: 'http', request: () => ({ url: 'http://me:' + env.DOWN_KEY + '@127.0.0.1:1/', headers: { authorization: env.DOWN_KEY + '\\n' } }), retry: { times: 1 } },
    blocked: { transport: 'http', request: () => ({ url: 'http://169.254.169.254/' + env.QUERY_KEY, headers: headers() }), retry: { times: 1 } },
    rabbit: to('rabbitmq', 'rabbit', { exchange: 'a', routingKey: 'b' }),
    nats: to('nats', 'nats', { subject: 'a' }),
    kafka: to('kafka', 'kafka', { topic: 'a' }),
    stream: to('redis-stream', 'stream', { stream: 'a' })
  }
})
`

/** A downstream that echoes each request, as error pages do. It keeps the tokens sent to /good, and counts the alarms. */
async function echo(t: Test): Promise<{ url: string; tokens: string[]; alarms: number }> {
  const seen = { url: '', tokens: [] as string[], alarms: 0 }
  const server = createServer((request: IncomingMessage, response: ServerResponse) => {
    request.resume()
    request.on('end', () => {
      const { url = '', headers } = request
      if (url.startsWith('/hangs')) return
      if (url.startsWith('/alarms')) seen.alarms++
      if (url.startsWith('/good')) seen.tokens.push(String(headers['ackbox-callback-token']))
      const good = url.startsWith('/good')
      response.writeHead(good ? 200 : 500, {
        'x-echo': headers.authorization ?? 'none',
        'x-token': headers['ackbox-callback-token'] ?? 'none',
        'set-cookie': `key=${secrets.downstream}`
      })
      response.end(JSON.stringify({ url: url.replace(/\?.*/, ''), headers }))
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(async () => {
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  })
  seen.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return seen
}

/** The canaries that the text contains, by name. */
function sung(text: string, more: Record<string, string> = {}): string[] {
  return Object.entries({ ...secrets, ...more }).flatMap(([name, secret]) => {
    const written = [secret, encodeURIComponent(secret), Buffer.from(secret).toString('base64').slice(0, -4)]
    const at = written.map(each => text.indexOf(each)).find(where => where >= 0)
    return at === undefined ? [] : [`${name}: …${text.slice(Math.max(0, at - 120), at + 60)}…`]
  })
}

async function rows(sql: Sql): Promise<string> {
  const tables = ['task', 'delivery', 'receipt', 'alarm', 'downstream', 'node', 'audit', 'api_key']
  const texts = await Promise.all(
    tables.map(async table => JSON.stringify(await sql.unsafe(`select * from ${table}`)))
  )
  const attempts = await sql`select *, encode(answer, 'escape') as said from attempt`
  return texts.join('\n') + JSON.stringify(attempts.map(row => ({ ...row, answer: null })))
}

/** All contents of Redis as bytes: its keys and their dumps. */
async function held(redis: Redis): Promise<string> {
  const keys = await redis.keys('*')
  const dumps = await Promise.all(
    keys.map(async key => (await redis.dumpBuffer(key))?.toString('latin1') ?? '')
  )
  return keys.join('\n') + dumps.join('\n')
}

/** The first chunk of an answer that never ends. */
async function firstPart(answer: Response): Promise<string> {
  const reader = answer.body?.getReader()
  const { value } = (await reader?.read()) ?? {}
  await reader?.cancel()
  return Buffer.from(value ?? []).toString()
}

t.test('no secret is in the log, an answer, a metric, a row, a job or what the doctor says', async t => {
  const redis = await ownRedis(t, '--requirepass', secrets.redis)
  if (!redis) return
  const { sql, url } = await testDb(t)
  const downstream = await echo(t)
  const dir = folder(t)
  writeFileSync(path.join(dir, 'canary.mjs'), handlers(downstream.url))
  const nobody = await freePort()
  const password = new URL(url).password
  t.ok(password.length > 8, 'that of PostgreSQL is a canary too')
  const redisUrl = `redis://:${secrets.redis}@127.0.0.1:${redis.port}`
  const env = {
    DATABASE_URL: url,
    REDIS_URL: redisUrl,
    SECRET: secrets.SECRET,
    SECRET_PREVIOUS: secrets.SECRET_PREVIOUS,
    AUTH: 'on',
    HANDLERS_DIR: dir,
    DOWN_KEY: secrets.downstream,
    QUERY_KEY: secrets.query,
    SIGNING: secrets.signing,
    EGRESS_ALLOW: `${new URL(downstream.url).host},127.0.0.1:${nobody},127.0.0.1:${redis.port}`,
    ALARM_WEBHOOK_URL: `${downstream.url}/alarms/${secrets.alarm}`,
    ALARM_WEBHOOK_SECRET: `whsec_${Buffer.from(secrets.alarm).toString('base64')}`,
    BROKER_RABBIT: `amqp://me:${secrets.broker}@127.0.0.1:${nobody}`,
    BROKER_NATS: `nats://me:${secrets.broker}@127.0.0.1:${nobody}`,
    BROKER_KAFKA: `kafka://me:${secrets.broker}@127.0.0.1:${nobody}`,
    BROKER_STREAM: `redis://me:${secrets.broker}@127.0.0.1:${redis.port}`,
    LOG_LEVEL: 'trace'
  }
  const service = await start(t, env)
  const { id, key } = await createKey(sql, {
    name: 'all',
    scopes: [...scopes],
    messageCodes: null,
    who: { name: 'test' }
  })
  const { key: weak } = await createKey(sql, {
    name: 'weak',
    scopes: [],
    messageCodes: null,
    who: { name: 'test' }
  })
  const heard: string[] = []
  const ask = async (target: string, init: RequestInit & { key?: string } = {}): Promise<number> => {
    const { key: with_ = key, ...more } = init
    const answer = await fetch(service.url + target, {
      ...more,
      headers: {
        authorization: `Bearer ${with_}`,
        'content-type': 'application/json',
        ...(more.headers as object)
      }
    })
    const body = target === '/events' ? await firstPart(answer) : await answer.text()
    heard.push(`${target} ${JSON.stringify([...answer.headers])} ${body}`)
    return answer.status
  }
  const post = (target: string, body: unknown, headers: object = {}): Promise<number> =>
    ask(target, { method: 'POST', body: JSON.stringify(body), headers: headers as Record<string, string> })

  const task = { taskNo: 'sung', messageCode: 'canary.sung', messageBody: { n: 1 } }
  t.equal(await post('/tasks', task), 201)
  await until('the good one is there', () => downstream.tokens.length > 0)
  const token = downstream.tokens[0] ?? ''
  const more = { key, weak, token: token.slice(token.lastIndexOf('.') + 1), postgresPassword: password }
  const derived = {
    good: signingSecret(secrets.SECRET, 'good').slice(6),
    echo: signingSecret(secrets.SECRET, 'echo').slice(6)
  }

  // Receipts that are wrong in every way, with the right token in the wrong place.
  const receipt = { taskNo: 'sung', messageCode: 'canary.sung' }
  const withToken = { 'ackbox-callback-token': token }
  t.equal(await post('/callback', { ...receipt, taskNo: 'other' }, withToken), 401)
  t.equal(await post('/callback', { ...receipt, [token]: token }, withToken), 422)
  t.equal(await post('/callback', { ...receipt, result: token }, withToken), 422)
  t.equal(await post('/callback', { ...receipt, downstream: 'echo' }, withToken), 422)
  t.equal(await ask('/callback', { method: 'POST', body: `{"taskNo":"${token}`, headers: withToken }), 400)
  t.equal(await post(`/callback?token=${token}`, receipt, { 'ackbox-callback-token': `${token}x` }), 401)
  t.equal(await post('/callback', receipt, withToken), 200)

  // Keys that are refused, or sent where no key belongs.
  t.equal(await ask('/tasks', { key: weak }), 403)
  t.equal(await ask('/tasks', { headers: { authorization: `Basic ${key}` } }), 401)
  t.equal(await ask(`/tasks?key=${key}`), 422)
  t.equal(await ask(`/tasks?limit=${key}`), 422)
  t.equal(await ask(`/tasks/${key}`), 404)
  t.equal(await post('/tasks', { ...task, taskNo: 'bad', [key]: 1 }), 422)
  t.equal(await post('/tasks', { ...task, taskNo: 'bad', delay: key }), 422)

  await until('everything came to rest', async () => {
    const [row] = await sql`select count(*)::int as n from delivery where status = 0`
    return row?.['n'] === 0
  })
  await until('alarms went out', () => downstream.alarms > 0)
  for (const route of Object.keys(access).filter(one => one.startsWith('GET ') && !one.includes('*')))
    await ask(route.slice(4).replace(':taskNo', 'sung'))
  t.ok(
    heard.some(answer => answer.includes('"attempts":[{')),
    'attempts were shown'
  )

  const outcomes = await sql`select downstream, outcome, reason from attempt order by 1`
  t.ok(new Set(outcomes.map(row => row['downstream'] as string)).size >= 9, 'each downstream was tried')
  const doctor = await new Promise<string>(resolve => {
    const program = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')
    execFile(
      plainNode[0],
      [...plainNode.slice(1), program, 'doctor'],
      { env: { PATH: process.env['PATH'], ...env } },
      (_error, out, err) => resolve(out + err)
    )
  })
  t.match(doctor, /checks, /)
  const client = new Redis(redisUrl)
  const jobs = await held(client)
  client.disconnect()

  await revokeKey(sql, { id, who: { name: 'test' } })
  await redis.kill()
  await post('/tasks', { ...task, taskNo: 'without-redis' })
  await service.kill('SIGTERM')

  const all = { ...more, ...derived }
  const asked = heard
    .join('\n')
    .replaceAll(`/tasks/${key}`, '')
    .replaceAll(`key=${key}`, '')
    .replaceAll(`limit=${key}`, '')
    .replaceAll(`token=${token}`, '')
  t.match(service.output(), /"msg":"attempt\.done"/)
  t.same(sung(service.output(), all), [], 'the log')
  t.same(sung(asked, all), [], 'answers and metrics')
  t.same(sung(await rows(sql), all), [], 'rows')
  t.same(sung(jobs, all), [], 'jobs')
  t.same(sung(doctor, all), [], 'the doctor')
})

t.test('settings that are wrong are said without what they hold', async t => {
  const port = await freePort()
  const { url } = await testDb(t)
  const wrongPassword = new URL(url)
  wrongPassword.password = secrets.postgres
  const base = { DATABASE_URL: url, SECRET: secrets.SECRET, PORT: '0', LOG_LEVEL: 'trace' }
  // Settings that are invalid by themselves are all reported at once.
  const cases: [story: string, env: Record<string, string>][] = [
    ['a wrong password', { DATABASE_URL: String(wrongPassword) }],
    ['a server that is not there', { DATABASE_URL: `postgres://me:${secrets.postgres}@127.0.0.1:${port}/a` }],
    ['no such host', { DATABASE_URL: `postgres://me:${secrets.postgres}@no-such-host.invalid/a` }],
    ['a Redis that is not there', { REDIS_URL: `redis://:${secrets.redis}@127.0.0.1:${port}` }],
    ['a Redis of no host', { REDIS_URL: `redis://:${secrets.redis}@no-such-host.invalid` }],
    [
      'what is none, and secrets that are too short',
      {
        DATABASE_URL: `postgres//me:${secrets.postgres}@h/a`,
        REDIS_URL: `rediss//:${secrets.redis}@h`,
        SECRET: canary('secret').slice(0, 31),
        SECRET_PREVIOUS: canary('previous').slice(0, 31),
        BROKER_A: `amqp//me:${secrets.broker}@h`,
        BROKERS_JSON: `{"a":"amqp://me:${secrets.broker}@h"`,
        ALARM_WEBHOOK_URL: `hooks.test/${secrets.alarm}`,
        ALARM_WEBHOOK_SECRET: `whsec-${secrets.alarm}`
      }
    ],
    [
      'a broker with a wrong port, and brokers in a list',
      {
        BROKER_A: `amqp://me:${secrets.broker}@h:99999`,
        BROKERS_JSON: `["amqp://me:${secrets.broker}@h"]`
      }
    ],
    [
      'names that are almost ours',
      { SECERT: secrets.SECRET, REDIS_ULR: `redis://:${secrets.redis}@h`, PORT: 'x' }
    ]
  ]
  for (const [story, env] of cases) {
    const attempt = launch(t, { ...base, ...env, DATA_DIR: folder(t) })
    t.equal((await attempt.exited).code, 1, story)
    const said = attempt.output()
    t.not(said, '', story)
    if (env['BROKER_A'] !== undefined) {
      const unsaid = Object.keys(env).filter(name => !said.includes(name))
      t.same(unsaid, [], `${story}: each is said`)
    }
    const short = { short: canary('secret').slice(0, 31), former: canary('previous').slice(0, 31) }
    t.same(sung(said, short), [], story)
  }
})
