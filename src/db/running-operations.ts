// How a bulk redelivery runs: one process takes a few deliveries at a time, in the order of the index of FAILED ones. It records the
// deliveries before it changes them: a process that follows a dead one then knows which of them are half done.
import { plainArray, textArray } from './arrays.ts'
import { matches } from './operations.ts'
import type { Sql } from './pool.ts'
import { lastFailedAtOfD } from './reads.ts'
import type { operation, Row } from './schema.ts'
import { startMs } from './task-progress.ts'
import { lowestUuid } from '../domain/ids.ts'

export type RunningOperation = Pick<
  Row<typeof operation>,
  'id' | 'filter' | 'message_codes' | 'cursors' | 'created_by'
> & {
  /** This process did not run it before. */
  taken_over: boolean
}

const leaseS = 10

/** Claims all running operations for one process. While it lives, another process gets none. */
export function claimOperations(sql: Sql, node: string): Promise<RunningOperation[]> {
  return sql<RunningOperation[]>`
    with first as materialized (
      -- Who waits here for the claim of another process learns of it, though its snapshot is older. So it takes nothing either of what
      -- came in between.
      select owner, leased_until from operation
      where state = 'RUNNING'
      order by id
      limit 1
      for no key update
    ), mine as materialized (
      select id, owner from operation o
      where state = 'RUNNING' and (owner = ${node} or leased_until is null or leased_until < now())
        and exists (select from first f where f.owner = ${node} or f.leased_until is null or f.leased_until < now())
        and not exists (select from operation x where x.state = 'RUNNING' and x.owner <> ${node} and x.leased_until > now())
      order by id
      for no key update
    )
    update operation o set owner = ${node}, leased_until = now() + ${leaseS} * interval '1 s'
    from mine
    where o.id = mine.id and o.state = 'RUNNING'
    returning o.id, o.filter, o.message_codes, o.cursors, o.created_by, mine.owner is distinct from ${node} as taken_over`
}

export interface FailedDelivery {
  taskId: string
  taskNo: string
  downstream: string
  attempt: number
  /** 1, and one more after each redelivery. */
  round: number
  messageCode: string
  retryTimes: number | null
  orderingKey: string | null
  /** It still has its place in its orderingKey. */
  inOrder: boolean
  /** ms until the start time of its task, if it was never tried; else 0. */
  startMs: number
  /** It needs force, because its deliverBefore has passed or its prerequisite was deleted. Or retention has removed it. */
  isSkipped: boolean
}

/** The next matching deliveries after `after`. `next` is where to continue; `end`: nothing follows. */
export async function findFailed(
  sql: Sql,
  running: RunningOperation,
  downstream: string,
  after: string | undefined,
  limit: number
): Promise<{ found: FailedDelivery[]; next: string }> {
  const rows = await sql<(FailedDelivery | LastLooked)[]>`
    with look as materialized (
      select f.* from delivery f
      where f.downstream = ${downstream} and f.status = 2
        and f.task_id > ${after ?? lowestUuid}::uuid
      order by f.task_id
      limit ${lookedAtOnce}
    ), found as materialized (
      select d.task_id as "taskId", d.downstream, d.attempt, ${failedColumns(sql)}
      from look d join task t on t.id = d.task_id
      cross join (select created_at from operation where id = ${running.id}) o
      -- A delivery that failed after the operation began is not part of it. One that lost its place in its key since then still is.
      where (d.updated_at <= o.created_at or ${sql.unsafe(lastFailedAtOfD)} <= o.created_at)
        and ${matches(sql, { filter: running.filter, messageCodes: running.message_codes })}
      order by d.task_id
      limit ${limit}
    )
    select * from found
    union all
    select task_id, null, null, null, null, null, null, null, null, null, null from (
      select task_id from look
      where (select count(*) from look) = ${lookedAtOnce} and (select count(*) from found) < ${limit}
      order by task_id desc limit 1
    ) last`
  const found = rows.filter(row => row.attempt !== null)
  const looked = rows.find(row => row.attempt === null)
  const next = looked?.taskId ?? (found.length === limit ? found.at(-1)?.taskId : undefined)
  return { found, next: next ?? 'end' }
}

const lookedAtOnce = 2_000

/** The end of a look that found less than its limit, though more may follow. */
interface LastLooked {
  taskId: string
  attempt: null
}

/** The columns of a FailedDelivery that come from a delivery `d` and its task `t`. */
const failedColumns = (sql: Sql) => sql`
  t.task_no as "taskNo", coalesce(d.round, 1) as round, t.message_code as "messageCode", t.retry_times as "retryTimes", d.ordering_key as "orderingKey",
  coalesce(d.position > 0, false) as "inOrder",
  case when d.attempt = 0 then ${startMs(sql)} else 0 end as "startMs",
  t.id is null or d.task_id is null or coalesce(d.reason = 'DEPENDENCY_DELETED' or d.deliver_before <= now(), false) as "isSkipped"`

/** Records the deliveries to change, and the progress. False: the operation was stopped, or another process runs it. */
export async function takeDeliveries(
  sql: Sql,
  { id, node }: { id: string; node: string },
  found: readonly FailedDelivery[],
  cursors: Record<string, string>
): Promise<boolean> {
  const [row] = await sql<[{ alive: boolean }]>`
    with alive as (
      update operation set cursors = cursors || ${sql.json(cursors)}, updated_at = now(),
        leased_until = now() + ${leaseS} * interval '1 s'
      where id = ${id} and state = 'RUNNING' and owner = ${node}
      returning id
    ), taken as (
      insert into operation_delivery (operation_id, task_id, downstream, attempt, round)
      select alive.id, f.* from alive cross join unnest(
        ${plainArray(found.map(one => one.taskId))}::uuid[], ${textArray(found.map(one => one.downstream))}::text[],
        ${plainArray(found.map(one => one.attempt))}::int[], ${plainArray(found.map(one => one.round))}::smallint[]
      ) as f (task_id, downstream, attempt, round)
      on conflict do nothing
    )
    select exists (select from alive) as alive`
  return row.alive
}

/** The taken deliveries without a result: somebody had locked them, or a process died before it changed them. */
export function findTaken(sql: Sql, operationId: string): Promise<FailedDelivery[]> {
  return sql<FailedDelivery[]>`
    select i.task_id as "taskId", i.downstream, i.attempt, ${failedColumns(sql)}
    from operation_delivery i left join task t on t.id = i.task_id
      left join delivery d on d.task_id = i.task_id and d.downstream = i.downstream
    where i.operation_id = ${operationId} and i.result is null`
}

/** A delivery `d` is in a later round than when it was taken as `i`. By attempts alone, one that was never tried in its round always is. */
const isAnew = (sql: Sql) => sql`coalesce(coalesce(d.round, 1) > i.round, d.round_from > i.attempt, false)`

/**
 * Writes the results of these taken deliveries. A later round means: redelivered. Writes nothing if another process runs the operation
 * now: it may have taken deliveries that it has not changed yet.
 */
export async function recordTaken(
  sql: Sql,
  { id: operationId, node }: { id: string; node: string },
  taken: readonly Pick<FailedDelivery, 'taskId' | 'downstream'>[]
): Promise<void> {
  const ids = plainArray(taken.map(one => one.taskId))
  // The ids by themselves too: on a table without statistics PostgreSQL would read all that the operation has taken.
  await sql`
    with mine as (
      select id from operation where id = ${operationId} and owner = ${node}
    ), known as (
      select i.task_id, i.downstream, ${isAnew(sql)} as is_anew
      from mine cross join unnest(
        ${ids}::uuid[], ${textArray(taken.map(one => one.downstream))}::text[]
      ) as a (task_id, downstream)
        join operation_delivery i on i.operation_id = mine.id and i.task_id = a.task_id and i.downstream = a.downstream
        left join delivery d on d.task_id = i.task_id and d.downstream = i.downstream
      where i.task_id = any(${ids}::uuid[]) and i.result is null
    ), recorded as (
      update operation_delivery i set result = case when k.is_anew then 'redelivered' else 'skipped' end
      from known k
      where i.operation_id = ${operationId} and i.task_id = k.task_id and i.downstream = k.downstream and i.result is null
        and i.task_id = any(${ids}::uuid[])
      returning i.result
    )
    update operation set updated_at = now(),
      redelivered = redelivered + (select count(*) from recorded where result = 'redelivered'),
      skipped = skipped + (select count(*) from recorded where result = 'skipped')
    where id in (select id from mine)`
}

/**
 * Writes the results that stopped operations still lack: their process died in between. It may also be slow, so this waits for a
 * minute after its lease. A stopped operation without an owner has all of its results.
 */
export async function recordStopped(sql: Sql): Promise<void> {
  await sql`
    with stopped as materialized (
      select id from operation
      where state = 'STOPPED' and owner is not null and leased_until < now() - interval '1 minute'
      order by id
      for no key update skip locked
    ), known as (
      select i.operation_id, i.task_id, i.downstream, ${isAnew(sql)} as is_anew
      from stopped join operation_delivery i on i.operation_id = stopped.id
        left join delivery d on d.task_id = i.task_id and d.downstream = i.downstream
      where i.result is null
    ), recorded as (
      update operation_delivery i set result = case when k.is_anew then 'redelivered' else 'skipped' end
      from known k
      where i.operation_id = k.operation_id and i.task_id = k.task_id and i.downstream = k.downstream and i.result is null
      returning i.operation_id, i.result
    )
    update operation o set owner = null, updated_at = now(),
      redelivered = redelivered + (select count(*) from recorded r where r.operation_id = o.id and r.result = 'redelivered'),
      skipped = skipped + (select count(*) from recorded r where r.operation_id = o.id and r.result = 'skipped')
    from stopped
    where o.id = stopped.id`
}

export async function finishOperation(sql: Sql, { id, node }: { id: string; node: string }): Promise<void> {
  await sql`
    update operation set state = 'DONE', ended_at = now(), updated_at = now()
    where id = ${id} and state = 'RUNNING' and owner = ${node}`
}

/**
 * The condition that a delivery `d` uses a part of its downstream's limit: it is due, in flight, or about to get its turn in its key. If
 * `known` does not name its downstream, perhaps no process will ever claim it: after 10 s it no longer counts.
 */
const isBusy = (sql: Sql, known: readonly string[]) => sql`
  (d.phase = 'IN_FLIGHT' or d.phase = 'BLOCKED' and d.updated_at + interval '10 s' > now() or d.phase = 'WAITING' and d.next_action_at + interval '0' <= now()
    and (d.downstream = any(${textArray(known)}::text[]) or d.next_action_at + interval '10 s' > now()))`

/** The keys of those deliveries that are busy. */
export async function findBusy(
  sql: Sql,
  deliveries: readonly { taskId: string; downstream: string }[],
  known: readonly string[]
): Promise<Set<string>> {
  if (deliveries.length === 0) return new Set()
  const rows = await sql<{ key: string }[]>`
    select d.task_id || d.downstream as key
    from unnest(
      ${plainArray(deliveries.map(one => one.taskId))}::uuid[], ${textArray(deliveries.map(one => one.downstream))}::text[]
    ) as a (task_id, downstream) join delivery d on d.task_id = a.task_id and d.downstream = a.downstream
    where d.task_id = any(${plainArray(deliveries.map(one => one.taskId))}::uuid[]) and ${isBusy(sql, known)}`
  return new Set(rows.map(row => row.key))
}

/** Busy deliveries among all that running operations have redelivered, for a process that follows another one. */
export function findStillBusy(
  sql: Sql,
  known: readonly string[],
  limit: number
): Promise<{ taskId: string; downstream: string }[]> {
  return sql<{ taskId: string; downstream: string }[]>`
    select d.task_id as "taskId", d.downstream
    from operation o join operation_delivery i on i.operation_id = o.id and i.result = 'redelivered'
      join delivery d on d.task_id = i.task_id and d.downstream = i.downstream
    where o.state = 'RUNNING' and ${isBusy(sql, known)}
    limit ${limit}`
}
