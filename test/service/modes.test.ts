// The first minute of a new user: start the service, run the curl that it prints.
// Takes long: npm run test:long.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { dataFolder } from '../support/cluster.ts'
import { testDb } from '../support/postgres.ts'
import { ownRedis } from '../support/redis.ts'
import { call, folder, secret, start } from '../support/service.ts'

t.setTimeout(2_400_000)
t.jobs = 2

const greets = 'the greeting shows a curl'

/** Starts with the samples, runs the printed curl unchanged in a shell, and ends the service. */
async function firstMinute(t: Test, env: Record<string, string>): Promise<{ curl: string; output: string }> {
  const service = await start(t, { DATA_DIR: folder(t), ...env })
  const greeting = service.output()
  t.match(greeting, `${service.url}/docs`, 'the greeting shows the way to Swagger UI')
  const curl = /^ +(curl .*)$/m.exec(greeting)?.[1] ?? ''
  t.not(curl, '', greets)
  const { stdout } = await promisify(execFile)('sh', ['-c', curl])
  const [posted, ended] = stdout.split(/(?<=\})\s*(?=\{"taskNo")/).map(text => JSON.parse(text) as object)
  t.match(posted, { status: 'SENDING' }, 'its POST is answered with the task')
  t.match(
    ended,
    { status: 'HANDLED', deliveries: [{ handledBy: /receipt|answer/ }] },
    'and its wait with HANDLED'
  )
  t.equal((await fetch(`${service.url}/docs`)).status, 200, 'Swagger UI is there')
  t.same(await service.kill('SIGTERM'), { code: 0, signal: null }, 'it ends politely')
  return { curl, output: service.output() }
}

t.test('without any setting the printed curl ends HANDLED', { buffered: true }, async t => {
  await firstMinute(t, {})
})

t.test('with a Redis and no DATABASE_URL the printed curl ends HANDLED', { buffered: true }, async t => {
  const redis = await ownRedis(t)
  if (redis) await firstMinute(t, { REDIS_URL: redis.url, DATA_DIR: await dataFolder(t) })
})

t.test(
  'with a DATABASE_URL the printed curl brings the demo key that is now needed',
  { buffered: true },
  async t => {
    const { url } = await testDb(t)
    const { curl, output } = await firstMinute(t, { DATABASE_URL: url, SECRET: secret, DEMO: 'on' })
    t.match(curl, /authorization: Bearer \$\(cat '.+\/demo-key'\)/, 'it reads it from where it is kept')
    t.notMatch(output, /ack_[\w-]{20,}/, 'what is no terminal may be a log: no key is in it')
  }
)

t.test('with a DATABASE_URL and a Redis the printed curl ends HANDLED', { buffered: true }, async t => {
  const redis = await ownRedis(t)
  if (!redis) return
  const { url } = await testDb(t)
  await firstMinute(t, { DATABASE_URL: url, REDIS_URL: redis.url, SECRET: secret, DEMO: 'on' })
})

t.test('with AUTH on nobody posts without a key, or with a wrong one', { buffered: true }, async t => {
  const { url } = await testDb(t)
  const service = await start(t, { DATABASE_URL: url, SECRET: secret, DEMO: 'on', DATA_DIR: folder(t) })
  const task = { messageCode: 'order.paid', messageBody: { orderId: '1', cents: 1 } }
  t.match(await call(`${service.url}/tasks`, task), { status: 401, body: { code: 'UNAUTHORIZED' } })
  const wrong = await fetch(`${service.url}/tasks`, { headers: { authorization: 'Bearer wrong' } })
  t.equal(wrong.status, 401)
})
