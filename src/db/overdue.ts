// Deliveries that need a decision: their clock ran out, or their process is dead. Rows that somebody has locked are skipped: a later look
// finds them.
import { uuidForm } from '../domain/ids.ts'
import { plainArray, textArray } from './arrays.ts'
import type { Sql } from './pool.ts'
import type { delivery, task } from './schema.ts'
import type { Phase } from '../domain/types.ts'

/** A delivery whose clock ran out and that cannot simply be claimed. */
export type Overdue = Pick<typeof task.$inferSelect, 'taskNo' | 'messageCode' | 'retryTimes'> &
  Pick<
    typeof delivery.$inferSelect,
    'taskId' | 'downstream' | 'attempt' | 'triesLeft' | 'lost' | 'needsReceipt' | 'orderingKey'
  > & { phase: Phase }

/** Where a look at the clocks of a downstream goes on. */
export interface Place {
  downstream: string
  /** The earliest clock that it reads, as PostgreSQL writes a time. */
  at: string
  /** Of the deliveries with exactly this clock it reads those from this page of the table on. */
  tid: string
}

const firstTid = '(0,0)'

/** Before the deliveries whose clocks ran out at this time or later, ms since 1970. Undefined: before all. */
export const placeAt = (downstream: string, fromMs: number | undefined): Place => ({
  downstream,
  at: fromMs === undefined ? '-infinity' : new Date(fromMs).toISOString(),
  tid: firstTid
})

/**
 * Lost leases, missing receipts and expired deliveries. Of each place it reads the next `limit` clocks that ran out: a million deliveries
 * may wait among them. `next` are the places that have more. `limit` is more than the rows of a page of the table (300), since a look
 * reads the page at which the last one ended once more.
 */
export async function findOverdue(
  sql: Sql,
  places: readonly Place[],
  limit: number
): Promise<{ overdue: Overdue[]; next: Place[] }> {
  const rows = await sql<
    (Overdue & { isOverdue: boolean | null; isLast: boolean; at: string; tid: string })[]
  >`
    select ${columns(sql)}, d.is_overdue as "isOverdue", d.nth = ${limit}::int as "isLast", d.next_action_at::text as at, d.tid
    from unnest(
      ${textArray(places.map(({ downstream }) => downstream))}::text[], ${textArray(places.map(({ at }) => at))}::timestamptz[],
      ${textArray(places.map(({ tid }) => tid))}::tid[]
    ) as o (downstream, at, tid) cross join lateral (
      select p.*, p.phase <> 'WAITING' or p.deliver_before <= now() as is_overdue, row_number() over () as nth
      from (
        select w.*, w.ctid::text as tid
        from delivery w
        where w.status = 0 and w.downstream = o.downstream and w.next_action_at <= now() and w.next_action_at >= o.at
          -- Equal clocks are in the order of their rows in the index.
          and (w.next_action_at > o.at or w.ctid >= o.tid)
        order by w.next_action_at
        limit ${limit}::int
      ) p
    ) d join task t on t.id = d.task_id
    where d.is_overdue or d.nth = ${limit}::int`
  return {
    overdue: rows.filter(one => one.isOverdue),
    next: rows
      .filter(one => one.isLast)
      // An update that moves no clock gives a row another place in its page, but not in the index.
      .map(({ downstream, at, tid }) => ({ downstream, at, tid: tid.replace(/,\d+/, ',0') }))
  }
}

/** Those of these deliveries whose rows nobody has locked. */
export async function findUnlocked(sql: Sql, overdue: readonly Overdue[]): Promise<Overdue[]> {
  const rows = await sql<{ index: number }[]>`
    select h.index::int
    from unnest(
      ${plainArray(overdue.map(one => one.taskId))}::uuid[], ${textArray(overdue.map(one => one.downstream))}::text[]
    ) with ordinality as h (task_id, downstream, index)
      join delivery d on d.task_id = h.task_id and d.downstream = h.downstream
    for no key update of d skip locked`
  return rows.flatMap(({ index }) => overdue[index - 1] ?? [])
}

/** The columns of an Overdue. `d` is the delivery, `t` its task. */
const columns = (sql: Sql) => sql`
  d.task_id as "taskId", t.task_no as "taskNo", t.message_code as "messageCode", d.downstream, d.phase, d.attempt,
  d.tries_left as "triesLeft", d.lost, d.needs_receipt as "needsReceipt", d.ordering_key as "orderingKey",
  t.retry_times as "retryTimes"`

/**
 * Deliveries with a running lease that this owner holds. There is no index of owners: it reads all clocks of a downstream from now to the
 * end of its longest lease, which is cheap enough for the death of a process.
 */
export async function findOwned(
  sql: Sql,
  downstreams: readonly { name: string; leaseMs: number }[],
  owner: number,
  limit: number
): Promise<Overdue[]> {
  return await sql<Overdue[]>`
    select ${columns(sql)}
    from unnest(
      ${textArray(downstreams.map(({ name }) => name))}::text[], ${plainArray(downstreams.map(({ leaseMs }) => leaseMs))}::float8[]
    ) as o (downstream, lease_ms) cross join lateral (
      select w.*
      from delivery w
      where w.status = 0 and w.downstream = o.downstream and w.next_action_at > now()
        and w.next_action_at <= now() + o.lease_ms * interval '1 ms' and w.phase = 'IN_FLIGHT' and w.owner = ${owner}
      order by w.next_action_at
      limit ${limit}
      for no key update skip locked
    ) d join task t on t.id = d.task_id
    limit ${limit}`
}

/**
 * The claims among these that no worker has read from the queue. Their owner is still the process that queued them: a worker that reads
 * a claim becomes its owner. Claims of older versions have no owner and are left out; so are claims that this worker itself has read,
 * if it was declared dead but lives.
 */
export async function findUnread(
  sql: Sql,
  downstream: string,
  claims: readonly (readonly [taskId: string, attempt: number])[],
  worker: { number: number; node: string }
): Promise<(Overdue & { owner: number })[]> {
  // A job may be made by hand.
  const likely = claims.filter(
    ([taskId, attempt]) => uuidForm.test(taskId) && attempt > 0 && attempt < 2 ** 31
  )
  if (likely.length === 0) return []
  return await sql<(Overdue & { owner: number })[]>`
    select ${columns(sql)}, d.owner
    from unnest(
      ${plainArray(likely.map(([taskId]) => taskId))}::uuid[], ${plainArray(likely.map(([, attempt]) => attempt))}::int[]
    ) as h (task_id, attempt)
      join delivery d on d.task_id = h.task_id and d.downstream = ${downstream} and d.attempt = h.attempt
      join task t on t.id = d.task_id
    where d.phase = 'IN_FLIGHT' and d.owner <> ${worker.number}
      and not exists (select from owner o where o.number = d.owner and o.node = ${worker.node})
    for no key update of d skip locked`
}
