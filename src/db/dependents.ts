// Tasks that wait for others. A row of `dependency` is open while its task still waits; only open rows are searched.
import { raiseAgain } from './alarms.ts'
import { plainArray, textArray } from './arrays.ts'
import type { Content } from '../domain/content.ts'
import type { Sql } from './pool.ts'
import { startMs } from './task-progress.ts'
import {
  insertDeliveriesCte,
  insertedOf,
  insertTasksSql,
  resolveConflicts,
  resultSelect,
  type Done,
  type InsertResult,
  type NewTask
} from './tasks.ts'
import { isError } from '../runtime/text-of.ts'

/** An existing task that may be a prerequisite. */
interface Found extends Content {
  id: string
  state: string
  messageCode: string
}

/** By taskNo; unknown ones are missing. */
export async function findTasks(sql: Sql, taskNos: readonly string[]): Promise<Map<string, Found>> {
  const rows = await sql<(Found & { task_no: string })[]>`
    select task_no, id, state, message_code as "messageCode", content_hash as "contentHash", content_normal as "contentNormal"
    from task where task_no = any(${textArray(taskNos)}::text[])`
  return new Map(rows.map(({ task_no, ...found }) => [task_no, found]))
}

/** One task waits for another. `isNew`: the same statement stores the other task, unless its number is taken first. */
export interface Wait {
  taskId: string
  afterId: string
  isNew: boolean
}

/**
 * Group commit of tasks that wait for others: all their deliveries are BLOCKED. Rejects, with nothing stored, if a new
 * prerequisite could not be stored: the caller then stores the tasks one by one. taskNos are distinct.
 */
export async function insertDependents(
  sql: Sql,
  tasks: readonly NewTask[],
  waits: readonly Wait[]
): Promise<InsertResult[]> {
  const [done] = await sql<[Done]>`
    with stored as (
      ${insertTasksSql(sql, tasks, 'ACTIVE')}
    ),${insertDeliveriesCte(sql, tasks, 'BLOCKED')}, waiting as (
      insert into dependency (task_id, after_id)
      -- The table refuses null, and so everything.
      select task_id, case when not is_new or (after_id in (select id from stored)) is true then after_id end
      from unnest(
        ${plainArray(waits.map(one => one.taskId))}::uuid[], ${plainArray(waits.map(one => one.afterId))}::uuid[],
        ${plainArray(waits.map(one => one.isNew))}::boolean[]
      ) as w (task_id, after_id, is_new)
      where (task_id in (select id from stored)) is true
    )
    ${resultSelect(sql, tasks)}`
  return resolveConflicts(sql, tasks, insertedOf(done, tasks))
}

/** Did insertDependents reject because a new prerequisite could not be stored? */
export const isNotStored = (err: unknown): boolean =>
  isError(err) &&
  'code' in err &&
  err.code === '23502' &&
  'column_name' in err &&
  err.column_name === 'after_id'

/** A task that waits, with the state of its prerequisites. */
export interface Dependent {
  taskId: string
  taskNo: string
  messageCode: string
  /** ms until its start time. */
  startMs: number
  /** Its deliveries that are BLOCKED. `alarmed`: the alarm that a prerequisite FAILED is open, or was resolved after the last failure. */
  blocked: { downstream: string; orderingKey: string | null; attempt: number; alarmed: boolean }[]
  /** The number of prerequisites that it still waits for, by their state. */
  sending: number
  failed: number
  deleted: number
  /** Ids of the prerequisites that are done. */
  done: string[]
}

/**
 * Tasks that wait: those of `ids`, and all that wait for a task of `ended`, by id, after `from`. A prerequisite counts by the visible
 * status of its task: FAILED if any of its deliveries is, HANDLED if any is. A task of which all deliveries were skipped is done too.
 */
export function findDependents(
  sql: Sql,
  { ids, ended }: { ids: readonly string[]; ended: readonly string[] },
  from: string,
  limit: number
): Promise<Dependent[]> {
  return sql<Dependent[]>`
    with waiting as materialized (
      select task_id
      from (
        select x.task_id from dependency x where x.after_id = any(${plainArray(ended)}::uuid[]) and x.done_at is null
        union
        select x.task_id from dependency x where x.task_id = any(${plainArray(ids)}::uuid[]) and x.done_at is null
      ) x
      where task_id > ${from}::uuid
      order by task_id
      limit ${limit}
    )
    select w.task_id as "taskId", t.task_no as "taskNo", t.message_code as "messageCode",
      ${startMs(sql)} as "startMs",
      (select coalesce(json_agg(json_build_object('downstream', d.downstream, 'orderingKey', d.ordering_key, 'attempt', d.attempt, 'alarmed', exists (
          select from alarm a
          where a.task_id = d.task_id and a.downstream = d.downstream and a.attempt = d.attempt
            and a.kind = 'DEPENDENCY_FAILED' and (a.resolved_at is null or not ${hasFailedSince(sql, 'a')})
        )) order by d.downstream), '[]')
        from delivery d where d.task_id = w.task_id and d.phase = 'BLOCKED') as blocked,
      p.sending, p.failed, p.deleted, p.done
    from waiting w
    cross join lateral (select * from task where id = w.task_id offset 0) t
    cross join lateral (
      select count(*) filter (where o.is = 'sending')::int as sending, count(*) filter (where o.is = 'failed')::int as failed,
        count(*) filter (where o.is = 'deleted')::int as deleted,
        coalesce(array_agg(x.after_id::text) filter (where o.is = 'done'), '{}') as done
      from dependency x cross join lateral (
        select case
          when bool_or(d.status = 0) then 'sending'
          when bool_or(d.status = 2) then 'failed'
          when bool_or(d.status = 1) or bool_and(d.reason = 'SKIPPED') then 'done'
          else 'deleted' end as is
        from delivery d where d.task_id = x.after_id
      ) o
      where x.task_id = w.task_id and x.done_at is null
    ) p
    order by w.task_id`
}

/** A prerequisite of the alarm's task FAILED again, or another one did, since somebody resolved the alarm. */
const hasFailedSince = (sql: Sql, alarm: 'a' | 'alarm') => sql`exists (
          select from dependency x cross join lateral (
            select downstream, status from delivery where task_id = x.after_id offset 0
          ) p cross join lateral (
            select created_at from failure where task_id = x.after_id and downstream = p.downstream order by id desc limit 1
          ) f
          where x.task_id = ${sql(alarm)}.task_id and x.done_at is null and p.status = 2 and f.created_at > ${sql(alarm)}.resolved_at
        )`

/** Ids of tasks that wait, in order, after `from`. */
export async function findWaiting(sql: Sql, from: string, limit: number): Promise<string[]> {
  const rows = await sql<{ task_id: string }[]>`
    select distinct task_id from dependency
    where done_at is null and task_id > ${from}::uuid
    order by task_id
    limit ${limit}`
  return rows.map(row => row.task_id)
}

/**
 * Ends waits: of each of `tasks` for all its prerequisites, and of each of `pairs` for the prerequisite that it names. Pairs leave the last
 * wait of a task open: each of two calls may have seen another prerequisite that was not done, and only open waits are looked at. The look
 * that finds all of them done names the task.
 */
export async function closeDependencies(
  sql: Sql,
  tasks: readonly string[],
  pairs: readonly (readonly [taskId: string, afterId: string])[]
): Promise<void> {
  const ids = plainArray([...tasks, ...pairs.map(([taskId]) => taskId)])
  await sql`
    with waits as materialized (
      select x.task_id, x.after_id, (x.task_id = any(${plainArray(tasks)}::uuid[]) or (x.task_id, x.after_id) in (
          select * from unnest(
            ${plainArray(pairs.map(([taskId]) => taskId))}::uuid[], ${plainArray(pairs.map(([, afterId]) => afterId))}::uuid[]
          )
        )) as is_over
      from dependency x
      where x.done_at is null and x.task_id = any(${ids}::uuid[])
      -- All that are open, in one order: which one is the last is only certain when they are locked.
      order by x.task_id, x.after_id
      for no key update
    ), closed as (
      select task_id, after_id, is_over, bool_and(is_over) over (partition by task_id) as is_last from waits
    ), turns as (
      insert into promotion (downstream, ordering_key)
      select d.downstream, d.ordering_key
      from delivery d
      -- A FAILED one may be requeued at this moment. Its promotion then saw the wait that ends here.
      where d.task_id = any(${plainArray(tasks)}::uuid[]) and d.status in (0, 2) and d.position > 0
    )
    update dependency x set done_at = now()
    from closed c
    where x.task_id = c.task_id and x.after_id = c.after_id
      and c.is_over and (not c.is_last or c.task_id = any(${plainArray(tasks)}::uuid[]))`
}

/** Raises one alarm for each of these deliveries: it waits for a task that FAILED. Returns the ids of the tasks with a new alarm. */
export async function raiseDependencyFailed(
  sql: Sql,
  deliveries: readonly { taskId: string; downstream: string; attempt: number }[]
): Promise<Set<string>> {
  const raised = await sql<{ task_id: string }[]>`
    insert into alarm (task_id, downstream, attempt, kind)
    select d.task_id, d.downstream, d.attempt, 'DEPENDENCY_FAILED'
    from unnest(
      ${plainArray(deliveries.map(one => one.taskId))}::uuid[], ${textArray(deliveries.map(one => one.downstream))}::text[],
      ${plainArray(deliveries.map(one => one.attempt))}::int[]
    ) as a (task_id, downstream, attempt)
    -- Another process may have unblocked it since. That resolved its alarm, so a new alarm would never be resolved.
    join delivery d on d.task_id = a.task_id and d.downstream = a.downstream and d.attempt = a.attempt and d.phase = 'BLOCKED'
    where d.task_id = any(${plainArray(deliveries.map(one => one.taskId))}::uuid[])
    order by d.task_id, d.downstream
    ${raiseAgain(sql, sql` and ${hasFailedSince(sql, 'alarm')}`)}
    returning task_id`
  return new Set(raised.map(row => row.task_id))
}

/** Resolves these alarms: the deliveries no longer wait for a task that FAILED, though maybe for their turn. */
export async function resolveDependencyFailed(
  sql: Sql,
  deliveries: readonly { taskId: string; downstream: string }[]
): Promise<void> {
  const ids = plainArray(deliveries.map(one => one.taskId))
  await sql`
    update alarm a set resolved_at = now()
    from unnest(
      ${ids}::uuid[], ${textArray(deliveries.map(one => one.downstream))}::text[]
    ) as f (task_id, downstream)
    where a.task_id = any(${ids}::uuid[]) and a.task_id = f.task_id and a.downstream = f.downstream
      and a.kind = 'DEPENDENCY_FAILED' and a.resolved_at is null`
}
