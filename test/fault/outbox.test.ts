// A process dies at each failpoint while it accepts rows of the outbox, and another one continues.
// Takes long: npm run test:long.
import t from 'tap'
import { fetch } from 'undici'
import type { Failpoint } from '../../src/runtime/failpoint.ts'
import { call, postUntilTaken, settled, start } from '../support/service.ts'
import { numbered, stage, tally } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)
t.jobs = 2

const moments: { name: Failpoint; most: number }[] = [
  { name: 'outbox.after_read', most: 1 },
  { name: 'outbox.before_reject', most: 1 },
  { name: 'outbox.after_reject', most: 1 },
  { name: 'accept.before_commit', most: 1 },
  { name: 'accept.after_commit', most: 1 },
  { name: 'outbox.after_store', most: 2 }
]

for (const { name, most } of moments) {
  t.test(
    `kill -9 at ${name}: each row ends as one task, or as one that was rejected`,
    { buffered: true },
    async t => {
      const on = await stage(t, { patient: true })
      if (!on) return
      const { sql, downstream, env } = on
      const taskNos = numbered('row', 20)
      const died = await start(t, { ...env, FAILPOINTS: `${name}=kill#1` })
      await sql.begin(async tx => {
        await tx`select ackbox_api.enqueue('test.plain', '{"n": "none"}', 'bad')`
        for (const taskNo of taskNos)
          await tx`select ackbox_api.enqueue('test.plain', '{"n": 1}', ${taskNo}, ordering_key => ${taskNo.slice(0, 5)})`
        await tx`select ackbox_api.enqueue('test.plain', '{"n": 1}', 'row-0', ordering_key => 'row-0')`
        await tx`select ackbox_api.enqueue('test.plain', '{"n": 2}', 'row-0', ordering_key => 'row-0')`
      })
      t.strictSame(await died.exited, { code: null, signal: 'SIGKILL' }, 'it died of its own hand')
      const next = await start(t, env)
      await until('nothing waits', async () => (await sql`select from outbox`).count === 0)
      for (const taskNo of taskNos) t.match(await settled(next.url, taskNo), { body: { status: 'HANDLED' } })
      t.same(await tally(sql), { HANDLED: 20 })
      t.same(
        taskNos.filter(taskNo => downstream.count(taskNo) < 1 || downstream.count(taskNo) > most),
        []
      )
      const { body } = await call(`${next.url}/outbox/rejected`)
      const rejected = (body?.['rejected'] ?? []) as { taskNo: string; problem: { code: string } }[]
      t.same(rejected.map(row => `${row.taskNo} ${row.problem.code}`).toSorted(), [
        'bad INVALID',
        'row-0 TASK_CONFLICT'
      ])
      t.match(await sql`select count(*)::int as n from alarm where kind = 'REJECTED'`, [{ n: 2 }])
      t.equal((await next.kill('SIGTERM')).code, 0)
    }
  )
}

t.test(
  'whoever is asked for it brings rows in at once: also a process that only answers requests',
  async t => {
    const on = await stage(t)
    if (!on) return
    const { sql, downstream, env } = on
    const [api, worker] = await Promise.all([
      start(t, { ...env, ROLE: 'api' }),
      start(t, { ...env, ROLE: 'worker' })
    ])
    await sql`select ackbox_api.enqueue('test.plain', '{"n":1}', 'nudged')`
    t.equal(downstream.requests.length, 0, 'nobody here looks by itself')
    t.match(await call(`${api.url}/outbox/nudge`, {}), { status: 202 })
    await downstream.received(1)
    const same = { taskNo: 'nudged', messageCode: 'test.plain', messageBody: { n: 1 } }
    t.match(await postUntilTaken(() => api.url, same), { status: 200 }, 'the same, posted')
    t.match(await call(`${api.url}/tasks`, { ...same, messageBody: { n: 2 } }), { status: 409 })
    for (const one of [api, worker]) t.equal((await one.kill('SIGTERM')).code, 0)
  }
)

t.test('a dispatcher looks by itself, tells how many wait, and stops cleanly', async t => {
  const on = await stage(t)
  if (!on) return
  const { sql, downstream, env } = on
  const one = await start(t, env)
  await sql`select ackbox_api.enqueue('test.plain', '{"n":1}', 'found')`
  await sql`select ackbox_api.enqueue('test.nobody', '{"n":1}', 'unknown')`
  await downstream.received(1)
  await until('its metrics say so', async () => {
    const answer = await fetch(`${one.url}/metrics`)
    const text = await answer.text()
    return /^ackbox_outbox_rejected 1$/m.test(text) && /^ackbox_outbox_waiting 0$/m.test(text)
  })
  t.equal((await one.kill('SIGTERM')).code, 0)
})
