// REDIS_URL with Sentinels or a cluster: the master is killed under load, and jobs pass through the new master without a restart.
// Takes long: npm run test:long.
import t from 'tap'
import { cluster, sentinels } from '../support/redis-group.ts'
import { broken } from '../support/sampler.ts'
import { call, start } from '../support/service.ts'
import { stage, statusAtLast } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

for (const [name, open] of [
  ['Sentinels', sentinels],
  ['a cluster', cluster]
] as const) {
  t.test(`${name}: the master is killed, nothing accepted is lost, and jobs flow again`, async t => {
    const redis = await open(t)
    if (!redis) return
    const on = await stage(t)
    if (!on) return
    // Separate processes: every delivery has to pass through Redis.
    const env = { ...on.env, REDIS_URL: redis.url }
    const api = await start(t, { ...env, ROLE: 'api,dispatcher' })
    const worker = await start(t, { ...env, ROLE: 'worker' })
    const accepted: string[] = []
    let goOn = true
    const producers = Array.from({ length: 4 }, async (_, producer) => {
      for (let i = 0; goOn; i++) {
        const taskNo = `redis-${producer}-${i}`
        const answer = await call(`${api.url}/tasks`, {
          taskNo,
          messageCode: 'test.plain',
          messageBody: { n: 1 }
        })
        if (answer.status === 201) accepted.push(taskNo)
        else if (answer.status !== 503) throw new Error(JSON.stringify(answer))
      }
    })
    try {
      await until('deliveries arrive', () => on.downstream.requests.length >= 100)
      await redis.killMaster('{ackbox:plain}:wait')
      const before = accepted.length
      await until('tasks are accepted', () => accepted.length >= before + 100)
    } finally {
      goOn = false
      await Promise.all(producers)
    }
    for (const taskNo of accepted)
      if ((await statusAtLast(api.url, taskNo)) !== 'HANDLED') t.fail(`${taskNo} is not HANDLED`)
    t.ok(accepted.length > 200)
    t.same(await broken(on.sql), [])
    t.same(await worker.kill('SIGTERM'), { code: 0, signal: null }, 'the very same processes end politely')
    t.same(await api.kill('SIGTERM'), { code: 0, signal: null })
  })
}
