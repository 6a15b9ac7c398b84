// Everything is restarted again and again under load: both processes, Redis and PostgreSQL.
import t from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { ownPostgres } from '../support/own-postgres.ts'
import { sampler, unaccounted } from '../support/sampler.ts'
import { eachOf, postUntilTaken, start, type Process } from '../support/service.ts'
import { stage, statusAtLast, tally } from '../support/stage.ts'

t.setTimeout(2_400_000)

const rounds = 6

t.test('everything is restarted again and again under load, and what was taken arrives', async t => {
  const on = await stage(t, { redis: true, patient: true })
  if (!on?.redis) return
  const { redis, downstream } = on
  const postgres = await ownPostgres(t)
  const ports = [String(await freePort()), String(await freePort())]
  const envOf = (n: number): Record<string, string> => ({
    ...on.env,
    DATABASE_URL: postgres.url,
    SHUTDOWN_MS: '1000',
    PORT: ports[n] ?? ''
  })
  const running: Process[] = await Promise.all([start(t, envOf(0)), start(t, envOf(1))])
  const watch = sampler(t, postgres.sql)
  const taken: string[] = []
  let over = false
  const producers = Array.from({ length: 4 }, async (_, p) => {
    for (let n = 0; !over; n++) {
      const taskNo = `restart-${p}-${n}`
      const messageCode = n % 2 === 0 ? 'test.plain' : 'test.receipt'
      await postUntilTaken(() => running[n % 2]?.url ?? '', { taskNo, messageCode, messageBody: { n } })
      taken.push(taskNo)
      await new Promise(resolve => setTimeout(resolve, 30))
    }
  })
  for (let round = 0; round < rounds; round++) {
    for (const n of [0, 1]) {
      await running[n]?.kill(round % 3 === 2 ? 'SIGTERM' : 'SIGKILL')
      if (n === 0) await redis.kill()
      else await postgres.kill(round % 2 === 0 ? 'SIGQUIT' : 'SIGKILL')
      await (n === 0 ? redis.start() : postgres.start())
      running[n] = await start(t, envOf(n))
    }
  }
  over = true
  await Promise.all(producers)
  const ends = await eachOf(taken, taskNo => statusAtLast(running[0]?.url ?? '', taskNo))
  t.same(new Set(ends), new Set(['HANDLED']))
  t.ok(taken.length > 50, `${taken.length} tasks`)
  t.same(await tally(postgres.sql), { HANDLED: taken.length }, 'one row each, and none from nowhere')
  t.same(
    taken.filter(taskNo => downstream.count(taskNo) === 0),
    [],
    'each has reached its downstream'
  )
  t.same(await unaccounted(postgres.sql, downstream.requests), [])
  const { broken, samples } = await watch.end()
  t.same(broken, [])
  t.ok(samples > 5, `looked ${samples} times`)
  for (const one of running) t.equal((await one.kill('SIGTERM')).code, 0, 'it ends politely')
})
