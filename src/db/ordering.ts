// Keys of which one delivery runs after the other. What decides is in the functions promote and release_key (migrations, by hand).
import { sql as query } from './drizzle.ts'
import { plainArray, textArray } from './arrays.ts'
import { loadedOf, type Claim, type LoadedColumns, type LoadedDelivery, type TaskRow } from './deliveries.ts'
import type { Sql } from './pool.ts'
import type { Reads } from './reads.ts'
import { statusWord } from './views.ts'
import { present } from '../domain/optional-members.ts'
import type { Phase } from '../domain/types.ts'

/** An orderingKey of a downstream. */
export interface OrderingKey {
  downstream: string
  orderingKey: string
}

/** `leaseMs` null: its next one is not claimed, and waits for a dispatcher. `skips`: one that FAILED does not hold it. */
export interface Promoting extends OrderingKey {
  leaseMs: number | null
  skips: boolean
}

interface Promoted extends Claim {
  phase: Phase
  /** Of one that is claimed, if its task was asked for. */
  loaded?: LoadedDelivery
}

/**
 * Lets the next of each key go, where it may; keys are distinct. A key that needs nothing is left as it is. `withTasks`: those that
 * are claimed are sent here, and need not be read again.
 */
export async function promote(
  sql: Sql,
  keys: readonly Promoting[],
  withTasks: boolean,
  owner: number | null
): Promise<Promoted[]> {
  // The tasks are of an older moment than the function. One that was not there yet is read by its worker.
  const rows = await sql<(PromotedColumns & Partial<TaskRow>)[]>`
    select p.*, extract(epoch from p.deliver_before - now())::float8 * 1000 as before_ms,
      extract(epoch from now() - p.round_at)::float8 * 1000 as round_ms, t.*
    from promote(
      ${textArray(keys.map(key => key.downstream))}::text[], ${textArray(keys.map(key => key.orderingKey))}::text[],
      ${plainArray(keys.map(key => key.leaseMs))}::float8[], ${plainArray(keys.map(key => key.skips))}::boolean[],
      ${owner}::int
    ) p left join lateral (
      select id, task_no, message_code, scene_type, message_body, deliver_start_time, need_callback, retry_times, ordering_key,
        extend, traceparent, created_at, created_by
      from task
      where id = p.task_id and p.phase = 'IN_FLIGHT' and ${withTasks}::boolean offset 0
    ) t on true`
  const leases = new Map(keys.map(({ downstream, leaseMs }) => [downstream, leaseMs ?? 0]))
  return rows.map(row => ({
    taskId: row.task_id,
    downstream: row.downstream,
    attempt: row.attempt,
    phase: row.phase,
    ...(isTask(row) && { loaded: loadedOf(row, row.downstream, leases.get(row.downstream) ?? 0) })
  }))
}

type PromotedColumns = LoadedColumns & { task_id: string; downstream: string; phase: Phase }

const isTask = <T extends Partial<TaskRow>>(row: T): row is T & TaskRow => typeof row.id === 'string'

/**
 * Keys of which one has ended, and whoever ended it has not said so yet, or did not live to. `known`: downstreams with a handler here.
 * Of others a FAILED one is left alone: whether it holds its key, only its handler says.
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
        where o.downstream = p.downstream and o.ordering_key = p.ordering_key and ${headStatus(sql)} = 2
      )
      limit ${limit}
    ) p`
}

/** Of the head of a key `o`, as promote() finds it: what ended leaves its place to the next that has not. */
const headStatus = (sql: Sql) => sql`(
          select d.status from delivery d
          where d.downstream = o.downstream and d.ordering_key = o.ordering_key and d.position >= o.head and d.status in (0, 2)
          order by d.position
          limit 1
        )`

/** Whether its head is FAILED, even if no process has the handler to say so. null: nothing is known of it. */
export async function isKeyHeld(sql: Sql, { downstream, orderingKey }: OrderingKey): Promise<boolean | null> {
  const [row] = await sql<{ held: boolean }[]>`
    select coalesce(${headStatus(sql)} = 2, false) as held from ordering o
    where o.downstream = ${downstream} and o.ordering_key = ${orderingKey}`
  return row?.held ?? null
}

/** A delivery that FAILED and holds its key no more. */
export interface Passed {
  taskNo: string
  messageCode: string
}

/** Passes the FAILED delivery that holds a key. null: the key is not held. */
export async function releaseKey(sql: Sql, { downstream, orderingKey }: OrderingKey): Promise<Passed | null> {
  const rows = await sql<Passed[]>`
    select t.task_no as "taskNo", t.message_code as "messageCode"
    from (select release_key(${downstream}, ${orderingKey}) as id offset 0) r join task t on t.id = r.id`
  return rows[0] ?? null
}

/** Removes up to `limit` keys of which no delivery is left, by key from `after` on. `next`: where to go on; null: the end. */
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

/** `cursor`: the last of the page before. `messageCodes`: only where the head is a task of one of these; null: all. */
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
  /** Of more than 10,000 only so many are counted. */
  waiting: number
  head?: { taskNo: string; messageCode: string; status: string; position: number }
}

/** Keys of which one is not HANDLED yet, by downstream and key; `held`: only those that a FAILED one holds. */
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
