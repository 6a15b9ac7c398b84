// RETENTION_DAYS on a database that has been in use for long.
import t from 'tap'
import type { Sql } from '../../src/db/pool.ts'
import { call, settled, start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(600_000)

const statusNumber = { HANDLED: 1, FAILED: 2, DELETED: -1, SENDING: 0 } as const

/** Tasks as they would lie there if they had been posted `days` ago, each with an attempt, a receipt and an alarm. */
async function age(
  sql: Sql,
  { name, n, days, status }: { name: string; n: number; days: number; status: keyof typeof statusNumber }
): Promise<void> {
  const number = statusNumber[status]
  await sql`
    with made as (
      select i, now() - ${days}::int * interval '1 day' as at,
        -- uuid v7 begins with its time
        (lpad(to_hex((extract(epoch from now() - ${days}::int * interval '1 day') * 1000)::bigint), 12, '0')
          || '7' || substr(md5(${name}::text || i), 1, 3) || '8' || substr(md5(i || ${name}::text), 1, 15))::uuid as id
      from generate_series(1, ${n}::int) as i
    ), tasks as (
      insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_at, created_by)
      select id, ${name}::text || '-' || i, 'test.plain', '', '{"n":1}', 'x', at, 'test' from made
    ), attempts as (
      insert into attempt (task_id, downstream, attempt, outcome, ms, node, started_at)
      select id, 'plain', 1, 'delivered', 1, 'old', at from made
    ), receipts as (
      insert into receipt (task_id, downstream, attempt, result, applied, created_at)
      select id, 'plain', 1, 'HANDLED', true, at from made
    ), alarms as (
      insert into alarm (task_id, downstream, attempt, kind, created_at, sent_at)
      select id, 'plain', 1, 'FAILED', at, at from made
    )
    insert into delivery (task_id, downstream, status, phase, next_action_at, attempt, tries_left, needs_receipt,
      reason, handled_at, handled_by, created_at, updated_at, round_at)
    select id, 'plain', ${number}::int, case when ${number}::int = 0 then 'WAITING' end,
      case when ${number}::int = 0 then now() + interval '2 s' end, 1, 9, false,
      case ${number}::int when 2 then 'SEND_EXHAUSTED' when -1 then 'DELETED' end,
      case when ${number}::int = 1 then at end, case when ${number}::int = 1 then 'send' end, at, at,
      -- Its first attempt was yesterday: the receivers do not forget it yet.
      now() - interval '1 day'
    from made`
}

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
    const service = await start(t, { ...on.env, RETENTION_DAYS: '7' })

    const left = async (): Promise<number> => (await sql`select from task`).length
    await until('the old ones are gone', async () => (await left()) === 40)
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
