// The alarm about an outbox that is stuck: REJECTED, with a reason that begins with OUTBOX_STUCK. It has no task.
import type { Sql } from './pool.ts'

/** Raises the alarm, once for all processes. Its id has the time and the id of the oldest row: alarms are sorted by their ids. */
export async function raiseOutboxStuck(sql: Sql, reason: string): Promise<void> {
  await sql`
    insert into alarm (task_id, downstream, attempt, kind, reason)
    select (
        lpad(to_hex((extract(epoch from created_at) * 1000)::bigint), 12, '0') || '70008000' || lpad(to_hex(id), 12, '0')
      )::uuid, '', 0, 'REJECTED', ${`OUTBOX_STUCK: ${reason}`}
    from (select id, created_at from outbox order by id limit 1) oldest
    where not exists (
      select from alarm where kind = 'REJECTED' and reason like 'OUTBOX\\_STUCK%' and resolved_at is null
    )
    on conflict do nothing`
}

export async function resolveOutboxStuck(sql: Sql): Promise<void> {
  await sql`
    update alarm set resolved_at = now()
    where kind = 'REJECTED' and reason like 'OUTBOX\\_STUCK%' and resolved_at is null`
}

/** The reason of the open alarm. */
export async function readOutboxStuck(sql: Sql): Promise<string | undefined> {
  const [row] = await sql<{ reason: string }[]>`
    select reason from alarm
    where kind = 'REJECTED' and reason like 'OUTBOX\\_STUCK%' and resolved_at is null
    limit 1`
  return row?.reason
}
