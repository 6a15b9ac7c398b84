// The clock of a host jumps an hour ahead and back; the other hosts and PostgreSQL keep the right time.
import { existsSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t, { type Test } from 'tap'
import { sampler, unaccounted } from '../support/sampler.ts'
import { eachOf, folder, start } from '../support/service.ts'
import { numbered, repeated, stage, statusAtLast, taken, tally } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

const libraries = ['x86_64', 'aarch64'].map(arch => `/usr/lib/${arch}-linux-gnu/faketime/libfaketime.so.1`)

/** The environment of a process whose wall clock (not its monotonic clock) can be stepped. */
function steppable(t: Test): { env: Record<string, string>; step(offset: string): void } | undefined {
  const library = libraries.find(file => existsSync(file))
  if (library === undefined) {
    const why = 'no libfaketime: apt-get install libfaketime'
    if (process.env['CI'] === 'true') t.fail(why)
    else t.comment(`SKIP ${why}`)
    return undefined
  }
  const file = path.join(folder(t), 'clock')
  const step = (offset: string): void => writeFileSync(file, `${offset}\n`)
  step('+0')
  return {
    step,
    env: {
      LD_PRELOAD: library,
      FAKETIME_TIMESTAMP_FILE: file,
      FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1'
    }
  }
}

t.test('steps of an hour change nothing: nothing early, nothing twice, every receipt taken', async t => {
  const clock = steppable(t)
  const on = await stage(t, {
    redis: true,
    patient: true,
    answer: ({ headers, body }) => (headers['ackbox-attempt'] === '1' && body.includes('1}') ? 503 : 200)
  })
  if (!on || !clock) return
  const { sql, downstream } = on
  const service = await start(t, { ...on.env, ...clock.env })
  const watch = sampler(t, sql)
  const all: string[] = []
  const starts = new Map<string, number>()
  for (const offset of ['+3600', '-3600', '+3600', '+0']) {
    clock.step(offset)
    await until('the process has the new time', async () => {
      const date = (await fetch(`${service.url}/healthz`)).headers.get('date')
      return date !== null && Math.abs(Date.parse(date) - Date.now() - Number(offset) * 1000) < 30_000
    })
    const tasks = numbered(`step${all.length}`, 40)
    await eachOf(tasks, async taskNo => {
      const n = Number(taskNo.split('-')[1])
      const start = Date.now() + (n % 4 === 0 ? 1_500 : 0)
      if (n % 4 === 0) starts.set(taskNo, start)
      await taken(service.url, taskNo, {
        messageCode: n % 2 === 0 ? 'test.plain' : 'test.receipt',
        messageBody: { n },
        ...(n % 4 === 0 ? { deliverStartTime: new Date(start).toISOString() } : {})
      })
    })
    all.push(...tasks)
    // The next step happens while these are in flight.
    await until(
      'half of them are on their way',
      () => tasks.filter(taskNo => downstream.count(taskNo) > 0).length > 20
    )
  }
  const ends = await eachOf(all, taskNo => statusAtLast(service.url, taskNo))
  t.same(new Set(ends), new Set(['HANDLED']))
  t.same(await tally(sql), { HANDLED: all.length })
  const early = downstream.requests.filter(
    ({ headers, at }) => at < (starts.get(String(headers['ackbox-task-no'])) ?? 0)
  )
  t.equal(early.length, 0, 'by the clock of PostgreSQL none came early')
  const refused = downstream.requests.filter(
    ({ headers, at }) => Math.abs(Number(headers['webhook-timestamp']) * 1_000 - at) > 300_000
  )
  t.equal(refused.length, 0, 'a receiver that checks signatures takes each')
  t.same(await unaccounted(sql, downstream.requests), [])
  const failed = all.filter(taskNo => taskNo.endsWith('1'))
  const twice = await repeated(sql, downstream)
  t.same(
    twice.filter(taskNo => !failed.includes(taskNo)),
    [],
    'only what had failed came again'
  )
  t.same((await watch.end()).broken, [])
})
