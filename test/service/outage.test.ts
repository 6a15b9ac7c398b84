// Outages that a process survives: its Redis is emptied or killed, or all of its connections to PostgreSQL are cut.
// Takes long: npm run test:long.
import { connect } from 'node:net'
import t from 'tap'
import type { Sql } from '../../src/db/pool.ts'
import { blackHole } from '../support/blackhole.ts'
import { call, eachOf, postUntilTaken, start } from '../support/service.ts'
import { numbered, stage, statusAtLast, taken, tally } from '../support/stage.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { until } from '../support/until.ts'

// Each test waits most of its time for a lease to run out.
t.setTimeout(2_400_000)
t.jobs = 2

/** On a busy machine a process may need seconds more than its timeout: a lease that it loses there uses a try. */
const margin = { LEASE_MARGIN_MS: '8000' }

const taskOf = (taskNo: string, n: number): object => ({
  taskNo,
  messageCode: n % 2 === 0 ? 'test.plain' : 'test.receipt',
  messageBody: { n }
})

/**
 * Deliveries that used more tries than they have attempts on record. A receipt may overtake a delivery that was claimed
 * again: that claim needs no attempt.
 */
const burnt = async (sql: Sql): Promise<object[]> =>
  await sql<object[]>`
    select t.task_no, d.downstream, d.tries_left, d.attempt, d.lost
    from delivery d join task t on t.id = d.task_id
    where 50 - d.tries_left - d.needs_receipt::int
      > (select count(*) from attempt a where a.task_id = d.task_id and a.downstream = d.downstream)`

/** On a busy machine even the connection of the test may take too long. The statement is then repeated. */
const timedOut = (err: unknown): [] => {
  if (Object(err).code === 'CONNECT_TIMEOUT') return []
  throw err
}

/** Posts all tasks until each is accepted. Returns the ms of the slowest. */
async function slowest(taskNos: string[], url: string): Promise<number> {
  const times = await eachOf(taskNos, async taskNo => {
    const began = performance.now()
    await taken(url, taskNo)
    return performance.now() - began
  })
  return Math.max(...times)
}

/** Redis accepts a command as a line of text. */
const flush = (port: number): Promise<void> =>
  new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => socket.write('FLUSHALL\r\n'))
    socket.once('error', reject).once('data', () => socket.end(resolve))
  })

t.test(
  'Redis is flushed, killed and comes back empty under load: nothing is lost and no try is burnt',
  { buffered: true },
  async t => {
    const on = await stage(t, { redis: true, patient: true })
    if (!on?.redis) return
    const { downstream, redis, sql } = on
    const service = await start(t, { ...on.env, ...margin })
    const tasks = numbered('redis', 400)
    const posting = eachOf(tasks.map(taskOf), task => postUntilTaken(() => service.url, task))

    await downstream.received(100)
    await flush(redis.port)
    await downstream.received(200)
    await redis.kill()
    const away = numbered('away', 30)
    // A POST that waited for Redis would never be answered here. fault/redis-outage measures the speed of a POST without Redis.
    await eachOf(away, taskNo => taken(service.url, taskNo))
    await posting
    await redis.start()

    const ends = await eachOf([...tasks, ...away], taskNo => statusAtLast(service.url, taskNo))
    t.same(new Set(ends), new Set(['HANDLED']))
    t.same(await tally(sql), { HANDLED: 430 })
    t.same(await burnt(sql), [])
    t.same(await service.kill('SIGTERM'), { code: 0, signal: null }, 'it ends politely')
  }
)

t.test(
  'all connections to PostgreSQL are cut three times under load: the process lives and nothing is lost',
  { buffered: true },
  async t => {
    const on = await stage(t, { patient: true })
    if (!on) return
    const { downstream, sql } = on
    const service = await start(t, { ...on.env, ...margin })
    const tasks = numbered('cut', 400)
    const posting = eachOf(tasks.map(taskOf), task => postUntilTaken(() => service.url, task))
    for (const at of [50, 120, 190]) {
      await downstream.received(at)
      await until('some were cut', async () => {
        const cut = await sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name <> 'ackbox test'`.catch(timedOut)
        return cut.length > 0
      })
    }
    await posting
    const ends = await eachOf(tasks, taskNo => statusAtLast(service.url, taskNo))
    t.same(new Set(ends), new Set(['HANDLED']))
    t.same(await tally(sql), { HANDLED: 400 })
    t.same(await burnt(sql), [])
    t.same(
      await service.kill('SIGTERM'),
      { code: 0, signal: null },
      'the very process that was cut off ends politely'
    )
  }
)

t.test(
  'Redis is a black hole: tasks are taken as fast as ever, and arrive when it is back',
  { buffered: true },
  async t => {
    const on = await stage(t, { redis: true, patient: true })
    if (!on?.redis) return
    const hole = await blackHole(t, on.redis)
    const service = await start(t, { ...on.env, ...margin, REDIS_URL: `redis://127.0.0.1:${hole.port}` })
    const before = await slowest(numbered('before', 60), service.url)
    hole.swallow()
    const swallowed: string[] = []
    // A busy machine may delay one round. A POST that waited for Redis would be late in each of them.
    let during = Infinity
    for (let round = 1; round <= 5 && during >= before + 5_000; round++) {
      const tasks = numbered(`during-${round}`, 60)
      swallowed.push(...tasks)
      during = Math.min(during, await slowest(tasks, service.url))
    }
    t.ok(
      during < before + 5_000,
      `the slowest POST took ${during.toFixed(0)} ms, and ${before.toFixed(0)} before`
    )
    t.equal((await call(`${service.url}/readyz`)).status, 200, 'the process can still take work, and says so')
    hole.heal()
    const all = [...numbered('before', 60), ...swallowed]
    const ends = await eachOf(all, taskNo => statusAtLast(service.url, taskNo))
    t.same(new Set(ends), new Set(['HANDLED']))
    t.same(await burnt(on.sql), [])
  }
)

t.test('PostgreSQL is a black hole: 503 in time and not one task lost', { buffered: true }, async t => {
  const on = await stage(t, { redis: true, patient: true })
  if (!on) return
  const database = new URL(on.databaseUrl)
  const hole = await blackHole(t, { host: database.hostname, port: Number(database.port) })
  database.port = String(hole.port)
  const service = await start(t, { ...on.env, DATABASE_URL: String(database) })
  const tasks = numbered('dark', 120)
  const posting = eachOf(tasks.map(taskOf), task => postUntilTaken(() => service.url, task))
  await on.downstream.received(30)
  hole.swallow()
  const began = stopwatch(t)
  const refused = await fetch(`${service.url}/tasks`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(taskOf('refused', 1))
  })
  t.equal(refused.status, 503)
  t.ok(Number(refused.headers.get('retry-after')) >= 1, 'it says when to come back')
  t.ok(began() < 6_000, 'after about 2 s, not after the 10 s of a statement')
  t.equal((await call(`${service.url}/readyz`)).status, 503)
  t.equal((await call(`${service.url}/healthz`)).status, 200, 'it lives')
  hole.heal()
  await posting
  const ends = await eachOf(tasks, taskNo => statusAtLast(service.url, taskNo))
  t.same(new Set(ends), new Set(['HANDLED']), 'and recovers by itself')
  t.same(await burnt(on.sql), [])
})
