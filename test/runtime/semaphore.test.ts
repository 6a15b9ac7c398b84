import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { taskRequest } from '../support/task-request.ts'
import { setup } from '../support/setup.ts'
import { until } from '../support/until.ts'

t.test('answers that cannot be written down yet hold up further sends, and none is lost', async t => {
  const { accept, downstream, sql, quiet } = await setup(t, {
    downstream: { limit: { concurrency: 10, timeoutMs: 10_000 } }
  })
  const locked = await sql.reserve()
  await locked`begin`
  await locked`lock table attempt in access exclusive mode`
  await accept.many(Array.from({ length: 1_500 }, () => taskRequest()))
  await until('a thousand are sent', () => downstream.requests.length >= 1_000)
  await sleep(200)
  t.ok(downstream.requests.length <= 1_010, `${downstream.requests.length} were sent meanwhile`)
  await locked`commit`
  locked.release()
  await quiet()
  t.equal(downstream.requests.length, 1_500)
  const [row] = await sql<[{ handled: number }]>`
    select count(*)::int as handled from delivery where status = 1`
  t.equal(row.handled, 1_500)
})
