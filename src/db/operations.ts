// Bulk redelivery: which FAILED deliveries match a filter, and the operations that operators begin and stop.
import { isAnyOf, textArray } from './arrays.ts'
import { actor } from './audit.ts'
import type { Sql } from './pool.ts'
import type { RedeliverFilter } from './operation-tables.ts'
import { literally, mostCounted } from './page.ts'
import { lastFingerprintOfD, lastReasonOfD } from './reads.ts'
import { highestUuid, lowestUuid, uuidAt } from '../domain/ids.ts'
import type { Actor } from '../domain/types.ts'

/** The filter of a caller, and the messageCodes that it may change. */
export interface Selection {
  filter: RedeliverFilter
  messageCodes: readonly string[] | null
}

/** `d` is the delivery. */
export const matches = (sql: Sql, { filter, messageCodes }: Selection) => sql`
  ${isAnyOf(sql, messageCodes, 't.message_code')}
  and (${filter.messageCode ?? null}::text is null or t.message_code = ${filter.messageCode ?? null})
  and (${filter.sceneType ?? null}::text is null or t.scene_type = ${filter.sceneType ?? null})
  and (${filter.bizType ?? null}::text is null or t.biz_type = ${filter.bizType ?? null})
  and (${filter.bizKey ?? null}::text is null or t.biz_key = ${filter.bizKey ?? null})
  and (${filter.createdBy ?? null}::text is null or t.created_by = ${filter.createdBy ?? null})
  and (${filter.taskNoPrefix ?? null}::text is null or starts_with(t.task_no, ${filter.taskNoPrefix ?? null}))
  and (${filter.from ?? null}::text::timestamptz is null or t.created_at >= ${filter.from ?? null}::text::timestamptz)
  and (${filter.to ?? null}::text::timestamptz is null or t.created_at < ${filter.to ?? null}::text::timestamptz)
  and (${filter.reason ?? null}::text is null or d.reason = ${filter.reason ?? null})
  and (${filter.fingerprint ?? null}::text is null or ${filter.fingerprint ?? null} = ${sql.unsafe(lastFingerprintOfD)})
  and (${filter.lastReason ?? null}::text is null or ${sql.unsafe(lastReasonOfD)}
    ilike ${filter.lastReason === undefined ? null : `%${literally(filter.lastReason)}%`})`

/** The downstreams that have FAILED deliveries. */
export async function failedDownstreams(sql: Sql): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`
    with recursive failing (name) as (
      select min(downstream) from delivery where status = 2
      union all
      select (select min(d.downstream) from delivery d where d.status = 2 and d.downstream > f.name)
      from failing f where f.name is not null
    )
    select name from failing where name is not null`
  return rows.map(row => row.name)
}

export interface Counted {
  matched: number
  /** More may match: the look ended at its limit. */
  partial: boolean
}

/** How many FAILED deliveries match: of a group with few failures, or of the oldest 10,000 of each downstream. */
export async function countFailed(sql: Sql, selection: Selection): Promise<Counted> {
  const inGroup = await countGroup(sql, selection)
  return inGroup === null ? await countOldest(sql, selection) : { matched: inGroup, partial: false }
}

/** Counts by the index of fingerprints. Null: no group is asked for, or it has more than 10,000 failures. */
async function countGroup(sql: Sql, selection: Selection): Promise<number | null> {
  const { fingerprint, downstream = null } = selection.filter
  if (fingerprint === undefined) return null
  const [row] = await sql<[{ matched: number; looked: number }]>`
    with looked as materialized (
      select task_id, downstream from failure where fingerprint = ${fingerprint} order by id limit ${mostCounted + 1}
    )
    select (select count(*) from looked)::int as looked, (
      select count(*) from (select distinct task_id, downstream from looked) f
        join delivery d on d.task_id = f.task_id and d.downstream = f.downstream and d.status = 2
        join task t on t.id = d.task_id
      where (select count(*) from looked) <= ${mostCounted}
        and (${downstream}::text is null or d.downstream = ${downstream})
        and ${matches(sql, selection)}
    )::int as matched`
  return row.looked > mostCounted ? null : row.matched
}

/** The time in the id of a task is that of the process that took it, and `created_at` is that of the database. */
const clocksApartMs = 3_600_000
const idAt = (at: string, apartMs: number): string => uuidAt(new Date(Date.parse(at) + apartMs))

async function countOldest(sql: Sql, selection: Selection): Promise<Counted> {
  const { downstream, from, to } = selection.filter
  const low = from === undefined ? lowestUuid : idAt(from, -clocksApartMs)
  const high = to === undefined ? highestUuid : idAt(to, clocksApartMs)
  const names = downstream === undefined ? await failedDownstreams(sql) : [downstream]
  const [row] = await sql<[{ matched: number; looked: number | null }]>`
    select (select count(*) from (
      select from unnest(${textArray(names)}::text[]) as o (name) cross join lateral (
        select f.* from delivery f
        where f.downstream = o.name and f.status = 2 and f.task_id between ${low}::uuid and ${high}::uuid
        order by f.task_id limit ${mostCounted}
      ) d join task t on t.id = d.task_id
      where ${matches(sql, selection)}
    ) m)::int as matched, (
      select max(looked.n) from unnest(${textArray(names)}::text[]) as o (name) cross join lateral (
        select count(*) as n from (
          select from delivery f
          where f.downstream = o.name and f.status = 2 and f.task_id between ${low}::uuid and ${high}::uuid
          limit ${mostCounted + 1}
        ) l
      ) looked
    )::int as looked`
  const { matched, looked } = row
  return { matched, partial: (looked ?? 0) > mostCounted }
}

/** The id of the operation: `id`, or that of a running one that takes all these deliveries already. Then there is no second one. */
export async function createOperation(
  sql: Sql,
  id: string,
  { filter, messageCodes }: Selection,
  matched: number,
  who: Actor
): Promise<string> {
  const codes = messageCodes && textArray(messageCodes)
  const [row] = await sql<[{ id: string }]>`
    with asked as materialized (
      select running_operation(${sql.json(filter as never)}::jsonb, ${codes}::text[]) as running
    ), made as (
      insert into operation (id, filter, message_codes, matched, created_by, created_by_id)
      select ${id}::uuid, ${sql.json(filter as never)}::jsonb, ${codes}::text[], ${matched}::int, ${who.name}, ${who.keyId ?? null}
      from asked where running is null
      returning id
    ), audited as (
      insert into audit (who, key_id, what, target, detail)
      select ${actor(sql, who)}, 'tasks.redeliver', id, ${sql.json({ filter, matched } as never)}::jsonb from made
    )
    select coalesce(running, ${id}::uuid) as id from asked`
  return row.id
}

/** False: no operation with this id is running. Deliveries that it is changing at this moment are still changed. */
export async function stopOperation(
  sql: Sql,
  { id, who, messageCodes }: { id: string; who: Actor; messageCodes: readonly string[] | null }
): Promise<boolean> {
  const rows = await sql`
    with stopped as (
      update operation set state = 'STOPPED', ended_at = now(), ended_by = ${who.name}, updated_at = now()
      where id = ${id} and state = 'RUNNING'
        and (${messageCodes === null}::boolean or message_codes <@ ${textArray(messageCodes ?? [])}::text[])
      returning id
    )
    insert into audit (who, key_id, what, target, detail)
    select ${actor(sql, who)}, 'operation.stop', id::text, '{"before": "RUNNING", "after": "STOPPED"}'::jsonb from stopped
    returning id`
  return rows.length > 0
}

/** Removes ended operations that are older than `days`, one a call, with up to `limit` rows of its list. True: there is more. */
export async function removeOldOperations(sql: Sql, days: number, limit: number): Promise<boolean> {
  const [row] = await sql<[{ is_some: boolean }]>`
    with old as materialized (
      select id from operation
      where state <> 'RUNNING' and ended_at < now() - ${days}::int * interval '1 day'
      order by id limit 1
    ), page as materialized (
      select operation_id, task_id, downstream from operation_delivery
      where operation_id = (select id from old)
      limit ${limit}
    ), items as (
      delete from operation_delivery i using page p
      where i.operation_id = p.operation_id and i.task_id = p.task_id and i.downstream = p.downstream
    ), ended as (
      delete from operation o using old where o.id = old.id and (select count(*) from page) < ${limit}
    )
    select exists (select from old) as is_some`
  return row.is_some
}
