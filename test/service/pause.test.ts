// A downstream is paused at one process and resumed at another.
import t from 'tap'
import { call, eachOf, settled, start, type Answer } from '../support/service.ts'
import { numbered, stage, taken, tally } from '../support/stage.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

const waits = ({ body }: Answer): boolean => {
  const [delivery] = (body?.['deliveries'] ?? []) as { phase?: string }[]
  return delivery?.phase === 'WAITING'
}

t.test('a pause holds in every process and over a restart, and costs no try', async t => {
  const on = await stage(t, { redis: true, patient: true })
  if (!on) return
  const { downstream, sql } = on
  const [first, there] = await Promise.all([start(t, on.env), start(t, on.env)])
  let here = first
  t.equal((await call(`${here.url}/downstreams/nobody/pause`, {})).status, 404, 'only what is there')
  t.match(await call(`${here.url}/downstreams/plain/pause`, {}), { status: 200, body: { paused: true } })

  // A process may learn of the pause a second late. Until then its deliveries are still sent, or handed back.
  let probes = 0
  const began = stopwatch(t)
  await until('the other process has heard of it', async () =>
    waits(await taken(there.url, `probe-${probes++}`))
  )
  t.ok(began() < 10_000, `after ${began()} ms`)
  const tasks = numbered('paused', 60)
  const answers = await eachOf(tasks, taskNo =>
    taken(Number(taskNo.slice(7)) % 2 === 0 ? here.url : there.url, taskNo)
  )
  t.ok(answers.every(waits), 'what is posted meanwhile waits')
  await here.kill('SIGKILL')
  here = await start(t, on.env)
  t.ok(waits(await taken(here.url, 'after-restart')), 'also where a process is new')
  const { body } = await call(`${here.url}/downstreams`)
  const [paused] = (body?.['downstreams'] ?? []) as object[]
  t.match(paused, { name: 'plain', pausedBy: 'local', pausedAt: String })

  // The other downstream handles all its tasks, delayed ones included: a sweep has passed, and the paused one got nothing.
  await eachOf(numbered('other', 20), async taskNo => {
    await taken(there.url, taskNo, { messageCode: 'test.receipt', delay: 200 })
    t.match(await settled(there.url, taskNo), { body: { status: 'HANDLED' } })
  })
  const sent = (): string[] =>
    downstream.requests.filter(one => one.path === '/plain').map(one => String(one.headers['ackbox-task-no']))
  t.same(
    sent().filter(taskNo => !taskNo.startsWith('probe-')),
    [],
    'nothing went to the paused one'
  )

  t.match(await call(`${there.url}/downstreams/plain/resume`, {}), { status: 200, body: { paused: false } })
  const all = [...tasks, 'after-restart', ...numbered('probe', probes)]
  await eachOf(all, taskNo => settled(here.url, taskNo))
  t.same(await tally(sql), { HANDLED: all.length + 20 }, 'then all of it arrives')
  t.equal(new Set(sent()).size, sent().length, 'each once')
  t.same(await sql`select from delivery where tries_left <> 49`, [], 'and no try was burnt')
})
