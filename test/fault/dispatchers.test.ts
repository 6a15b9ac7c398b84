// Three dispatchers work on the same due deliveries, and two of them are killed one after the other.
// Takes long: npm run test:long.
import t from 'tap'
import { sampler, unaccounted } from '../support/sampler.ts'
import { eachOf, start } from '../support/service.ts'
import { numbered, repeated, stage, statusAtLast, taken, tally } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

t.test(
  'three dispatchers claim nothing twice and never block each other; a kill costs time only',
  async t => {
    // Every first attempt fails, so that each delivery needs a dispatcher twice.
    const on = await stage(t, {
      redis: true,
      patient: true,
      answer: ({ headers }) => (headers['ackbox-attempt'] === '1' ? 503 : 200)
    })
    if (!on) return
    const { sql, downstream } = on
    const env = { ...on.env, SWEEP_MS: '50' }
    const [service, ...dispatchers] = await Promise.all([
      start(t, { ...env, ROLE: 'api,worker' }),
      ...[1, 2, 3].map(() => start(t, { ...env, ROLE: 'dispatcher' }))
    ])
    const watch = sampler(t, sql)
    const tasks = numbered('due', 600)
    const deliverStartTime = new Date(Date.now() + 3_000).toISOString()
    await eachOf(tasks, taskNo => taken(service.url, taskNo, { deliverStartTime }))
    await downstream.received(200)
    await dispatchers[0]?.kill('SIGKILL')
    await downstream.received(500)
    await dispatchers[1]?.kill('SIGKILL')
    const ends = await eachOf(tasks, taskNo => statusAtLast(service.url, taskNo))
    t.same(new Set(ends), new Set(['HANDLED']))
    t.same(await tally(sql), { HANDLED: 600 })
    t.same(await unaccounted(sql, downstream.requests), [], 'no attempt came twice, none without its claim')
    t.same(await repeated(sql, downstream, 2), [], 'one failure, one success')
    const early = downstream.requests.filter(request => request.at < Date.parse(deliverStartTime))
    t.equal(early.length, 0, 'none came early')
    const { broken, samples } = await watch.end()
    t.same(broken, [])
    t.ok(samples > 3, `looked ${samples} times`)
    // A connection reports its deadlocks to PostgreSQL at the latest when it ends.
    for (const one of [service, dispatchers[2]]) await one?.kill('SIGTERM')
    await until('their connections have ended', async () => {
      const left = await sql`
        select from pg_stat_activity
        where datname = current_database() and backend_type = 'client backend' and application_name <> 'ackbox test'`
      return left.length === 0
    })
    t.match(await sql`select deadlocks from pg_stat_database where datname = current_database()`, [
      { deadlocks: 0 }
    ])
  }
)
