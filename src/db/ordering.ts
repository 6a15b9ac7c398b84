// OrderingKeys: their deliveries run one after the other, as the SQL functions promote and release_key decide (migrations, by hand).
import { sql as query } from './drizzle.ts'
import { plainArray, textArray } from './arrays.ts'
import { loadedOf, type Claim, type LoadedColumns, type LoadedDelivery } from './deliveries.ts'
import type { Sql } from './pool.ts'
import type { Reads } from './reads.ts'
import { taskColumns, type TaskRow } from './task-row.ts'
import { present } from '../domain/optional-members.ts'
import { statusWord, type Phase } from '../domain/types.ts'

/** An orderingKey of a downstream. */
export interface OrderingKey {
  downstream: string
  orderingKey: string
}

/** `leaseMs` null: the next delivery is not claimed, and waits for a dispatcher. `skips`: a FAILED delivery does not hold the key. */
export interface Promoting extends OrderingKey {
  leaseMs: number | null
  skips: boolean
}

interface Promoted extends Claim {
  phase: Phase
  /** Only for a claimed delivery, with `withTasks`. */
  loaded?: LoadedDelivery
}

/**
 * Lets the next delivery of each key run, if it may; keys are distinct. A key that needs nothing stays unchanged. `withTasks`: this
 * process sends the claimed deliveries, so they are returned with their tasks.
 */
export async function promote(
  sql: Sql,
  keys: readonly Promoting[],
  withTasks: boolean,
  owner: number | null
): Promise<Promoted[]> {
  // The statement reads tasks at an older moment than the function. A worker reads a task that was not there yet.
  const rows = await sql<(PromotedColumns & Partial<TaskRow>)[]>`
    select p.*, extract(epoch from p.deliver_before - now())::float8 * 1000 as deliver_before_left_ms,
      extract(epoch from now() - p.round_at)::float8 * 1000 as round_ms, t.*
    from promote(
      ${textArray(keys.map(key => key.downstream))}::text[], ${textArray(keys.map(key => key.orderingKey))}::text[],
      ${plainArray(keys.map(key => key.leaseMs))}::float8[], ${plainArray(keys.map(key => key.skips))}::boolean[],
      ${owner}::int
    ) p left join lateral (
      select ${taskColumns(sql)} from task t
      where t.id = p.task_id and p.phase = 'IN_FLIGHT' and ${withTasks}::boolean offset 0
    ) t on true`
  // The same for all keys of a downstream, or null.
  const leases = new Map(
    keys.flatMap(({ downstream, leaseMs }) => (leaseMs === null ? [] : [[downstream, leaseMs] as const]))
  )
  return rows.map(row => ({
    taskId: row.task_id,
    downstream: row.downstream,
    attempt: row.attempt,
    phase: row.phase,
    ...(isTask(row) && { loaded: loadedOf(row, row.downstream, leases.get(row.downstream) ?? 0, 0) })
  }))
}

type PromotedColumns = LoadedColumns & { task_id: string; downstream: string; phase: Phase }

const isTask = <T extends Partial<TaskRow>>(row: T): row is T & TaskRow => typeof row.id === 'string'

/**
 * Keys of which a delivery has ended and the next one was not promoted yet, perhaps because the process died. `known`: downstreams with
 * a handler here. A FAILED head of another downstream is left alone: only its handler decides whether it holds the key.
 */
export async function findPromotions(
  sql: Sql,
  known: readonly string[],
  limit: number
): Promise<OrderingKey[]> {
  return await sql<OrderingKey[]>`
    select distinct downstream, ordering_key as "orderingKey"
    from (
      select * from promotion p
      where p.downstream = any(${textArray(known)}::text[]) or not exists (
        select from ordering o
        where o.downstream = p.downstream and o.ordering_key = p.ordering_key
          and (select h.status from (${headOf(sql)}) h) = 2
      )
      limit ${limit}
    ) p`
}

/** The head of a key `o`, as promote() finds it: an ended delivery leaves its place to the next one that has not ended. */
const headOf = (sql: Sql) => sql`
      select d.task_id, d.status from delivery d
      where d.downstream = o.downstream and d.ordering_key = o.ordering_key and d.position >= o.head and d.status in (0, 2)
      order by d.position
      limit 1`

/** The task whose FAILED delivery is the head of this key, also if no process has its handler. null: the key is unknown. */
export async function readHolder(
  sql: Sql,
  { downstream, orderingKey }: OrderingKey
): Promise<{ taskNo: string | null } | null> {
  const [row] = await sql<{ taskNo: string | null }[]>`
    select t.task_no as "taskNo"
    from ordering o left join lateral (${headOf(sql)}) h on true left join task t on t.id = h.task_id and h.status = 2
    where o.downstream = ${downstream} and o.ordering_key = ${orderingKey}`
  return row ?? null
}

/** A FAILED delivery that no longer holds its key. */
export interface Passed {
  taskNo: string
  messageCode: string
}

/** Passes the FAILED delivery of this task. null: it does not hold the key. */
export async function releaseKey(
  sql: Sql,
  { downstream, orderingKey, taskNo }: OrderingKey & { taskNo: string }
): Promise<Passed | null> {
  const rows = await sql<Passed[]>`
    select t.task_no as "taskNo", t.message_code as "messageCode"
    from (select release_key(${downstream}, ${orderingKey}, ${taskNo}) as id offset 0) r join task t on t.id = r.id`
  return rows[0] ?? null
}

/** Looks at the next `limit` keys after `after`, and removes those without deliveries. `next`: where to continue; null: the end. */
export async function removeOrderingKeys(
  sql: Sql,
  limit: number,
  after: OrderingKey | null
): Promise<{ removed: number; next: OrderingKey | null }> {
  const [row] = await sql<[{ removed: number; looked: number; last: OrderingKey | null }]>`
    with looked as materialized (
      select downstream, ordering_key from ordering
      where (downstream, ordering_key) > (${after?.downstream ?? ''}, ${after?.orderingKey ?? ''})
      order by downstream, ordering_key
      limit ${limit}
    ), gone as (
      delete from ordering o using looked l
      where o.downstream = l.downstream and o.ordering_key = l.ordering_key and o.head is null
        and not exists (
          select from delivery d where d.downstream = l.downstream and d.ordering_key = l.ordering_key
        )
      returning 1
    )
    select (select count(*) from gone)::int as removed, (select count(*) from looked)::int as looked,
      (select json_build_object('downstream', downstream, 'orderingKey', ordering_key)
        from looked order by downstream desc, ordering_key desc limit 1) as last`
  return { removed: row.removed, next: row.looked < limit ? null : row.last }
}

/** `cursor`: the last key of the page before. `messageCodes`: only keys whose head is a task of these; null: all. */
export interface KeyFilter {
  held: boolean
  downstream?: string
  messageCodes: readonly string[] | null
  cursor?: OrderingKey
  limit: number
}

export interface KeyView extends OrderingKey {
  /** Since when its head is FAILED and holds it. */
  heldSince?: string
  /** Counted up to 10,000. */
  waiting: number
  head?: { taskNo: string; messageCode: string; status: string; position: number }
}

/** Keys with a delivery that is not HANDLED yet, by downstream and key; `held`: only keys that a FAILED delivery holds. */
export async function listOrderingKeys(
  { db }: Reads,
  { held, downstream, messageCodes, cursor, limit }: KeyFilter
): Promise<{ keys: KeyView[]; next?: OrderingKey }> {
  const rows = await db.execute<{
    downstream: string
    orderingKey: string
    heldAt: Date | string | null
    waiting: number
    head: { taskNo: string; messageCode: string; status: number; position: number } | null
  }>(query`
    select o.downstream, o.ordering_key as "orderingKey", o.held_at as "heldAt", h.head, (
      select count(*) from (
        select from delivery w
        where w.downstream = o.downstream and w.ordering_key = o.ordering_key and w.position > o.head and w.status = 0
        limit 10000
      ) w
    )::int as waiting
    from ordering o left join lateral (
      select t.message_code, json_build_object(
        'taskNo', t.task_no, 'messageCode', t.message_code, 'status', d.status, 'position', d.position
      ) as head
      from delivery d join task t on t.id = d.task_id
      where d.downstream = o.downstream and d.ordering_key = o.ordering_key and d.position = o.head
    ) h on true
    where (o.downstream, o.ordering_key) > (${cursor?.downstream ?? ''}, ${cursor?.orderingKey ?? ''})
      and ${held ? query`o.held_at is not null` : query`o.head is not null`}
      ${downstream === undefined ? query`` : query`and o.downstream = ${downstream}`}
      ${messageCodes === null ? query`` : query`and h.message_code = any(${textArray(messageCodes)}::text[])`}
    order by o.downstream, o.ordering_key
    limit ${limit + 1}`)
  const keys = rows.slice(0, limit).map(({ heldAt, head, ...row }): KeyView => ({
    ...row,
    ...present('heldSince', heldAt && new Date(heldAt).toISOString()),
    ...present('head', head && { ...head, status: statusWord(head.status) })
  }))
  const last = keys.at(-1)
  return { keys, ...(rows.length > limit && last ? { next: last } : {}) }
}
