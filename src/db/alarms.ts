import { isAnyOf, plainArray, textArray } from './arrays.ts'
import { actor } from './audit.ts'
import { isLive } from './owners.ts'
import type { Sql } from './pool.ts'
import type { alarm, task } from './schema.ts'
import { lowestUuid } from '../domain/ids.ts'
import type { Actor } from '../domain/types.ts'

/** Why an alarm was raised, as an expression over `alarm`, `delivery`, `outbox_rejected`, `reconciliation` and `prepared`. */
export const alarmReason = `case
  when alarm.kind = 'FAILED' then delivery.reason
  when alarm.kind = 'MISMATCH' then
    case when reconciliation.downstream is not null then 'UNKNOWN' when delivery.status = 1 then 'MISSING' else 'DIFFERS' end
  else coalesce(
    alarm.reason,
    (select x.reason from attempt x
      where x.task_id = alarm.task_id and x.downstream = alarm.downstream and x.attempt = alarm.attempt),
    delivery.reason, outbox_rejected.problem->>'code', prepared.last_reason, prepared.last_answer) end`

/** The end of an insert: an alarm that was resolved is raised anew, an open one stays as it is. `only`: a further condition. */
export const raiseAgain = (sql: Sql, only = sql``) => sql`
      on conflict (task_id, downstream, attempt, kind) do update
        set resolved_at = null, sent_at = null, tries = 0, next_action_at = now(), created_at = now(), reason = excluded.reason
        where alarm.resolved_at is not null${only}`

/**
 * The CTE `resolved` for the successes in the CTE `moved`. It looks for an alarm only after a second try or a minute. Unlike applyMoves it
 * leaves the alarm of a younger first try to `sweepAlarms`.
 */
export const resolvedCte = (sql: Sql) => sql`resolved as (
      update alarm a set resolved_at = now()
      from moved m
      where (m.attempt > 1 or m.created_at < now() - interval '1 minute')
        and a.task_id = m.task_id and a.downstream = m.downstream and a.resolved_at is null
    )`

/** An alarm that no channel has yet. If the process that claimed it dies, another process claims it some seconds later. */
export type ClaimedAlarm = Omit<typeof alarm.$inferSelect, 'sentAt' | 'resolvedAt' | 'nextActionAt'> &
  Pick<typeof task.$inferSelect, 'taskNo' | 'messageCode'> & {
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
      returning a.task_id, a.downstream, a.attempt, a.kind, a.reason, a.created_at, a.tries
    )
    -- A rejected row has no task. Its values are those of its producer.
    select alarm.task_id as "taskId", alarm.downstream, alarm.attempt, alarm.kind, alarm.created_at as "createdAt", alarm.tries,
      coalesce(t.task_no, left(outbox_rejected.task_no, 200), reconciliation.unknown_task_nos[1], '') as "taskNo",
      coalesce(t.message_code, left(outbox_rejected.message_code, 200), reconciliation.message_code, '') as "messageCode",
      ${sql.unsafe(alarmReason)} as reason,
      case when alarm.kind = 'KEY_HELD' then json_build_object('orderingKey', delivery.ordering_key, 'waiting', (
        select count(*) from (
          select from delivery w
          where w.downstream = delivery.downstream and w.ordering_key = delivery.ordering_key and w.position > delivery.position and w.status = 0
          limit 10000
        ) w
      )) end as held
    from claimed alarm left join task t on t.id = alarm.task_id
      left join outbox_rejected on alarm.kind = 'REJECTED' and outbox_rejected.id = alarm.task_id
      left join reconciliation on alarm.kind = 'MISMATCH' and t.id is null and reconciliation.unknown_alarm = alarm.task_id
      left join prepared on alarm.kind = 'PREPARED_STUCK' and prepared.task_id = alarm.task_id
      left join delivery on delivery.task_id = alarm.task_id and delivery.downstream = alarm.downstream`
}

/** No channel takes these alarms: they are only in the log. */
export async function markLogged(
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

/** The wait for a delivery that other processes have a handler for, as in a rolling deploy. */
const elsewhereMs = 5_000

/** `afterMs`: until the next look. `isElsewhere`: other processes have a handler for it, and no new alarm is raised. */
export interface NoHandler {
  afterMs: number
  isElsewhere: boolean
}

/**
 * This process has no handler for these deliveries. Raises one open alarm for each, except where a live worker that has not left
 * the downstream and a live dispatcher have a handler. Without an exception `afterMs` is 60 s first, and doubles with the age of
 * the alarm to 1 h. The result has the order of the deliveries.
 */
export async function raiseNoHandler(
  sql: Sql,
  deliveries: readonly { taskId: string; downstream: string; attempt: number }[]
): Promise<NoHandler[]> {
  const rows = await sql<{ is_elsewhere: boolean; age_ms: number | null }[]>`
    with has_handler as materialized (
      select unnest(handles) as entry, roles,
        array(select y->>'downstream' from jsonb_array_elements(yielded) y
          where (y->>'until')::timestamptz > now() and not coalesce((y->>'isDoubt')::boolean, false)) as yielded
      from node where ${sql.unsafe(isLive)}
    ), known as (
      select u.*, t.message_code || ' ' || u.downstream in (
          select entry from has_handler where roles like '%worker%' and split_part(entry, ' ', 2) <> all(yielded)
        ) and t.message_code || ' ' || u.downstream in (select entry from has_handler where roles like '%dispatcher%') as is_elsewhere
      from unnest(
        ${plainArray(deliveries.map(one => one.taskId))}::uuid[], ${textArray(deliveries.map(one => one.downstream))}::text[],
        ${plainArray(deliveries.map(one => one.attempt))}::int[]
      ) with ordinality as u (task_id, downstream, attempt, ord) left join task t on t.id = u.task_id
    ), open as (
      select known.ord, min(alarm.created_at) as since
      from known join alarm on alarm.task_id = known.task_id and alarm.downstream = known.downstream
        and alarm.kind = 'NO_HANDLER' and alarm.resolved_at is null
      group by known.ord
    ), raised as (
      insert into alarm (task_id, downstream, attempt, kind)
      select a.task_id, a.downstream, a.attempt, 'NO_HANDLER'
      from known a join delivery d on d.task_id = a.task_id and d.downstream = a.downstream
      where a.is_elsewhere is not true and a.ord not in (select ord from open)
        -- Another process may have sent it since. That resolved its alarm, so a new alarm would never be resolved.
        and d.attempt = a.attempt and d.phase is not null
      ${raiseAgain(sql)}
    )
    select coalesce(known.is_elsewhere, false) as is_elsewhere, extract(epoch from now() - open.since)::float8 * 1000 as age_ms
    from known left join open on open.ord = known.ord
    order by known.ord`
  return rows.map(({ is_elsewhere: isElsewhere, age_ms }) => ({
    isElsewhere,
    afterMs: isElsewhere ? elsewhereMs : Math.min(3_600_000, Math.max(60_000, age_ms ?? 0))
  }))
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
    who: Actor
    messageCodes: readonly string[] | null
  }
): Promise<boolean | null> {
  const [row] = await sql<[{ known: boolean; resolved: boolean }]>`
    with known as (
      select a.* from task t join alarm a on a.task_id = t.id
      where t.task_no = ${request.taskNo} and a.downstream = ${request.downstream} and a.attempt = ${request.attempt}
        and a.kind = ${request.kind} and ${isAnyOf(sql, request.messageCodes, 't.message_code')}
      union
      -- The alarm about unknown tasks of a reconciliation has no task. The list shows the first of them.
      select a.* from reconciliation r join alarm a on a.task_id = r.unknown_alarm
      where r.unknown_task_nos[1] = ${request.taskNo} and a.downstream = ${request.downstream} and a.attempt = ${request.attempt}
        and a.kind = 'MISMATCH' and a.kind = ${request.kind} and ${isAnyOf(sql, request.messageCodes, 'r.message_code')}
    ), resolved as (
      update alarm a set resolved_at = now() from known k
      where a.task_id = k.task_id and a.downstream = k.downstream and a.attempt = k.attempt and a.kind = k.kind
        and a.resolved_at is null
      returning a.kind
    ), audited as (
      insert into audit (who, key_id, what, target, detail)
      select ${actor(sql, request.who)}, 'alarm.resolve', ${request.taskNo},
        jsonb_build_object('downstream', ${request.downstream}::text, 'kind', kind) from resolved
    )
    select exists (select from known) as known, exists (select from resolved) as resolved`
  return row.known ? row.resolved : null
}
