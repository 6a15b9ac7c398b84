// Half messages: tasks that were posted as prepared. An end changes `task.state` from PREPARED, which succeeds only once.
import { plainArray, textArray } from './arrays.ts'
import { actor } from './audit.ts'
import { taskColumns, taskOf, type TaskRow } from './task-row.ts'
import type { Sql } from './pool.ts'
import {
  insertDeliveriesCte,
  insertedOf,
  insertTasksSql,
  resolveConflicts,
  resultSelect,
  type Done,
  type InsertResult,
  type NewTask,
  type SeenHalf
} from './tasks.ts'
import type { Actor, CheckAnswer, Task, TaskState } from '../domain/types.ts'

/** `ended_by` of a half message that a check ended. The name of a key holds no colon. */
export const byCheck = (check: number): string => `check:${check}`
export const isByCheck = (by: string): boolean => by.startsWith('check:')

const resolvingAlarm = (sql: Sql) => sql`resolved as (
      update alarm set resolved_at = now()
      where task_id in (select id from stored) and kind = 'PREPARED_STUCK' and resolved_at is null
    )`

/** CTEs that record the end of the half message of the task in `stored`, and resolve its alarm. */
export const endingHalf = (sql: Sql, by: string, answer: 'COMMITTED' | 'ROLLED_BACK') => sql`ended as (
      update prepared set next_action_at = null, leased_until = null, ended_at = now(), ended_by = ${by},
        last_answer = case when ${isByCheck(by)}::boolean then ${answer} else last_answer end
      where task_id in (select id from stored)
    ), ${resolvingAlarm(sql)}`

/** Group commit of prepared tasks: no delivery, and a clock for the first check. taskNos are distinct. */
export async function insertPrepared(sql: Sql, tasks: readonly NewTask[]): Promise<InsertResult[]> {
  // A delay counts from the commit: until then there is no start time.
  const timeless = tasks.map(task => ({ ...task, delayMs: null }))
  // A half message gets its place in its orderingKey at its commit.
  const unplaced = tasks.map(task => ({ ...task, orderingKey: null }))
  const [done] = await sql<[Done]>`
    with stored as (
      ${insertTasksSql(sql, timeless, 'PREPARED')}
    ), stored_deliveries as (
      insert into prepared (
        task_id, message_code, next_action_at, check_after_ms, prepared_at, delay_ms, deliver_before
      )
      select id, message_code, now() + check_after_ms * interval '1 ms', check_after_ms, now(), delay_ms, deliver_before
      from unnest(
        ${plainArray(tasks.map(task => task.id))}::uuid[], ${textArray(tasks.map(task => task.messageCode))}::text[],
        ${plainArray(tasks.map(task => task.prepared?.checkAfterMs))}::bigint[],
        ${plainArray(tasks.map(task => task.delayMs))}::bigint[],
        ${textArray(tasks.map(task => task.deliverBefore?.toISOString()))}::timestamptz[]
      ) as p (id, message_code, check_after_ms, delay_ms, deliver_before)
      where (id in (select id from stored)) is true
      returning task_id, message_code as downstream, null::text as phase
    )
    ${resultSelect(sql, unplaced)}`
  return resolveConflicts(sql, tasks, insertedOf(done, tasks))
}

/**
 * The CTE `locked`: the half messages that are still PREPARED and unchanged since they were read. A check that commits while this
 * statement waits for the lock may raise an alarm that the statement cannot see, and would leave open. The caller then reads the half
 * message again.
 */
export const lockingHalves = (sql: Sql, halves: readonly SeenHalf[]) => {
  const ids = plainArray(halves.map(one => one.id))
  return sql`locked as materialized (
      select t.id
      from unnest(
        ${ids}::uuid[], ${plainArray(halves.map(one => one.answered))}::int[], ${plainArray(halves.map(one => one.unanswered))}::int[]
      ) as a (id, answered, unanswered)
        join task t on t.id = a.id join prepared p on p.task_id = a.id
      where t.id = any(${ids}::uuid[]) and p.task_id = any(${ids}::uuid[]) and t.state = 'PREPARED'
        and p.answered = a.answered and p.unanswered = a.unanswered
      order by t.id
      for update of t, p
    )`
}

/**
 * Group commit of commits: makes the deliveries of half messages that are unchanged since they were read, as an accept makes its own.
 * The others are `known`: another call ended them, or a check was recorded. Tasks are distinct.
 */
export async function commitTasks(sql: Sql, tasks: readonly NewTask[]): Promise<InsertResult[]> {
  const ids = plainArray(tasks.map(task => task.id))
  const [done] = await sql<[Done]>`
    with ${lockingHalves(
      sql,
      tasks.flatMap(task => task.committed?.seen ?? [])
    )}, stored as (
      update task t set state = 'ACTIVE',
        deliver_start_time = coalesce(t.deliver_start_time, now() + a.delay_ms * interval '1 ms')
      from unnest(${ids}::uuid[], ${plainArray(tasks.map(task => task.delayMs))}::float8[]) as a (id, delay_ms)
      where t.id = any(${ids}::uuid[]) and t.id = a.id and (t.id in (select id from locked)) is true
      returning t.id
    ), ended as (
      update prepared p set next_action_at = null, leased_until = null, ended_at = now(), ended_by = a.ended_by,
        last_answer = case when a.ended_by like 'check:%' then 'COMMITTED' else p.last_answer end
      from unnest(${ids}::uuid[], ${textArray(tasks.map(task => task.committed?.by))}::text[]) as a (id, ended_by)
      where p.task_id = any(${ids}::uuid[]) and p.task_id = a.id and (p.task_id in (select id from stored)) is true
    ), ${resolvingAlarm(sql)},${insertDeliveriesCte(sql, tasks)}
    ${resultSelect(sql, tasks)}`
  return insertedOf(done, tasks).map(one => one ?? { kind: 'known', content: null })
}

/** False: it is no longer PREPARED, or a check was recorded since it was read. */
export async function rollBackTask(sql: Sql, half: SeenHalf, by: string): Promise<boolean> {
  const rows = await sql`
    with ${lockingHalves(sql, [half])}, stored as (
      update task set state = 'CANCELLED', unique_biz = null
      where id = ${half.id} and (id in (select id from locked)) is true
      returning id
    ), ${endingHalf(sql, by, 'ROLLED_BACK')}
    select id from stored`
  return rows.length > 0
}

/** A half message, with what its end needs. */
export interface HalfMessage {
  task: Task
  state: TaskState
  delayMs: number | null
  deliverBefore: Date | null
  biz: NewTask['biz']
  seen: SeenHalf
}

interface HalfRow extends TaskRow {
  biz_type: string | null
  biz_key: string | null
  unique_biz: boolean | null
  state: TaskState
  is_half: boolean
  delay_ms: number | null
  deliver_before: Date | null
  answered: number
  unanswered: number
}

/** null: no such task; 'never': it was not posted as prepared. */
export async function readHalf(sql: Sql, taskNo: string): Promise<HalfMessage | 'never' | null> {
  const [row] = await sql<HalfRow[]>`
    select ${taskColumns(sql)}, t.state, p.task_id is not null as is_half, p.delay_ms::float8 as delay_ms, p.deliver_before,
      p.answered, p.unanswered, t.biz_type, t.biz_key, t.unique_biz
    from task t left join prepared p on p.task_id = t.id
    where t.task_no = ${taskNo}`
  if (!row) return null
  if (!row.is_half) return 'never'
  const { biz_type: type, biz_key: key, unique_biz: unique } = row
  return {
    task: taskOf(row),
    state: row.state,
    delayMs: row.delay_ms,
    deliverBefore: row.deliver_before,
    biz: type === null || key === null ? null : { type, key, unique: unique ?? false },
    seen: { id: row.id, answered: row.answered, unanswered: row.unanswered }
  }
}

/** A check that this process alone may make now. */
export interface ClaimedCheck {
  task: Task
  preparedAt: Date
  /** The number of this check. Its answer counts only for this number. */
  check: number
  checkAfterMs: number
  /** The number of answers UNKNOWN before, and of checks in a row without an answer. */
  answered: number
  unanswered: number
  /** Since it was prepared, by the database's clock. */
  ageMs: number
}

interface CheckRow extends TaskRow {
  prepared_at: Date
  checks: number
  check_after_ms: number
  answered: number
  unanswered: number
  age_ms: number
}

const checkOf = (row: CheckRow): ClaimedCheck => ({
  task: taskOf(row),
  preparedAt: row.prepared_at,
  check: row.checks,
  checkAfterMs: row.check_after_ms,
  answered: row.answered,
  unanswered: row.unanswered,
  ageMs: row.age_ms
})

const checkColumns = (sql: Sql) => sql`
  ${taskColumns(sql)}, p.prepared_at, p.checks, p.check_after_ms::float8 as check_after_ms, p.answered, p.unanswered,
  extract(epoch from now() - p.prepared_at)::float8 * 1000 as age_ms`

/**
 * Claims due checks: up to `room`, and up to the room of each messageCode. Of messageCodes other than `codes`, it claims checks that
 * are due for a minute. A claim is a lease: if its process dies, another process repeats the check.
 */
export async function claimChecks(
  sql: Sql,
  rooms: readonly { messageCode: string; room: number }[],
  limits: { codes: readonly string[]; room: number; orphans: number; leaseMs: number }
): Promise<ClaimedCheck[]> {
  const { codes, room, orphans, leaseMs } = limits
  const rows = await sql<CheckRow[]>`
    with due as materialized (
      select d.task_id
      from unnest(${textArray(rooms.map(one => one.messageCode))}::text[], ${plainArray(rooms.map(one => one.room))}::int[]) as c (message_code, room)
      cross join lateral (
        select task_id from prepared
        where message_code = c.message_code and next_action_at <= now()
        order by next_action_at
        limit c.room
        for no key update skip locked
      ) d
      limit ${room}
    ), orphaned as materialized (
      select task_id from prepared
      where next_action_at <= now() - interval '1 minute' and message_code <> all(${textArray(codes)}::text[])
      limit ${orphans}
      for no key update skip locked
    ), p as (
      update prepared set checks = checks + 1, next_action_at = now() + ${leaseMs}::float8 * interval '1 ms',
        leased_until = now() + ${leaseMs}::float8 * interval '1 ms'
      where task_id in (select task_id from due union all select task_id from orphaned)
      returning *
    )
    select ${checkColumns(sql)} from p join task t on t.id = p.task_id`
  return rows.map(checkOf)
}

/**
 * Claims the check of one task, due or not. Audited, unless `who` posted the task. null: it is no longer PREPARED, or another check of it
 * runs at this moment.
 */
export async function claimCheck(
  sql: Sql,
  taskId: string,
  leaseMs: number,
  who: Actor
): Promise<ClaimedCheck | null> {
  const rows = await sql<CheckRow[]>`
    with p as (
      update prepared set checks = checks + 1, next_action_at = now() + ${leaseMs}::float8 * interval '1 ms',
        leased_until = now() + ${leaseMs}::float8 * interval '1 ms'
      where task_id = ${taskId} and next_action_at is not null and (leased_until is null or leased_until <= now())
      returning *
    ), audited as (
      insert into audit (who, key_id, what, target)
      select ${actor(sql, who)}, 'task.check', t.task_no from p join task t on t.id = p.task_id where t.created_by <> ${who.name}
    )
    select ${checkColumns(sql)} from p join task t on t.id = p.task_id`
  return rows.map(checkOf)[0] ?? null
}

/** The result of a check that ended nothing. */
interface CheckRecord {
  taskId: string
  check: number
  answer: CheckAnswer
  reason: string | null
  /** Until the next check. */
  waitMs: number
  isStuck: boolean
}

/** False: the task was ended meanwhile, or another check has begun. */
export async function recordCheck(sql: Sql, record: CheckRecord): Promise<boolean> {
  const rows = await sql`
    with recorded as (
      update prepared set leased_until = null, last_answer = ${record.answer}, last_reason = ${record.reason},
        last_checked_at = now(), next_action_at = now() + ${record.waitMs}::float8 * interval '1 ms',
        answered = answered + case when ${record.answer} = 'UNKNOWN' then 1 else 0 end,
        unanswered = case when ${record.answer} = 'NONE' then unanswered + 1 else 0 end
      where task_id = ${record.taskId} and checks = ${record.check} and next_action_at is not null
      returning task_id
    ), raised as (
      insert into alarm (task_id, downstream, attempt, kind)
      select task_id, '', 0, 'PREPARED_STUCK' from recorded where ${record.isStuck}::boolean
      -- Each later check of a stuck task comes here: an alarm that an operator has resolved is not raised again.
      on conflict (task_id, downstream, attempt, kind) do nothing
    )
    select from recorded`
  return rows.length > 0
}

/** How many are PREPARED, and since when the oldest of them, ms. */
export async function countPrepared(sql: Sql): Promise<{ count: number; oldestMs: number }> {
  const [row] = await sql<[{ count: number; oldest_ms: number | null }]>`
    select count(*)::int as count, extract(epoch from now() - min(prepared_at))::float8 * 1000 as oldest_ms
    from prepared where next_action_at is not null`
  return { count: row.count, oldestMs: row.oldest_ms ?? 0 }
}
