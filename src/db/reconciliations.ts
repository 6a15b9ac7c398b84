// Reconciliations by schedule: the process of a run, its result, and the alarms about it.
import { timeOf } from '../domain/ids.ts'
import { raiseAgain } from './alarms.ts'
import { plainArray, textArray } from './arrays.ts'
import type { Sql } from './pool.ts'

/** A downstream of a handler. */
interface ReconciliationKey {
  messageCode: string
  downstream: string
}

/** A run that this process owns until its lease ends. Tasks of [from, to) are to be compared. */
export interface ClaimedRun extends ReconciliationKey {
  owner: string
  from: Date
  to: Date
  /** The time of the claim, as text: with microseconds. The receiver is asked after it. */
  at: string
  /** Tasks after `to` are older than `settleMs`, too: the next run comes at once. */
  isBehind: boolean
  /** Tasks about which there is an alarm. They are in the window, unless they are a week old. */
  open: ReadonlySet<string>
  /** TaskNos that the downstream had handled at the last run and that were unknown here. */
  unknown: readonly string[]
  /** They are compared again, also if `run` does not return them: the alarm about them is open, and younger than a week. */
  isUnknownOpen: boolean
}

/** Adds the rows that are missing. The first run comes after `everyMs`. */
export async function addReconciliations(
  sql: Sql,
  all: readonly (ReconciliationKey & { everyMs: number })[]
): Promise<void> {
  await sql`
    insert into reconciliation (message_code, downstream, next_at, compared_to)
    select message_code, downstream, now() + every_ms * interval '1 ms', now()
    from unnest(
      ${textArray(all.map(one => one.messageCode))}::text[], ${textArray(all.map(one => one.downstream))}::text[],
      ${plainArray(all.map(one => one.everyMs))}::float8[]
    ) as r (message_code, downstream, every_ms)
    on conflict do nothing`
}

/**
 * Undefined: it is not due, or another process runs it. A window is at most twice `everyMs`, and a sixteenth of it after a run that failed:
 * what was too large for one run is divided.
 */
export async function claimRun(
  sql: Sql,
  { messageCode, downstream }: ReconciliationKey,
  { owner, leaseMs, everyMs, settleMs }: { owner: string; leaseMs: number; everyMs: number; settleMs: number }
): Promise<ClaimedRun | undefined> {
  const [row] = await sql<
    {
      comparedTo: Date
      to: Date
      at: string
      isBehind: boolean
      open: string[]
      unknown: string[]
      isUnknownOpen: boolean
    }[]
  >`
    with claimed as (
      update reconciliation set owner = ${owner}, until = now() + ${leaseMs}::float8 * interval '1 ms'
      where message_code = ${messageCode} and downstream = ${downstream} and next_at <= now()
        and (until is null or until <= now())
      returning compared_to, unknown_task_nos, unknown_alarm, now() - ${settleMs}::float8 * interval '1 ms' as settled,
        compared_to + case when error is null then 2 else 0.0625 end * ${everyMs}::float8 * interval '1 ms' as most
    ), open as (
      select t.id
      from claimed, alarm a join task t on t.id = a.task_id
      where a.kind = 'MISMATCH' and a.downstream = ${downstream} and a.resolved_at is null
        and t.message_code = ${messageCode}
        and a.task_id >= (lpad(to_hex((extract(epoch from now() - interval '7 days') * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
    )
    select compared_to as "comparedTo", coalesce(unknown_task_nos, '{}') as unknown,
      greatest(compared_to, least(settled, most)) as to, settled > most as "isBehind", now()::text as at,
      array(select id::text from open order by id) as open,
      exists (
        select from alarm a
        where a.task_id = claimed.unknown_alarm and a.downstream = ${downstream} and a.kind = 'MISMATCH'
          and a.resolved_at is null and a.created_at > now() - interval '7 days'
      ) as "isUnknownOpen"
    from claimed`
  if (!row) return undefined
  const { comparedTo, to, at, isBehind, open, unknown, isUnknownOpen } = row
  const [oldest] = open
  // By the time in its id, like the window: its `created_at` may be a little later.
  const since = oldest === undefined ? comparedTo : timeOf(oldest)
  const from = since < comparedTo ? since : comparedTo
  return {
    messageCode,
    downstream,
    owner,
    from,
    to,
    at,
    isBehind,
    open: new Set(open),
    unknown,
    isUnknownOpen
  }
}

export interface RunResult {
  /** New alarms: about tasks that the downstream misses, and about tasks that it has handled and that are not HANDLED here. */
  raise: readonly { taskId: string; attempt: number }[]
  /** Tasks with an alarm whose cause is over. */
  resolve: readonly string[]
  missing: number
  differs: number
  unknown: number
  unknownTaskNos: readonly string[]
  /** The id of a new alarm about unknown tasks, if there is none yet. */
  unknownAlarm: string
  /** None of the tasks that were unknown at the last run is unknown still, so that the alarm about them ends. */
  isUnknownNew: boolean
}

/** Writes the result with its alarms, and the time of the next run. False: the lease was lost, and nothing is written. */
export async function writeRun(
  sql: Sql,
  { messageCode, downstream, owner, to }: ClaimedRun,
  everyMs: number,
  found: RunResult
): Promise<boolean> {
  const { raise, resolve, missing, differs, unknown, unknownTaskNos, unknownAlarm, isUnknownNew } = found
  const [row] = await sql<[{ written: boolean }]>`
    with before as materialized (
      select unknown_alarm from reconciliation
      where message_code = ${messageCode} and downstream = ${downstream} and owner = ${owner} and until > now()
      for update
    ), run as (
      update reconciliation r set next_at = now() + ${everyMs}::float8 * interval '1 ms', owner = null, until = null,
        compared_to = ${to.toISOString()}::text::timestamptz, ran_at = now(), error = null,
        missing = ${missing}::int, differs = ${differs}::int, unknown = ${unknown}::int,
        unknown_task_nos = ${textArray(unknownTaskNos)}::text[],
        unknown_alarm = case when ${unknown}::int > 0 then coalesce(case when not ${isUnknownNew} then before.unknown_alarm end, ${unknownAlarm}::uuid) end
      from before
      where r.message_code = ${messageCode} and r.downstream = ${downstream}
      returning r.unknown_alarm
    ), raised as (
      insert into alarm (task_id, downstream, attempt, kind)
      select a.task_id, ${downstream}, a.attempt, 'MISMATCH'
      from run, unnest(
        ${plainArray(raise.map(one => one.taskId))}::uuid[], ${plainArray(raise.map(one => one.attempt))}::int[]
      ) as a (task_id, attempt)
      union all
      select unknown_alarm, ${downstream}, 0, 'MISMATCH' from run where unknown_alarm is not null
      ${raiseAgain(sql)}
    ), resolved as (
      update alarm a set resolved_at = now()
      from run, unnest(${plainArray(resolve)}::uuid[]) as gone (task_id)
      where a.task_id = gone.task_id and a.downstream = ${downstream} and a.kind = 'MISMATCH' and a.resolved_at is null
    ), known as (
      -- It has no task that it could be found by once these tasks are no longer unknown.
      delete from alarm a using run, before
      where run.unknown_alarm is distinct from before.unknown_alarm and a.task_id = before.unknown_alarm and a.kind = 'MISMATCH'
    )
    select exists (select from run) as written`
  return row.written
}

/** Gives a run back. It is due again after `againMs`. `error` null: it did not fail. */
export async function releaseRun(
  sql: Sql,
  { messageCode, downstream, owner }: ClaimedRun,
  error: string | null,
  againMs: number
): Promise<void> {
  await sql`
    update reconciliation set owner = null, until = null, error = ${error},
      next_at = now() + ${againMs}::float8 * interval '1 ms'
    where message_code = ${messageCode} and downstream = ${downstream} and owner = ${owner}`
}
