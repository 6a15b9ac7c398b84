import { plain, texts } from './literal.ts'
import type { Sql } from './open.ts'

/** A downstream that a dispatcher may claim for: at most `room` deliveries, each with a lease of `leaseMs`. */
export interface Open {
  downstream: string
  room: number
  leaseMs: number
}

export interface Claimed {
  taskId: string
  downstream: string
  attempt: number
}

/** One look at what is due: claims it, oldest first, each with a new attempt number and a lease. */
export async function claimDue(sql: Sql, open: readonly Open[]): Promise<Claimed[]> {
  const rows = await sql<{ task_id: string; downstream: string; attempt: number }[]>`
    with open as (
      select * from unnest(
        ${texts(open.map(o => o.downstream))}::text[], ${plain(open.map(o => o.room))}::int[],
        ${plain(open.map(o => o.leaseMs))}::float8[]
      ) as o (downstream, room, lease_ms)
    ), due as materialized (
      select d.ctid, o.lease_ms
      from open o cross join lateral (
        select w.ctid
        from delivery w
        where w.status = 0 and w.downstream = o.downstream and w.next_action_at <= now() and w.phase = 'WAITING'
          and (w.deliver_before is null or w.deliver_before > now())
        order by w.next_action_at
        limit o.room
        for no key update skip locked
      ) d
    )
    update delivery d set
      phase = 'IN_FLIGHT', attempt = d.attempt + 1, tries_left = d.tries_left - 1,
      next_action_at = now() + due.lease_ms * interval '1 ms', updated_at = now()
    from due
    -- By its place on disk, which the lock above holds still: to join by key, a large backlog was read whole. Where another
    -- moved it between the two, it is not claimed now, and found by the next look.
    where d.ctid = due.ctid and d.phase = 'WAITING'
    returning d.task_id, d.downstream, d.attempt`
  return rows.map(row => ({ taskId: row.task_id, downstream: row.downstream, attempt: row.attempt }))
}

/** A delivery whose clock ran out and that cannot simply be claimed. */
export interface Overdue {
  taskId: string
  taskNo: string
  messageCode: string
  downstream: string
  phase: 'WAITING' | 'IN_FLIGHT' | 'AWAITING_RECEIPT'
  attempt: number
  triesLeft: number
  lost: number
  needsReceipt: boolean
  retryTimes: number | null
}

/**
 * Lost leases, missing receipts and what expired, of clocks that ran out since `since` (null: ever). The window keeps a
 * look cheap while a million deliveries wait: a clock that ran out earlier was seen by an earlier look.
 */
export async function findOverdue(
  sql: Sql,
  downstreams: readonly string[],
  since: Date | null,
  limit: number
): Promise<Overdue[]> {
  const rows = await sql<
    (Omit<Overdue, 'taskId' | 'taskNo' | 'messageCode' | 'triesLeft' | 'needsReceipt' | 'retryTimes'> & {
      task_id: string
      task_no: string
      message_code: string
      tries_left: number
      needs_receipt: boolean
      retry_times: number | null
    })[]
  >`
    select d.task_id, t.task_no, t.message_code, d.downstream, d.phase, d.attempt, d.tries_left, d.lost,
      d.needs_receipt, t.retry_times
    from unnest(${texts(downstreams)}::text[]) as o (downstream) cross join lateral (
      select w.*
      from delivery w
      where w.status = 0 and w.downstream = o.downstream and w.next_action_at <= now()
        and w.next_action_at > ${since?.toISOString() ?? '-infinity'}::text::timestamptz
        and (w.phase <> 'WAITING' or w.deliver_before <= now())
      order by w.next_action_at
      limit ${limit}
    ) d join task t on t.id = d.task_id`
  return rows.map(row => ({
    taskId: row.task_id,
    taskNo: row.task_no,
    messageCode: row.message_code,
    downstream: row.downstream,
    phase: row.phase,
    attempt: row.attempt,
    triesLeft: row.tries_left,
    lost: row.lost,
    needsReceipt: row.needs_receipt,
    retryTimes: row.retry_times
  }))
}

/** When a clock of these downstreams runs out next: ms from now; null when none does. And the database's now. */
export async function nextDue(
  sql: Sql,
  downstreams: readonly string[]
): Promise<{ now: Date; inMs: number | null }> {
  const [row] = await sql<[{ now: Date; in_ms: number | null }]>`
    select now() as now, (
      select extract(epoch from min(d.next_action_at) - now())::float8 * 1000
      from unnest(${texts(downstreams)}::text[]) as o (downstream) cross join lateral (
        select w.next_action_at
        from delivery w
        where w.status = 0 and w.downstream = o.downstream and w.next_action_at > now()
        order by w.next_action_at
        limit 1
      ) d
    ) as in_ms`
  return { now: row.now, inMs: row.in_ms }
}

/** Deliveries overdue for a minute whose downstream is none of `known`: no process has a handler for them. */
export async function findOrphans(
  sql: Sql,
  known: readonly string[],
  limit: number
): Promise<{ taskId: string; downstream: string; attempt: number }[]> {
  const rows = await sql<{ task_id: string; downstream: string; attempt: number }[]>`
    with recursive name (downstream) as (
      (select d.downstream from delivery d where d.status = 0 order by d.downstream limit 1)
      union all
      select (select d.downstream from delivery d where d.status = 0 and d.downstream > n.downstream
        order by d.downstream limit 1)
      from name n
      where n.downstream is not null
    )
    select d.task_id, d.downstream, d.attempt
    from name n cross join lateral (
      select w.task_id, w.downstream, w.attempt
      from delivery w
      where w.status = 0 and w.downstream = n.downstream and w.next_action_at < now() - interval '1 minute'
      order by w.next_action_at
      limit ${limit}
    ) d
    where n.downstream <> all(${texts(known)}::text[])`
  return rows.map(row => ({ taskId: row.task_id, downstream: row.downstream, attempt: row.attempt }))
}
