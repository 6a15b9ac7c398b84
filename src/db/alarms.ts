import { isAnyOf, plainArray, textArray } from './arrays.ts'
import type { Sql } from './pool.ts'
import type { alarm, task } from './schema.ts'
import { lowestUuid } from '../domain/ids.ts'

/** An alarm that no channel has yet. If the process that claimed it dies, another process claims it some seconds later. */
export type ClaimedAlarm = Omit<typeof alarm.$inferSelect, 'sentAt' | 'resolvedAt' | 'nextActionAt'> &
  Pick<typeof task.$inferSelect, 'taskNo' | 'messageCode'> & {
    reason: string | null
    /** Only for KEY_HELD: the key, and the number of deliveries that wait for it, counted up to 10,000. */
    held: { orderingKey: string; waiting: number } | null
  }

/** Alarms that were not handed to the channels yet, oldest first. Other processes cannot claim them until their next try. */
export function claimAlarms(sql: Sql, limit: number): Promise<ClaimedAlarm[]> {
  return sql<ClaimedAlarm[]>`
    with due as materialized (
      select task_id, downstream, attempt, kind
      from alarm
      where sent_at is null and next_action_at <= now()
      order by next_action_at
      limit ${limit}
      for no key update skip locked
    ), claimed as (
      update alarm a set tries = a.tries + 1,
        next_action_at = now() + least(60, 2 * power(2, least(a.tries, 5))) * interval '1 s'
      from due
      where a.task_id = due.task_id and a.downstream = due.downstream and a.attempt = due.attempt and a.kind = due.kind
      returning a.task_id, a.downstream, a.attempt, a.kind, a.created_at, a.tries
    )
    -- What was rejected has neither a task nor a delivery, and says of itself whatever its producer wrote.
    select c.task_id as "taskId", c.downstream, c.attempt, c.kind, c.created_at as "createdAt", c.tries,
      coalesce(t.task_no, left(r.task_no, 200), u.unknown_task_nos[1], '') as "taskNo",
      coalesce(t.message_code, left(r.message_code, 200), u.message_code, '') as "messageCode",
      -- What was blocked, or which certificate was wrong, is said by the attempt.
      case when c.kind = 'FAILED' then d.reason
        when c.kind = 'MISMATCH' then case when u.downstream is not null then 'UNKNOWN' when d.status = 1 then 'MISSING' else 'DIFFERS' end
        else coalesce(x.reason, d.reason, r.problem->>'code', p.last_reason, p.last_answer) end as reason,
      case when c.kind = 'KEY_HELD' then json_build_object('orderingKey', d.ordering_key, 'waiting', (
        select count(*) from (
          select from delivery w
          where w.downstream = d.downstream and w.ordering_key = d.ordering_key and w.position > d.position and w.status = 0
          limit 10000
        ) w
      )) end as held
    from claimed c left join task t on t.id = c.task_id
      left join outbox_rejected r on c.kind = 'REJECTED' and r.id = c.task_id
      left join reconciliation u on c.kind = 'MISMATCH' and t.id is null and u.unknown_alarm = c.task_id
      left join prepared p on c.kind = 'PREPARED_STUCK' and p.task_id = c.task_id
      left join delivery d on d.task_id = c.task_id and d.downstream = c.downstream
      left join attempt x on x.task_id = c.task_id and x.downstream = c.downstream and x.attempt = c.attempt`
}

/** These alarms were reported: by a channel, or only in the log. */
export async function markAlarmsSent(
  sql: Sql,
  alarms: readonly Pick<ClaimedAlarm, 'taskId' | 'downstream' | 'attempt' | 'kind'>[]
): Promise<void> {
  await sql`
    update alarm a set sent_at = now()
    from unnest(
      ${plainArray(alarms.map(alarm => alarm.taskId))}::uuid[], ${textArray(alarms.map(alarm => alarm.downstream))}::text[],
      ${plainArray(alarms.map(alarm => alarm.attempt))}::int[], ${textArray(alarms.map(alarm => alarm.kind))}::text[]
    ) as s (task_id, downstream, attempt, kind)
    where a.task_id = s.task_id and a.downstream = s.downstream and a.attempt = s.attempt and a.kind = s.kind`
}

/**
 * No handler here knows these deliveries any more. Raises one open alarm for each, and returns the ms until its next look,
 * in the given order: from 60 s, doubling with the age of the alarm, to 1 h.
 */
export async function raiseNoHandler(
  sql: Sql,
  deliveries: readonly { taskId: string; downstream: string; attempt: number }[]
): Promise<number[]> {
  const rows = await sql<{ ord: number; age_ms: number | null }[]>`
    with asked as (
      select * from unnest(
        ${plainArray(deliveries.map(one => one.taskId))}::uuid[], ${textArray(deliveries.map(one => one.downstream))}::text[],
        ${plainArray(deliveries.map(one => one.attempt))}::int[]
      ) with ordinality as a (task_id, downstream, attempt, ord)
    ), open as (
      select asked.ord, min(alarm.created_at) as since
      from asked join alarm on alarm.task_id = asked.task_id and alarm.downstream = asked.downstream
        and alarm.kind = 'NO_HANDLER' and alarm.resolved_at is null
      group by asked.ord
    ), raised as (
      insert into alarm (task_id, downstream, attempt, kind)
      select a.task_id, a.downstream, a.attempt, 'NO_HANDLER'
      from asked a join delivery d on d.task_id = a.task_id and d.downstream = a.downstream
      where a.ord not in (select ord from open)
        -- One that somebody with a handler has sent meanwhile has resolved its alarm, and would never do so again.
        and d.attempt = a.attempt and d.phase is not null
      on conflict (task_id, downstream, attempt, kind) do update
        set resolved_at = null, sent_at = null, tries = 0, next_action_at = now(), created_at = now()
        where alarm.resolved_at is not null
    )
    select asked.ord::int, extract(epoch from now() - open.since)::float8 * 1000 as age_ms
    from asked left join open on open.ord = asked.ord
    order by asked.ord`
  return rows.map(row => Math.min(3_600_000, Math.max(60_000, row.age_ms ?? 0)))
}

/** Open alarms are sorted by it. */
export type AlarmKey = Pick<ClaimedAlarm, 'taskId' | 'downstream' | 'attempt' | 'kind'>

/**
 * Reads the next `limit` open alarms after `after`, and resolves those whose cause is over. `next` null: there are no more. A statement
 * that ends a cause resolves its alarms too, but does not see an alarm that another statement raises at that moment. FAILED, KEY_HELD,
 * REJECTED and MISMATCH need no sweep: FAILED is raised by the end itself, the others under a lock or a lease.
 */
export async function sweepAlarms(
  sql: Sql,
  limit: number,
  after: AlarmKey | null
): Promise<{ resolved: number; next: AlarmKey | null }> {
  const [row] = await sql<[{ resolved: number; looked: number; last: AlarmKey | null }]>`
    with looked as materialized (
      select task_id, downstream, attempt, kind from alarm
      where resolved_at is null and kind <> 'FAILED' and (task_id, downstream, attempt, kind) > (
        ${after?.taskId ?? lowestUuid}::uuid, ${after?.downstream ?? ''}::text, ${after?.attempt ?? -1}::int, ${after?.kind ?? ''}::text
      )
      order by task_id, downstream, attempt, kind
      limit ${limit}
    ), over as materialized (
      select l.*
      from looked l left join lateral (
        select status, phase from delivery where task_id = l.task_id and downstream = l.downstream offset 0
      ) d on true
      where case
        when l.kind in ('NO_HANDLER', 'BLOCKED_TARGET', 'TLS') then d.status in (1, -1)
        when l.kind = 'DEPENDENCY_FAILED' then d.phase is distinct from 'BLOCKED'
          or not exists (select from dependency where task_id = l.task_id and done_at is null)
        when l.kind = 'PREPARED_STUCK' then
          not exists (select from prepared where task_id = l.task_id and next_action_at is not null)
      end
    ), resolved as (
      update alarm a set resolved_at = now()
      from over o
      where a.task_id = o.task_id and a.downstream = o.downstream and a.attempt = o.attempt and a.kind = o.kind
        and a.resolved_at is null
      returning 1
    )
    select (select count(*) from resolved)::int as resolved, (select count(*) from looked)::int as looked, (
      select json_build_object('taskId', task_id, 'downstream', downstream, 'attempt', attempt, 'kind', kind)
      from looked order by task_id desc, downstream desc, attempt desc, kind desc limit 1
    ) as last`
  return { resolved: row.resolved, next: row.looked < limit ? null : row.last }
}

/** An operator has dealt with the alarm. False: it was already resolved. null: there is no such alarm that the caller may change. */
export async function resolveAlarm(
  sql: Sql,
  request: Pick<ClaimedAlarm, 'taskNo' | 'downstream' | 'attempt' | 'kind'> & {
    who: string
    messageCodes: readonly string[] | null
  }
): Promise<boolean | null> {
  const [row] = await sql<[{ known: boolean; resolved: boolean }]>`
    with known as (
      select a.* from task t join alarm a on a.task_id = t.id
      where t.task_no = ${request.taskNo} and a.downstream = ${request.downstream} and a.attempt = ${request.attempt}
        and a.kind = ${request.kind} and ${isAnyOf(sql, request.messageCodes, 't.message_code')}
    ), resolved as (
      update alarm a set resolved_at = now() from known k
      where a.task_id = k.task_id and a.downstream = k.downstream and a.attempt = k.attempt and a.kind = k.kind
        and a.resolved_at is null
      returning a.kind
    ), told as (
      insert into audit (who, what, target, detail)
      select ${request.who}, 'alarm.resolve', ${request.taskNo},
        jsonb_build_object('downstream', ${request.downstream}::text, 'kind', kind) from resolved
    )
    select exists (select from known) as known, exists (select from resolved) as resolved`
  return row.known ? row.resolved : null
}
