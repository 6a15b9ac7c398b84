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
export interface ScanCursor {
  downstream: string
  /** It reads the later clocks. As PostgreSQL writes a time. */
  after: string
}

/** Before the clocks of this time, ms since 1970. Undefined: before all. */
export const cursorAt = (downstream: string, fromMs: number | undefined): ScanCursor => ({
  downstream,
  after: fromMs === undefined ? '-infinity' : new Date(fromMs - 1).toISOString()
})

interface OverdueAt {
  place: ScanCursor
  /** In the order of their clocks. */
  overdue: Overdue[]
  /** Undefined: it has read all clocks that ran out. */
  next: ScanCursor | undefined
}

/**
 * Lost leases, missing receipts and expired deliveries. Of each place it reads the next `clocks` clocks that ran out, and those that are equal
 * to the last of them: a million deliveries may wait among them. It returns at most `limit` of each.
 */
export async function findOverdue(
  sql: Sql,
  places: readonly ScanCursor[],
  { clocks, limit }: { clocks: number; limit: number }
): Promise<OverdueAt[]> {
  // `offset 0` keeps the search for up_to separate: without it PostgreSQL repeats it for each row that it returns.
  const rows = await sql<({ place: number; upTo: string | null; isOverdue: boolean } & Overdue)[]>`
    select ${columns(sql)}, o.place::int, e.up_to::text as "upTo", t.id is not null as "isOverdue"
    from unnest(
      ${textArray(places.map(({ downstream }) => downstream))}::text[], ${textArray(places.map(({ after }) => after))}::timestamptz[]
    ) with ordinality as o (downstream, after, place) cross join lateral (
      select (
        select w.next_action_at from delivery w
        where w.status = 0 and w.downstream = o.downstream and w.next_action_at <= now() and w.next_action_at > o.after
        order by w.next_action_at
        offset ${clocks - 1}::int limit 1
      ) as up_to
      offset 0
    ) e left join lateral (
      select w.* from delivery w
      where w.status = 0 and w.downstream = o.downstream and w.next_action_at <= coalesce(e.up_to, now())
        and w.next_action_at > o.after and (w.phase <> 'WAITING' or w.deliver_before <= now())
      order by w.next_action_at
      limit ${limit}::int
    ) d on true left join task t on t.id = d.task_id`
  const found = places.map((place): OverdueAt => ({ place, overdue: [], next: undefined }))
  for (const { place, upTo, isOverdue, ...one } of rows) {
    const at = found[place - 1]
    if (!at) continue
    if (upTo !== null) at.next = { downstream: at.place.downstream, after: upTo }
    if (isOverdue) at.overdue.push(one)
  }
  return found
}

/** Those of these deliveries whose rows nobody has locked. */
export async function findUnlocked<One extends { taskId: string; downstream: string }>(
  sql: Sql,
  deliveries: readonly One[]
): Promise<One[]> {
  if (deliveries.length === 0) return []
  // `offset 0` keeps each look-up separate (loadDeliveries).
  const rows = await sql<{ index: number }[]>`
    select h.index::int
    from unnest(
      ${plainArray(deliveries.map(one => one.taskId))}::uuid[], ${textArray(deliveries.map(one => one.downstream))}::text[]
    ) with ordinality as h (task_id, downstream, index) cross join lateral (
      select from delivery where task_id = h.task_id and downstream = h.downstream
      offset 0
      for no key update skip locked
    ) d`
  return rows.flatMap(({ index }) => deliveries[index - 1] ?? [])
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
