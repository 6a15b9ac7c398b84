// PostgreSQL cannot be written: the producer gets 503 in time, and the same process recovers by itself.
import t, { type Test } from 'tap'
import { ownPostgres } from '../support/own-postgres.ts'
import { broken } from '../support/sampler.ts'
import { call, eachOf, postUntilTaken, start } from '../support/service.ts'
import { numbered, stage, statusAtLast, tally } from '../support/stage.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

const taskOf = (taskNo: string): object => ({ taskNo, messageCode: 'test.plain', messageBody: { n: 1 } })

/** Each of these POSTs must be answered with 503 and Retry-After, within about 2 s. */
async function refusesAll(t: Test, url: string, taskNos: string[]): Promise<void> {
  const heard = await eachOf(taskNos, async taskNo => {
    const began = stopwatch(t)
    const answer = await fetch(`${url}/tasks`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(taskOf(taskNo))
    })
    await answer.arrayBuffer()
    const ms = began()
    return { status: answer.status, comesBack: Number(answer.headers.get('retry-after')) >= 1, ms }
  })
  t.same(new Set(heard.map(one => one.status)), new Set([503]), 'never 2xx')
  t.ok(
    heard.every(one => one.comesBack),
    'it says when to come back'
  )
  const slowest = Math.max(...heard.map(one => one.ms))
  t.ok(slowest < 6_000, `within about 2 s: ${slowest.toFixed(0)} ms at most`)
  t.equal((await call(`${url}/healthz`)).status, 200, 'the process lives')
}

t.test('read-only, every seat taken, stopped at once, killed: 503 in time, and back by itself', async t => {
  const on = await stage(t, { patient: true })
  if (!on) return
  const postgres = await ownPostgres(t)
  const { sql } = postgres
  const service = await start(t, { ...on.env, DATABASE_URL: postgres.url, PG_POOL: '4' })
  const all: string[] = []

  /** During the outage every POST is refused; after it the same POSTs are accepted. */
  async function through(t: Test, name: string, begin: () => Promise<() => Promise<void>>): Promise<void> {
    const before = numbered(`${name}-before`, 10)
    await eachOf(before, taskNo => postUntilTaken(() => service.url, taskOf(taskNo)))
    const heal = await begin()
    const during = numbered(`${name}-during`, 10)
    await refusesAll(t, service.url, during)
    await heal()
    await eachOf(during, taskNo => postUntilTaken(() => service.url, taskOf(taskNo)))
    all.push(...before, ...during)
    const ends = await eachOf(all, taskNo => statusAtLast(service.url, taskNo))
    t.same(new Set(ends), new Set(['HANDLED']))
    t.same(await tally(sql), { HANDLED: all.length }, 'one row each')
    t.same(await broken(sql), [])
  }

  const readOnly = async (is: 'on' | 'off'): Promise<void> => {
    await sql.unsafe(`alter system set default_transaction_read_only = ${is}`)
    await sql`select pg_reload_conf()`
  }
  await t.test('read-only', t =>
    through(t, 'readonly', async () => {
      await readOnly('on')
      await until('it is read-only', async () => {
        const [row] = await sql`select current_setting('transaction_read_only') as is`
        return row?.['is'] === 'on'
      })
      t.equal((await call(`${service.url}/tasks?limit=1`)).status, 200, 'lists are answered')
      return () => readOnly('off')
    })
  )

  await t.test('every seat of the pool waits for a lock', t =>
    through(t, 'locked', async () => {
      let release = (): void => {}
      const released = new Promise<void>(resolve => {
        release = resolve
      })
      let locking: Promise<unknown> = Promise.resolve()
      await new Promise<void>(held => {
        locking = sql.begin(async locked => {
          await locked`lock table task, delivery in access exclusive mode`
          held()
          await released
        })
      })
      return async () => {
        release()
        await locking
      }
    })
  )

  for (const signal of ['SIGQUIT', 'SIGKILL'] as const) {
    const name = signal === 'SIGQUIT' ? 'an immediate stop' : 'kill -9'
    await t.test(name, t =>
      through(t, signal, async () => {
        await postgres.kill(signal)
        return async () => {
          const reads = await eachOf(numbered('read', 200), () => call(`${service.url}/tasks?limit=1`))
          t.same(new Set(reads.map(one => one.status)), new Set([503]))
          await postgres.start()
        }
      })
    )
  }
  t.same(await service.kill('SIGTERM'), { code: 0, signal: null }, 'the very same process ends politely')
})
