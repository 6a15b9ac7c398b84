// Workers are missing, or blocked beyond their lease: no try is used up, nothing is sent late.
// Takes long: npm run test:long.
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { broken, unaccounted } from '../support/sampler.ts'
import { call, eachOf, folder, postUntilTaken, start } from '../support/service.ts'
import { numbered, post, stage, statusAtLast, taken, tally } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)
t.jobs = 2

t.test(
  'no worker for several leases makes nothing FAILED, not even with one try',
  { buffered: true },
  async t => {
    const on = await stage(t, { redis: true, patient: true })
    if (!on) return
    const { sql, downstream } = on
    const api = await start(t, { ...on.env, ROLE: 'api,dispatcher' })
    // Only a few: jobs without a worker fill the window of their queue, and then the rest waits in PostgreSQL.
    const tasks = numbered('alone', 10)
    await eachOf(tasks, taskNo => taken(api.url, taskNo, { retryTimes: 1 }))
    await until('four leases have run out', async () => {
      const [row] = await sql`select min(attempt) as least from delivery`
      return Number(row?.['least']) > 4
    })
    t.same(await broken(sql), [])
    t.match(await tally(sql), { FAILED: undefined, HANDLED: undefined })
    await start(t, { ...on.env, ROLE: 'worker' })
    const ends = await eachOf(tasks, taskNo => statusAtLast(api.url, taskNo))
    t.same(new Set(ends), new Set(['HANDLED']))
    t.same(await unaccounted(sql, downstream.requests), [])
    t.equal(downstream.requests.length, 10, 'each was delivered once')
  }
)

t.test(
  'a handler that blocks its process beyond the lease: another sends, and the late one does not',
  { buffered: true },
  async t => {
    const on = await stage(t, { redis: true })
    if (!on) return
    const { sql, downstream } = on
    const env = { ...on.env, HANDLERS_DIR: path.resolve(import.meta.dirname, '../support/blocking') }
    const released = path.join(folder(t), 'released')
    const blocked = await start(t, { ...env, TEST_BLOCK_UNTIL: released })
    t.equal((await post(blocked.url, 'blocker', { messageBody: { n: 0 }, retryTimes: 1 })).status, 201)
    // For this process the file exists.
    const other = await start(t, { ...env, TEST_BLOCK_UNTIL: import.meta.filename })
    await downstream.received(1)
    // An attempt that starts with too little of its lease left is released, uncounted.
    t.ok(Number(downstream.requests[0]?.headers['ackbox-attempt']) >= 2, 'by a later attempt')
    t.equal(await statusAtLast(other.url, 'blocker'), 'HANDLED')
    writeFileSync(released, '')
    // It is answered once the event loop runs again.
    t.equal((await call(`${blocked.url}/healthz`)).status, 200, 'the first process lives')
    const after = numbered('after', 40)
    // At first it may treat PostgreSQL as away: a connection that it was opening timed out meanwhile.
    const answers = await eachOf(after, taskNo =>
      postUntilTaken(() => blocked.url, { taskNo, messageCode: 'test.plain', messageBody: { n: 1 } })
    )
    t.same(
      answers.filter(one => one.status > 201),
      []
    )
    await eachOf(after, taskNo => statusAtLast(blocked.url, taskNo))
    t.same(await tally(sql), { HANDLED: 41 })
    t.equal(downstream.count('blocker'), 1, 'and never sent what was not its own any more')
    t.same(await unaccounted(sql, downstream.requests), [])
  }
)
