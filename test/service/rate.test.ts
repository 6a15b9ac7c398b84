// A backlog of a downstream with a low rate and a high concurrency: each delivery must start while enough of its lease is left.
import t from 'tap'
import { call, eachOf, settled, start } from '../support/service.ts'
import { numbered, stage, taken, tally } from '../support/stage.ts'

t.setTimeout(600_000)

t.test('a low rate with a backlog sends at that rate, and uses no tries up', async t => {
  const on = await stage(t)
  if (!on) return
  const { sql, downstream } = on
  const service = await start(t, on.env)
  t.match(await call(`${service.url}/downstreams/plain`, { perSecond: 5 }, 'PATCH'), { status: 200 })
  const tasks = numbered('slow', 60)
  await eachOf(tasks, taskNo => taken(service.url, taskNo))
  await eachOf(tasks, taskNo => settled(service.url, taskNo, 60))
  t.same(await tally(sql), { HANDLED: 60 })
  t.equal(downstream.requests.length, 60, 'each was sent once')
  t.same(await sql`select from delivery where tries_left <> 9`, [], 'none lost a try to a lease that ended')
})
