// Old tasks, for tests of retention.
import type { Sql } from '../../src/db/pool.ts'

const statusNumber = { HANDLED: 1, FAILED: 2, DELETED: -1, SENDING: 0 } as const

/** Inserts `n` tasks that look as if they were posted `days` ago, each with an attempt, a receipt and an alarm. */
export async function age(
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
      -- The round began yesterday, so the receivers have not forgotten the task yet.
      now() - interval '1 day'
    from made`
}
