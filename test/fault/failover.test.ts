// DATABASE_URL with two hosts: the primary is killed under load, its synchronous standby takes over, and no Ackbox process restarts.
// Takes long: npm run test:long.
import t from 'tap'
import { hostUrls } from '../../src/db/hosts.ts'
import { broken } from '../support/sampler.ts'
import { call, start } from '../support/service.ts'
import { stage, statusAtLast, tally } from '../support/stage.ts'
import { primaryAndStandby } from '../support/standby.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

for (const how of ['killed', 'read-only'] as const)
  t.test(`the primary is ${how}: what was answered 201 is HANDLED after its standby took over`, async t => {
    const on = await stage(t)
    if (!on) return
    const pair = await primaryAndStandby(t)
    // Separate processes, so that jobs pass through BullMQ on the same PostgreSQL.
    const env = { ...on.env, DATABASE_URL: pair.url }
    const api = await start(t, { ...env, ROLE: 'api,dispatcher', LOG_LEVEL: 'debug' })
    const worker = await start(t, { ...env, ROLE: 'worker' })

    const accepted: { taskNo: string; at: number; inVain: number }[] = []
    let goOn = true
    let posted = 0
    const producers = Array.from({ length: 8 }, async () => {
      while (goOn) {
        const taskNo = `failover-${posted++}`
        const answer = await call(`${api.url}/tasks`, {
          taskNo,
          messageCode: 'test.plain',
          messageBody: { n: 1 }
        })
        if (answer.status === 201) accepted.push({ taskNo, at: performance.now(), inVain: inVain() })
        else if (answer.status !== 503) throw new Error(JSON.stringify(answer))
      }
    })
    /** The number of failed refreshes: one each second, each of at most 2 s. */
    const inVain = () => api.output().split('"msg":"refresh.failed"').length - 1
    const acceptedSince = (ms: number) => accepted.filter(one => one.at > ms).length
    try {
      await until('tasks flow', () => accepted.length >= 200)
      await pair.losePrimary(how)
      const lostAt = performance.now()
      const sql = await pair.promote()
      const promoted = { at: performance.now(), inVain: inVain() }
      await until('tasks flow again', () => acceptedSince(lostAt) >= 200)
      goOn = false
      await Promise.all(producers)
      const gaps = accepted.slice(1).map((one, i) => one.at - (accepted[i]?.at ?? 0))
      t.comment(`${accepted.length} accepted; the longest time without: ${Math.max(...gaps).toFixed(0)} ms`)
      // Within 10 s, measured in refreshes, since a busy machine changes times: at most three of 3 s each, one of them in progress.
      const first = accepted.find(one => one.at > promoted.at)
      t.comment(`accepted ${((first?.at ?? 0) - promoted.at).toFixed(0)} ms after the promotion`)
      const looks = (first?.inVain ?? Infinity) - promoted.inVain
      t.ok(looks <= 3, `after the promotion it looked ${looks} times in vain`)

      for (const { taskNo } of accepted) t.equal(await statusAtLast(api.url, taskNo), 'HANDLED', taskNo)
      t.ok(((await tally(sql))['HANDLED'] ?? 0) >= accepted.length, 'on the new primary')
      t.same(await broken(sql), [])
      t.match(api.output(), /database\.moved/)
    } finally {
      goOn = false
      await Promise.allSettled(producers)
    }
    t.same(await worker.kill('SIGTERM'), { code: 0, signal: null }, 'the very same processes end politely')
    t.same(await api.kill('SIGTERM'), { code: 0, signal: null })
  })

t.test('a URL with several hosts is one URL for each', async t => {
  t.same(hostUrls('postgres://u:p%40x@a:5432,b/db?target_session_attrs=read-write&sslmode=require'), [
    'postgres://u:p%40x@a:5432/db?sslmode=require',
    'postgres://u:p%40x@b/db?sslmode=require'
  ])
  t.same(hostUrls('postgres://a,b/db?target_session_attrs=any'), ['postgres://a/db', 'postgres://b/db'])
  t.same(hostUrls('postgres://a/db?target_session_attrs=primary'), [
    'postgres://a/db?target_session_attrs=primary'
  ])
  t.same(hostUrls('no URL, at all'), ['no URL, at all'])
})
