// The alarms that each channel must still get. Channels are independent: a broken channel keeps only its own rows.
import { lowestUuid } from '../domain/ids.ts'
import type { AlarmKind } from '../domain/types.ts'
import type { ClaimedAlarm } from './alarms.ts'
import { plainArray, textArray } from './arrays.ts'
import type { Sql } from './pool.ts'

export interface AlarmGroup {
  channel: string
  downstream: string
  kind: AlarmKind
  tries: number
  /** raised: some alarms were not sent yet. repeat: no alarm is new, and the group is still open. */
  event: 'raised' | 'repeat' | 'resolved'
  openedAt: Date | null
  /** For `repeat`: alarms that were sent and are open, counted up to 10,000. */
  open: number
}

export interface AlarmSend {
  taskId: string
  attempt: number
  taskNo: string
  messageCode: string
  reason: string | null
  raisedAt: Date
}

/** Records which channel must get which alarm, and updates the alarm. In one statement, so that a crash leaves both or neither. */
export async function addAlarmSends(
  sql: Sql,
  sends: readonly { channel: string; alarm: ClaimedAlarm }[]
): Promise<void> {
  await sql`
    with requested as (
      select * from unnest(
        ${textArray(sends.map(one => one.channel))}::text[], ${textArray(sends.map(one => one.alarm.downstream))}::text[],
        ${plainArray(sends.map(one => one.alarm.kind))}::text[], ${plainArray(sends.map(one => one.alarm.taskId))}::uuid[],
        ${plainArray(sends.map(one => one.alarm.attempt))}::int[], ${textArray(sends.map(one => one.alarm.taskNo))}::text[],
        ${textArray(sends.map(one => one.alarm.messageCode))}::text[], ${textArray(sends.map(one => one.alarm.reason))}::text[],
        ${plainArray(sends.map(one => one.alarm.createdAt.getTime()))}::float8[]
      ) as s (channel, downstream, kind, task_id, attempt, task_no, message_code, reason, raised_ms)
    ), sends as (
      insert into alarm_send (channel, downstream, kind, task_id, attempt, task_no, message_code, reason, raised_at)
      select channel, downstream, kind, task_id, attempt, task_no, message_code, reason, to_timestamp(raised_ms / 1000)
      from requested
      -- It was sent once, was resolved, and is raised again.
      on conflict on constraint alarm_send_pkey do update
        set sent_at = null, reason = excluded.reason, raised_at = excluded.raised_at
    ), channels as (
      insert into alarm_channel (name) select distinct channel from requested order by 1 on conflict do nothing
    ), groups as (
      -- In one order: two dispatchers would wait for each other.
      insert into alarm_group (channel, downstream, kind) select distinct channel, downstream, kind from requested order by 1, 2, 3
      on conflict do nothing
    )
    -- The channels must now send these rows.
    update alarm a set next_action_at = 'infinity'
    from (select distinct task_id, downstream, attempt, kind from requested) s
    where a.task_id = s.task_id and a.downstream = s.downstream and a.attempt = s.attempt and a.kind = s.kind`
}

/**
 * The next group of a channel with a message to send now, if the limit of the channel allows one. Others cannot claim it
 * for `leaseMs`. `repeatMs`: the interval at which an open group is sent again, null for never. `sendResolved` false:
 * repeats and ends are not sent.
 */
export async function claimAlarmGroup(
  sql: Sql,
  channel: string,
  {
    burst,
    everyMs,
    leaseMs,
    repeatMs,
    sendResolved
  }: {
    burst: number
    everyMs: number
    leaseMs: number
    repeatMs: number | null
    sendResolved: boolean
  }
): Promise<AlarmGroup | undefined> {
  const [group] = await sql<[AlarmGroup?]>`
    with free as materialized (
      select name from alarm_channel
      where name = ${channel} and free_at <= now() + ${(burst - 1) * everyMs}::int * interval '1 ms'
      for update skip locked
    ), waiting as (
      select g.*, exists (
          select from alarm_send s
          where s.channel = g.channel and s.downstream = g.downstream and s.kind = g.kind and s.sent_at is null
        ) as has_unsent,
        -- sweepAlarmSends removes the rows of alarms that are resolved.
        g.opened_at is not null and ${sendResolved} and not exists (
          select from alarm_send s where s.channel = g.channel and s.downstream = g.downstream and s.kind = g.kind
        ) as is_over,
        g.opened_at is not null and ${sendResolved} and g.told_at < now() - ${repeatMs}::float8 * interval '1 ms' as is_old
      from alarm_group g, free
      where g.channel = free.name and g.next_action_at <= now()
    ), due as materialized (
      select channel, downstream, kind,
        case when has_unsent then 'raised' when is_over then 'resolved' else 'repeat' end as event
      from waiting
      where has_unsent or is_over or is_old
      order by next_action_at
      limit 1
    ), locked as materialized (
      -- Another dispatcher may have claimed the group at the same moment.
      select g.channel, g.downstream, g.kind, due.event
      from alarm_group g join due using (channel, downstream, kind)
      where g.next_action_at <= now()
      for update of g skip locked
    ), claimed as (
      update alarm_group g set tries = g.tries + 1, next_action_at = now() + ${leaseMs}::int * interval '1 ms'
      from locked l
      where g.channel = l.channel and g.downstream = l.downstream and g.kind = l.kind
      returning g.*, l.event
    ), counted as (
      update alarm_channel c set free_at = greatest(c.free_at, now()) + ${everyMs}::int * interval '1 ms'
      from claimed where c.name = claimed.channel
    )
    select channel, downstream, kind, tries, opened_at as "openedAt", event, (
        select count(*)::int from (
          select from alarm_send s
            join alarm a on a.task_id = s.task_id and a.downstream = s.downstream and a.attempt = s.attempt and a.kind = s.kind
          where event = 'repeat' and s.channel = c.channel and s.downstream = c.downstream and s.kind = c.kind
            and a.resolved_at is null
          limit 10000
        ) still
      ) as open
    from claimed c`
  return group
}

type Group = Pick<AlarmGroup, 'channel' | 'downstream' | 'kind'>

/** The alarms of a group that were not sent yet, oldest first. */
export function readAlarmSends(sql: Sql, group: Group, limit: number): Promise<AlarmSend[]> {
  return sql<AlarmSend[]>`
    select task_id as "taskId", attempt, task_no as "taskNo", message_code as "messageCode", reason, raised_at as "raisedAt"
    from alarm_send
    where channel = ${group.channel} and downstream = ${group.downstream} and kind = ${group.kind} and sent_at is null
    order by raised_at, task_id
    limit ${limit}`
}

/** The channel accepted the message about them. `keep`: keeps the row of each until its alarm is resolved, to detect the end. */
export async function recordSent(
  sql: Sql,
  group: Group,
  sends: readonly Pick<AlarmSend, 'taskId' | 'attempt'>[],
  { keep, digestMs }: { keep: boolean; digestMs: number }
): Promise<void> {
  await sql`
    with sent as materialized (
      select * from unnest(
        ${plainArray(sends.map(one => one.taskId))}::uuid[], ${plainArray(sends.map(one => one.attempt))}::int[]
      ) as s (task_id, attempt)
    ), kept as (
      update alarm_send s set sent_at = now() from sent
      where ${keep} and s.channel = ${group.channel} and s.downstream = ${group.downstream} and s.kind = ${group.kind}
        and s.task_id = sent.task_id and s.attempt = sent.attempt
    ), gone as (
      delete from alarm_send s using sent
      where not ${keep} and s.channel = ${group.channel} and s.downstream = ${group.downstream} and s.kind = ${group.kind}
        and s.task_id = sent.task_id and s.attempt = sent.attempt
    ), alarms as (
      update alarm a set sent_at = now() from sent
      where a.task_id = sent.task_id and a.downstream = ${group.downstream} and a.attempt = sent.attempt
        and a.kind = ${group.kind} and a.sent_at is null
    )
    update alarm_group set tries = 0, told_at = now(), next_action_at = now() + ${digestMs}::int * interval '1 ms',
      opened_at = case when ${keep} then coalesce(opened_at, now()) end
    where channel = ${group.channel} and downstream = ${group.downstream} and kind = ${group.kind}`
}

/** Rows of `alarm_send` are sorted by it. */
export type AlarmSendKey = Group & Pick<AlarmSend, 'taskId' | 'attempt'>

/**
 * Reads the next `limit` rows after `after`, and removes those whose alarm was sent, and is resolved or gone. `next` null: there are no
 * more.
 */
export async function sweepAlarmSends(
  sql: Sql,
  limit: number,
  after: AlarmSendKey | null
): Promise<AlarmSendKey | null> {
  const [row] = await sql<[{ looked: number; last: AlarmSendKey | null }]>`
    with looked as materialized (
      select channel, downstream, kind, task_id, attempt, sent_at from alarm_send
      where (channel, downstream, kind, task_id, attempt) > (
        ${after?.channel ?? ''}::text, ${after?.downstream ?? ''}::text, ${after?.kind ?? ''}::text,
        ${after?.taskId ?? lowestUuid}::uuid, ${after?.attempt ?? -1}::int
      )
      order by channel, downstream, kind, task_id, attempt
      limit ${limit}
    ), over as materialized (
      select s.channel, s.downstream, s.kind, s.task_id, s.attempt
      from looked l join alarm_send s on s.channel = l.channel and s.downstream = l.downstream and s.kind = l.kind
          and s.task_id = l.task_id and s.attempt = l.attempt
        left join alarm a on a.task_id = l.task_id and a.downstream = l.downstream and a.attempt = l.attempt and a.kind = l.kind
      where l.sent_at is not null and (a.task_id is null or a.resolved_at is not null)
        -- An alarm that was raised again is to be sent again.
        and s.sent_at is not null
      for update of s skip locked
    ), gone as (
      delete from alarm_send s using over o
      where s.channel = o.channel and s.downstream = o.downstream and s.kind = o.kind and s.task_id = o.task_id
        and s.attempt = o.attempt
    )
    select (select count(*)::int from looked) as looked, (
      select json_build_object('channel', channel, 'downstream', downstream, 'kind', kind, 'taskId', task_id, 'attempt', attempt)
      from looked order by channel desc, downstream desc, kind desc, task_id desc, attempt desc limit 1
    ) as last`
  return row.looked < limit ? null : row.last
}

/** The channel accepted the message that the incident is over. Alarms that were raised since then are still to be sent. */
export async function closeAlarmGroup(sql: Sql, group: Group, digestMs: number): Promise<void> {
  await sql`
    with gone as (
      delete from alarm_send
      where channel = ${group.channel} and downstream = ${group.downstream} and kind = ${group.kind} and sent_at is not null
    )
    update alarm_group set tries = 0, opened_at = null, told_at = now(),
      next_action_at = now() + ${digestMs}::int * interval '1 ms'
    where channel = ${group.channel} and downstream = ${group.downstream} and kind = ${group.kind}`
}

/** The channel did not accept the message: the next try is after `againMs`. `holdMs`: the channel gets no message until then. */
export async function postponeAlarmGroup(
  sql: Sql,
  group: Group,
  { againMs, holdMs, burst, everyMs }: { againMs: number; holdMs: number; burst: number; everyMs: number }
): Promise<void> {
  await sql`
    with held as (
      update alarm_channel
      set free_at = greatest(free_at, now() + ${holdMs + (burst - 1) * everyMs}::int * interval '1 ms')
      where ${holdMs > 0} and name = ${group.channel}
    )
    update alarm_group set next_action_at = now() + ${againMs}::int * interval '1 ms'
    where channel = ${group.channel} and downstream = ${group.downstream} and kind = ${group.kind}`
}

/**
 * Removes up to `limit` rows of channels other than these. Alarms that no channel has sent are handed out again: `released` is their
 * number.
 */
export async function removeUnknownChannels(
  sql: Sql,
  channels: readonly string[],
  limit: number
): Promise<{ released: number; isMore: boolean }> {
  const [row] = await sql<[{ released: number; removed: number }]>`
    with recursive used as (
      (select channel from alarm_send order by channel limit 1)
      union all
      -- The next channel: one look at the index for each.
      select (select s.channel from alarm_send s where s.channel > used.channel order by s.channel limit 1)
      from used where used.channel is not null
    ), unknown as materialized (
      select name from (
        select channel as name from used union select channel from alarm_group union select name from alarm_channel
      ) all_channels
      where name <> all(${textArray(channels)}::text[])
    ), step as materialized (
      select s.channel, s.downstream, s.kind, s.task_id, s.attempt
      from unknown u join alarm_send s on s.channel = u.name
      limit ${limit}
    ), gone as (
      delete from alarm_send s using step
      where s.channel = step.channel and s.downstream = step.downstream and s.kind = step.kind and s.task_id = step.task_id
        and s.attempt = step.attempt
      returning s.task_id, s.downstream, s.attempt, s.kind
    ), groups as (
      delete from alarm_group where channel in (select name from unknown) and (select count(*) from step) < ${limit}
    ), limits as (
      delete from alarm_channel where name in (select name from unknown) and (select count(*) from step) < ${limit}
    ), released as (
      update alarm a set next_action_at = now() from (select distinct * from gone) g
      where a.task_id = g.task_id and a.downstream = g.downstream and a.attempt = g.attempt and a.kind = g.kind
        and a.sent_at is null
      returning 1
    )
    select (select count(*)::int from released) as released, (select count(*)::int from step) as removed`
  return { released: row.released, isMore: row.removed === limit }
}
