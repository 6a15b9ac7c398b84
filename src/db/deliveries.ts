import { plainArray, textArray } from './arrays.ts'
import type { Sql } from './pool.ts'
import type { delivery, Row } from './schema.ts'
import { taskColumns, taskOf, type TaskRow } from './task-row.ts'
import type { Task } from '../domain/types.ts'

/** A delivery that this process owns while its lease lasts, with its task. */
export interface LoadedDelivery {
  task: Task
  downstream: string
  attempt: number
  /** The first attempt of its round. */
  roundFrom: number
  triesLeft: number
  lost: number
  needsReceipt: boolean
  /** ms of lease left, by the database's clock, at the time of the look. */
  leaseLeftMs: number
  /** ms since it was claimed, at the time of the look. */
  claimedMs: number
  /** ms until `deliverBefore`; null without one. */
  deliverBeforeLeftMs: number | null
  round: number
  /** The start of the round, by the database's clock, and how long ago it was. */
  roundAt: Date
  roundMs: number
  /** Its place in its orderingKey; below zero: out of order. null without a key. */
  position: number | null
}

/**
 * The deliveries of one job that still belong to it: same attempt, still IN_FLIGHT. The others no longer belong to it, or
 * another process claimed them and somebody has locked their rows. From here on `owner` owns them, also those that another process claimed.
 */
export async function loadDeliveries(
  sql: Sql,
  downstream: string,
  claims: readonly Pick<Claim, 'taskId' | 'attempt'>[],
  owner: number | null
): Promise<LoadedDelivery[]> {
  // `offset 0` keeps each look-up separate. With plain joins PostgreSQL read a young table, whose size it did not know, as a
  // whole, or read the list once for each row of the table.
  const rows = await sql<(TaskRow & LoadedColumns & { lease_left_ms: number; claimed_ms: number })[]>`
    with h as materialized (
      select * from unnest(
        ${plainArray(claims.map(one => one.taskId))}::uuid[], ${plainArray(claims.map(one => one.attempt))}::int[]
      ) as h (task_id, attempt)
      order by task_id
    ), others as materialized (
      select d.ctid
      from h cross join lateral (
        select ctid from delivery
        where task_id = h.task_id and downstream = ${downstream} and attempt = h.attempt and phase = 'IN_FLIGHT'
          and owner is distinct from ${owner}::int
        offset 0
        for no key update skip locked
      ) d
    ), taken as (
      update delivery d set owner = ${owner}::int
      -- Nobody waits for this to be on disk: a crash of PostgreSQL that forgets it costs time only.
      from others o cross join (select set_config('synchronous_commit', 'off', true)) quick
      where d.ctid = o.ctid
      returning d.task_id
    )
    select d.attempt, d.round_from, d.tries_left, d.lost, d.needs_receipt, d.position,
      extract(epoch from d.next_action_at - now())::float8 * 1000 as lease_left_ms,
      -- The claim wrote it. An extended lease leaves it.
      extract(epoch from now() - d.updated_at)::float8 * 1000 as claimed_ms,
      extract(epoch from d.deliver_before - now())::float8 * 1000 as deliver_before_left_ms,
      coalesce(d.round, 1) as round, coalesce(d.round_at, greatest(d.created_at, t.deliver_start_time)) as round_at,
      extract(epoch from now() - coalesce(d.round_at, greatest(d.created_at, t.deliver_start_time)))::float8 * 1000 as round_ms,
      ${taskColumns(sql)}
    from h cross join lateral (
      select * from delivery
      where task_id = h.task_id and downstream = ${downstream} and attempt = h.attempt and phase = 'IN_FLIGHT'
        and (owner is not distinct from ${owner}::int or (task_id in (select task_id from taken)) is true)
      offset 0
    ) d
    cross join lateral (select * from task where id = h.task_id offset 0) t`
  return rows.map(row => loadedOf(row, downstream, row.lease_left_ms, row.claimed_ms))
}

/**
 * Lets the leases of these claims end `leaseMs` from now, if `owner` owns them and they have not ended. Returns the ids of their tasks.
 * Rows that somebody has locked keep their lease.
 */
export async function extendLeases(
  sql: Sql,
  downstream: string,
  claims: readonly Pick<Claim, 'taskId' | 'attempt'>[],
  { owner, leaseMs }: { owner: number; leaseMs: number }
): Promise<Set<string>> {
  const rows = await sql<{ task_id: string }[]>`
    with own as materialized (
      select d.ctid
      from (
        select * from unnest(
          ${plainArray(claims.map(one => one.taskId))}::uuid[], ${plainArray(claims.map(one => one.attempt))}::int[]
        ) as h (task_id, attempt)
        order by task_id
      ) h cross join lateral (
        select ctid from delivery
        where task_id = h.task_id and downstream = ${downstream} and attempt = h.attempt and phase = 'IN_FLIGHT'
          and owner = ${owner}::int and next_action_at > now()
        offset 0
        for no key update skip locked
      ) d
    )
    update delivery d set next_action_at = now() + ${leaseMs}::float8 * interval '1 ms'
    from own o
    where d.ctid = o.ctid
    returning d.task_id`
  return new Set(rows.map(row => row.task_id))
}

/** The columns from which a delivery is loaded, beside its task. */
export type LoadedColumns = Pick<
  Row<typeof delivery>,
  'attempt' | 'round_from' | 'tries_left' | 'lost' | 'needs_receipt' | 'position'
> & {
  deliver_before_left_ms: number | null
  round: number
  round_at: Date
  round_ms: number
}

export const loadedOf = (
  row: TaskRow & LoadedColumns,
  downstream: string,
  leaseLeftMs: number,
  claimedMs: number
): LoadedDelivery => ({
  task: taskOf(row),
  downstream,
  attempt: row.attempt,
  roundFrom: row.round_from,
  triesLeft: row.tries_left,
  lost: row.lost,
  needsReceipt: row.needs_receipt,
  leaseLeftMs,
  claimedMs,
  deliverBeforeLeftMs: row.deliver_before_left_ms,
  position: row.position,
  round: row.round,
  roundAt: row.round_at,
  roundMs: row.round_ms
})

/** A downstream that a dispatcher may claim for: at most `room` deliveries, each with a lease of `leaseMs`. */
interface ClaimLimit {
  downstream: string
  room: number
  leaseMs: number
  /** No clock before this is open, ms since 1970. Undefined: not known. */
  fromMs?: number | undefined
}

/** A claimed attempt of a delivery. */
export interface Claim {
  taskId: string
  downstream: string
  attempt: number
}

type ClaimRow = Pick<Row<typeof delivery>, 'task_id' | 'downstream' | 'attempt'>
const claimOf = (row: ClaimRow): Claim => ({
  taskId: row.task_id,
  downstream: row.downstream,
  attempt: row.attempt
})

/** Claims due deliveries, oldest first, each with a new attempt number and a lease. */
export async function claimDue(
  sql: Sql,
  open: readonly ClaimLimit[],
  owner: number | null
): Promise<Claim[]> {
  const rows = await sql<ClaimRow[]>`
    with open as (
      select * from unnest(
        ${textArray(open.map(o => o.downstream))}::text[], ${plainArray(open.map(o => o.room))}::int[],
        ${plainArray(open.map(o => o.leaseMs))}::float8[], ${plainArray(open.map(o => o.fromMs))}::float8[]
      ) as o (downstream, room, lease_ms, from_ms)
    ), due as materialized (
      select d.ctid, o.lease_ms
      from open o cross join lateral (
        select w.ctid
        from delivery w
        where w.status = 0 and w.downstream = o.downstream and w.next_action_at <= now() and w.phase = 'WAITING'
          and w.next_action_at >= ${since(sql)}
          and (w.deliver_before is null or w.deliver_before > now())
        order by w.next_action_at
        limit o.room
        for no key update skip locked
      ) d
    )
    update delivery d set
      phase = 'IN_FLIGHT', attempt = d.attempt + 1, tries_left = d.tries_left - 1,
      next_action_at = now() + due.lease_ms * interval '1 ms', updated_at = now(), owner = ${owner}::int,
      round_at = case when d.attempt < d.round_from then now() else d.round_at end
    from due
    -- Join by ctid: a join by key reads the whole backlog. If the row has moved since, the next look claims it.
    where d.ctid = due.ctid and d.phase = 'WAITING'
    returning d.task_id, d.downstream, d.attempt`
  return rows.map(claimOf)
}

/** The bound of a look from `o.from_ms` on; a millisecond less, since a float is not exact. */
export const since = (sql: Sql) => sql`coalesce(to_timestamp((o.from_ms - 1) / 1000), '-infinity')`

/**
 * `inMs`: the ms until the next clock of these downstreams runs out, within `withinMs`; null when none does. `now`: the database's.
 * `oldest`: of each downstream the oldest open clock that has run out, ms since 1970.
 */
export async function nextDue(
  sql: Sql,
  downstreams: readonly { name: string; fromMs?: number | undefined }[],
  withinMs: number
): Promise<{ now: Date; inMs: number | null; oldest: Map<string, number> }> {
  const [row] = await sql<[{ now: Date; in_ms: number | null; oldest: Record<string, number> | null }]>`
    select now() as now, (extract(epoch from min(next.at) - now()) * 1000)::float8 as in_ms,
      json_object_agg(o.downstream, floor(extract(epoch from oldest.at) * 1000)) filter (where oldest.at is not null) as oldest
    from unnest(
      ${textArray(downstreams.map(({ name }) => name))}::text[], ${plainArray(downstreams.map(({ fromMs }) => fromMs))}::float8[]
    ) as o (downstream, from_ms) left join lateral (
      select w.next_action_at as at
      from delivery w
      where w.status = 0 and w.downstream = o.downstream and w.next_action_at > now()
        -- Not further: the index still has entries of deliveries that ended before their lease.
        and w.next_action_at <= now() + ${withinMs}::float8 * interval '1 ms'
      order by w.next_action_at
      limit 1
    ) next on true left join lateral (
      select w.next_action_at as at
      from delivery w
      where w.status = 0 and w.downstream = o.downstream and w.next_action_at <= now() and w.next_action_at >= ${since(sql)}
      order by w.next_action_at
      limit 1
    ) oldest on true`
  return { now: row.now, inMs: row.in_ms, oldest: new Map(Object.entries(row.oldest ?? {})) }
}

/** Deliveries overdue for a minute whose downstream is none of `known`: this process has no handler for them. */
export async function findOrphans(sql: Sql, known: readonly string[], limit: number): Promise<Claim[]> {
  const rows = await sql<ClaimRow[]>`
    with recursive gap (low, high) as (
      -- Between the known ones, so that no entry of theirs is read.
      select known, lead(known) over (order by known) from unnest('{""}'::text[] || ${textArray(known)}::text[]) as k (known)
    ), name (downstream, high) as (
      select d.downstream, g.high from gap g cross join lateral (
        (select d.downstream from delivery d
          where g.high is not null and d.status = 0 and d.downstream > g.low and d.downstream < g.high
          order by d.downstream limit 1)
        union all
        (select d.downstream from delivery d
          where g.high is null and d.status = 0 and d.downstream > g.low
          order by d.downstream limit 1)
      ) d
      union all
      select d.downstream, n.high from name n cross join lateral (
        (select d.downstream from delivery d
          where n.high is not null and d.status = 0 and d.downstream > n.downstream and d.downstream < n.high
          order by d.downstream limit 1)
        union all
        (select d.downstream from delivery d
          where n.high is null and d.status = 0 and d.downstream > n.downstream
          order by d.downstream limit 1)
      ) d
    )
    select d.task_id, d.downstream, d.attempt
    from name n cross join lateral (
      select w.task_id, w.downstream, w.attempt
      from delivery w
      where w.status = 0 and w.downstream = n.downstream and w.next_action_at < now() - interval '1 minute'
      order by w.next_action_at
      limit ${limit}
    ) d`
  return rows.map(claimOf)
}

/** Whether one of these tasks has a delivery, in whatever state. */
export async function hasDelivery(sql: Sql, taskIds: readonly string[]): Promise<boolean> {
  const rows = await sql`select from delivery where task_id = any(${plainArray(taskIds)}::uuid[]) limit 1`
  return rows.count > 0
}
