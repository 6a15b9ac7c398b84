// Processes die or freeze while they own deliveries: others send these again long before their leases of more than a minute end.
// Takes long: npm run test:long.
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import t, { type Test } from 'tap'
import { blackHole } from '../support/blackhole.ts'
import { unaccounted } from '../support/sampler.ts'
import { eachOf, folder, start, type Process } from '../support/service.ts'
import { numbered, stage, statusAtLast, taken, tally, type Stage } from '../support/stage.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

/**
 * A delivery is taken back within 4 s of the last beat, and nothing is in front of the few here. A busy machine needs longer. The leases
 * here end after 70 s.
 */
const soonMs = 8_000
/** The dispatcher that finds a silent process begins anew if its own beats have a gap: it then waits for 4 s. */
const silentMs = soonMs + 4_000

/** A stage with timeouts of 60 s. Its downstream answers first attempts only after `open`, and all later attempts at once. */
async function patience(t: Test, { redis = false } = {}) {
  let open = (): void => {}
  const opened = new Promise<void>(resolve => {
    open = resolve
  })
  const on = (await stage(t, {
    redis,
    answer: async ({ headers }) => {
      if (headers['ackbox-attempt'] === '1') await opened
      return 200
    }
  })) as Stage
  const handlers = folder(t)
  writeFileSync(
    path.join(handlers, 'plain.mjs'),
    `import { defineHandler, z } from 'ackbox/handler'
export default defineHandler({
  messageCode: 'test.plain',
  body: z.unknown(),
  downstreams: {
    plain: {
      transport: 'http',
      request: ({ raw }) => ({ url: '${on.downstream.url}/plain', body: raw }),
      limit: { concurrency: 50, timeout: '60s' }
    }
  }
})
`
  )
  const env = { ...on.env, HANDLERS_DIR: handlers, LEASE_MARGIN_MS: '10000' }
  return { ...on, env, open }
}

/** The deliveries that each process owns, by its pid. */
async function owned({ sql }: Pick<Stage, 'sql'>): Promise<Map<number, number>> {
  const rows = await sql<{ pid: string; n: number }[]>`
    select split_part(o.node, '-', -2) as pid, count(*)::int as n
    from delivery d join owner o on o.number = d.owner
    where d.phase = 'IN_FLIGHT'
    group by 1`
  return new Map(rows.map(({ pid, n }) => [Number(pid), n]))
}

const again = ({ downstream }: Pick<Stage, 'downstream'>): number =>
  downstream.requests.filter(({ headers }) => headers['ackbox-attempt'] !== '1').length

t.test(
  'a worker is killed: another one sends what it held within seconds, with timeouts of a minute',
  async t => {
    const on = await patience(t)
    const api = await start(t, { ...on.env, ROLE: 'api,dispatcher' })
    const workers = [
      await start(t, { ...on.env, ROLE: 'worker' }),
      await start(t, { ...on.env, ROLE: 'worker' })
    ]
    const tasks = numbered('worker', 8)
    await eachOf(tasks, taskNo => taken(api.url, taskNo))
    await on.downstream.received(8)
    const held = await owned(on)
    const [busier, other] = workers.toSorted((a, b) => (held.get(b.pid) ?? 0) - (held.get(a.pid) ?? 0)) as [
      Process,
      Process
    ]
    const lost = held.get(busier.pid) ?? 0
    t.ok(lost > 0)
    const since = stopwatch(t)
    await busier.kill('SIGKILL')
    await until('all that it held has come again', () => again(on) >= lost)
    const ms = since()
    t.comment(`${lost} came again ${ms.toFixed(0)} ms after the kill`)
    t.ok(ms < soonMs)
    on.open()
    t.same(new Set(await eachOf(tasks, taskNo => statusAtLast(api.url, taskNo))), new Set(['HANDLED']))
    t.equal(on.downstream.requests.length, 8 + lost, 'what the other one held did not come twice')
    t.same(await unaccounted(on.sql, on.downstream.requests), [])
    t.notMatch(other.output(), /node\.called_dead/)
  }
)

t.test('a worker dies with a job that it has not read yet: another one sends it within seconds', async t => {
  const on = await patience(t)
  on.open()
  const api = await start(t, { ...on.env, ROLE: 'api,dispatcher' })
  const dying = await start(t, { ...on.env, ROLE: 'worker', FAILPOINTS: 'execute.before_read=kill' })
  await start(t, { ...on.env, ROLE: 'worker' })
  const posted: string[] = []
  await until('one of them dies', async () => {
    const taskNo = `unread-${posted.length}`
    await taken(api.url, taskNo)
    posted.push(taskNo)
    return /failpoint/.test(dying.output())
  })
  await dying.exited
  const since = stopwatch(t)
  t.same(new Set(await eachOf(posted, taskNo => statusAtLast(api.url, taskNo))), new Set(['HANDLED']))
  const ms = since()
  t.comment(`all were handled ${ms.toFixed(0)} ms after the death`)
  t.ok(ms < soonMs)
  t.equal(on.downstream.requests.length, posted.length, 'nothing came twice')
  t.equal((await on.sql`select from delivery where lost > 0`).length, 0, 'and it counts as no lost attempt')
})

t.test(
  'the whole of it is killed and started again: all that was on its way is sent within seconds',
  async t => {
    const on = await patience(t)
    const first = await start(t, on.env)
    const tasks = numbered('whole', 12)
    await eachOf(tasks, taskNo => taken(first.url, taskNo))
    await on.downstream.received(tasks.length)
    await first.kill('SIGKILL')
    const second = await start(t, on.env)
    const since = stopwatch(t)
    await until('all have come', () => again(on) >= tasks.length)
    const ms = since()
    t.comment(`they came within ${ms.toFixed(0)} ms of the start`)
    t.ok(ms < soonMs)
    on.open()
    t.same(new Set(await eachOf(tasks, taskNo => statusAtLast(second.url, taskNo))), new Set(['HANDLED']))
    t.same(await unaccounted(on.sql, on.downstream.requests), [])
  }
)

t.test(
  'a process that was frozen and goes on overwrites nothing, sends nothing late, and works again',
  async t => {
    const on = await patience(t)
    const frozen = await start(t, on.env)
    const other = await start(t, { ...on.env, ROLE: 'worker,dispatcher' })
    const tasks = numbered('frozen', 5)
    await eachOf(tasks, taskNo => taken(frozen.url, taskNo))
    await on.downstream.received(5)
    const held = (await owned(on)).get(frozen.pid) ?? 0
    t.ok(held > 0)
    const since = stopwatch(t)
    process.kill(frozen.pid, 'SIGSTOP')
    await until('the other one has declared it dead', () => /node\.died/.test(other.output()))
    await until('what it held has come again', () => again(on) >= held)
    const ms = since()
    t.comment(`${held} came again ${ms.toFixed(0)} ms after the stop`)
    t.ok(ms < silentMs)
    await until('and is HANDLED', async () => (await tally(on.sql))['HANDLED'] === held)
    const before =
      await on.sql`select task_id, attempt, handled_at, updated_at from delivery where status = 1 order by 1`
    // Its requests are answered while it is frozen: it reads the answers when it continues.
    on.open()
    process.kill(frozen.pid, 'SIGCONT')
    await until('it knows', () => /node\.called_dead/.test(frozen.output()))
    await until('it is back', () => /node\.joined/.test(frozen.output()))
    t.same(new Set(await eachOf(tasks, taskNo => statusAtLast(frozen.url, taskNo))), new Set(['HANDLED']))
    const after = await on.sql`
    select task_id, attempt, handled_at, updated_at from delivery
    where task_id = any(${before.map(row => String(row['task_id']))}) order by 1`
    t.same(after, before, 'not one row was written again')
    t.equal(on.downstream.requests.length, 5 + held)
    t.same(await unaccounted(on.sql, on.downstream.requests), [])
    const more = numbered('thawed', 5)
    await eachOf(more, taskNo => taken(frozen.url, taskNo))
    t.same(new Set(await eachOf(more, taskNo => statusAtLast(frozen.url, taskNo))), new Set(['HANDLED']))
  }
)

t.test('PostgreSQL says nothing for longer than a dead process may: nobody is declared dead', async t => {
  const on = await patience(t)
  const { sql } = on
  const way = new URL(on.databaseUrl)
  const hole = await blackHole(t, { host: way.hostname, port: Number(way.port) })
  way.port = String(hole.port)
  const env = { ...on.env, DATABASE_URL: way.href }
  const both = [await start(t, env), await start(t, { ...env, ROLE: 'worker,dispatcher' })]
  const tasks = numbered('stalled', 5)
  await eachOf(tasks, taskNo => taken(both[0]?.url ?? '', taskNo))
  await on.downstream.received(5)
  const numbers = async () =>
    (await sql`select number from owner order by 1`).map(row => row['number'] as number)
  const before = await numbers()
  t.equal(before.length, 2)
  hole.swallow()
  // They close the connection of their heartbeats after the time that a process may be silent.
  await until('no beat was answered for long', () =>
    both.every(one => /heartbeat\.failed/.test(one.output()))
  )
  hole.heal()
  const [row] = await sql<{ now: Date }[]>`select now() as now`
  await until('both have looked for longer than they wait after an outage', async () => {
    const [late] = await sql<{ n: number }[]>`
      select count(*)::int as n from owner where seen_at > ${row?.now.toISOString() ?? ''}::timestamptz + interval '6 s'`
    return late?.n === 2
  })
  t.same(await numbers(), before)
  for (const one of both) t.notMatch(one.output(), /node\.(died|called_dead)/)
  on.open()
  t.same(
    new Set(await eachOf(tasks, taskNo => statusAtLast(both[0]?.url ?? '', taskNo))),
    new Set(['HANDLED'])
  )
  t.equal(on.downstream.requests.length, 5, 'none came twice')
})

t.test('a worker that cannot reach PostgreSQL leaves the jobs in Redis to those that can', async t => {
  const on = await patience(t, { redis: true })
  if (!on) return
  on.open()
  const way = new URL(on.databaseUrl)
  const hole = await blackHole(t, { host: way.hostname, port: Number(way.port) })
  way.port = String(hole.port)
  const api = await start(t, { ...on.env, ROLE: 'api,dispatcher' })
  const [cut] = [
    await start(t, { ...on.env, ROLE: 'worker', DATABASE_URL: way.href }),
    await start(t, { ...on.env, ROLE: 'worker' })
  ]
  hole.refuse()
  await until('it is declared dead', () => /node\.died/.test(api.output()))
  const tasks = numbered('cut', 60)
  const since = stopwatch(t)
  await eachOf(tasks, taskNo => taken(api.url, taskNo, { retryTimes: 1 }))
  t.same(new Set(await eachOf(tasks, taskNo => statusAtLast(api.url, taskNo))), new Set(['HANDLED']))
  const ms = since()
  t.comment(`all were handled after ${ms.toFixed(0)} ms`)
  t.ok(ms < soonMs, 'none waited for its lease')
  t.notMatch(cut.output(), /job\.failed/, 'it took none')
  t.equal((await on.sql`select from delivery where lost > 0`).length, 0)
  t.same(await unaccounted(on.sql, on.downstream.requests), [])
  hole.heal()
})

t.test('the clock of PostgreSQL is set forward: nobody is declared dead', async t => {
  const on = await patience(t)
  const both = [await start(t, on.env), await start(t, on.env)]
  const numbers = async () =>
    (await on.sql`select number from owner order by 1`).map(row => row['number'] as number)
  const before = await numbers()
  t.equal(before.length, 2)
  const [begun] = await on.sql<{ now: Date }[]>`select now() as now`
  const beats = (seconds: number) =>
    until('each has gone on for so long', async () => {
      const [row] = await on.sql<{ n: number }[]>`
        select count(*)::int as n from owner
        where seen_at > ${begun?.now.toISOString() ?? ''}::timestamptz + ${seconds}::int * interval '1 s'`
      return row?.n === 2
    })
  for (let times = 0; times < 8; times++) {
    await beats(3 + times)
    // Until its next heartbeat, each process looks silent.
    await on.sql`update owner set seen_at = seen_at - interval '10 s'`
  }
  await beats(12)
  t.same(await numbers(), before)
  for (const one of both) t.notMatch(one.output(), /node\.(died|called_dead)/)
})
