// RETENTION_DAYS on a database with old tasks.
import t from 'tap'
import { retention } from '../../src/service/retention.ts'
import { age } from '../support/aged.ts'
import { testDb } from '../support/postgres.ts'
import { idOf, standing } from '../support/rows.ts'
import { call, settled, start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

t.test(
  'old tasks that have ended go, a thousand at a time; what is still to be sent stays, however old',
  async t => {
    const on = await stage(t)
    if (!on) return
    const { sql } = on
    await age(sql, { name: 'handled', n: 2_400, days: 8, status: 'HANDLED' })
    await age(sql, { name: 'failed', n: 50, days: 9, status: 'FAILED' })
    await age(sql, { name: 'deleted', n: 50, days: 30, status: 'DELETED' })
    await age(sql, { name: 'sending', n: 20, days: 100, status: 'SENDING' })
    await age(sql, { name: 'young', n: 20, days: 6, status: 'HANDLED' })
    // A SENDING task that is sent has ended, and the next sweep removes it. The pause prevents that until the old ones are gone.
    await sql`insert into downstream (name, paused_at, paused_by) values ('plain', now(), 'test')`
    const service = await start(t, { ...on.env, RETENTION_DAYS: '7' })

    const left = async (): Promise<number> => (await sql`select from task`).length
    await until('the old ones are gone', async () => (await left()) === 40)
    t.equal((await call(`${service.url}/downstreams/plain/resume`, {})).status, 200)
    let batches: number[] = []
    await until('it has said so of each batch', () => {
      batches = [...service.output().matchAll(/"removed":(\d+)/g)].map(match => Number(match[1]))
      return batches.reduce((sum, removed) => sum + removed, 0) >= 2_500
    })
    t.ok(
      batches.length >= 3 && batches.every(removed => removed <= 1_000),
      `in batches: ${batches.join(', ')}`
    )
    t.equal((await call(`${service.url}/tasks/handled-1`)).status, 404)
    t.match(await call(`${service.url}/tasks/young-1`), { status: 200, body: { status: 'HANDLED' } })
    t.match(
      await settled(service.url, 'sending-1'),
      { body: { status: 'HANDLED' } },
      'a late one still arrives'
    )
    const orphans = await sql`
    select task_id from delivery union select task_id from attempt union select task_id from receipt
    union select task_id from alarm
    except select id from task`
    t.same(orphans, [], 'nothing is left of those that went')
  }
)

t.test('an archive that cannot be written holds up the tasks, and nothing else', async t => {
  const { sql } = await testDb(t)
  await standing(
    sql,
    { state: 'HANDLED', attempt: 1, triesLeft: 0, lost: 0, roundFrom: 1 },
    { taskId: idOf(40) }
  )
  await sql`insert into ordering (downstream, ordering_key, next) values ('warehouse', 'order-1', 7)`
  const events: string[] = []
  const log = { debug() {}, info() {}, warn: (_: object, event: string) => events.push(event), error() {} }
  const turn = retention({
    config: { retentionDays: 30, archiveDir: '/dev/null/archive' },
    sql,
    node: 'a',
    log,
    signal: new AbortController().signal
  })
  t.ok((await turn()) > 1_000, 'it is not repeated at once')
  t.same(events, ['retention.failed'])
  t.equal((await sql`select from task`).length, 1)
  t.equal((await sql`select from ordering`).length, 0)
})

t.test('a day whose drop has to wait again and again is named', async t => {
  const { sql } = await testDb(t)
  await sql.unsafe(`
    alter table attempt detach partition attempt_first;
    alter table attempt attach partition attempt_first for values from (minvalue) to ('${idOf(60)}');
    create or replace function drop_partition(parent text, part text) returns boolean language sql as 'select false'`)
  const warned: unknown[] = []
  const log = { debug() {}, info() {}, warn: (...about: unknown[]) => warned.push(about), error() {} }
  const config = { retentionDays: 30 }
  const turn = retention({ config, sql, node: 'a', log, signal: new AbortController().signal })
  let now = 0
  t.intercept(performance, 'now', { value: () => (now += 2_000) })
  for (let n = 0; n < 60; n++) t.equal(await turn(), 2_000)
  t.same(warned, [
    [{ partition: 'attempt_first', times: 30 }, 'retention.waiting'],
    [{ partition: 'attempt_first', times: 60 }, 'retention.waiting']
  ])
})
