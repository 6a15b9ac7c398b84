import type { Sql } from './pool.ts'
import type { delivery, Row, task } from './schema.ts'
import { plainArray, textArray } from './arrays.ts'
import { findBizTaken, type Biz } from './biz.ts'
import type { Invalid } from '../runtime/errors.ts'
import { statusWord } from './views.ts'
import type { Reason, Status, TaskState } from '../domain/types.ts'

/** A task to store. Its text members are as posted; times are Dates; `delayMs` counts from the database's now. */
export interface NewTask {
  id: string
  taskNo: string
  messageCode: string
  sceneType: string
  messageBody: string
  contentHash: string
  startAt: Date | null
  delayMs: number | null
  deliverBefore: Date | null
  needCallback: boolean | null
  retryTimes: number | null
  extend: string | null
  traceparent: string | null
  createdBy: string
  biz?: Biz | null
  /** It waits for these tasks. */
  after?: After | null
  /** Posted as prepared: no delivery is made, and its producer is asked from then on. */
  prepared?: { checkAfterMs: number }
  /** It was stored as prepared, and is committed now: only its deliveries are new. `by`: who said so. */
  committed?: { by: string; createdAt: Date }
  deliveries: NewDelivery[]
}

/** The tasks to wait for, by number. */
export interface After {
  taskNos: readonly string[]
  /** The messageCodes that whoever posts may know of; null: all. */
  codes: readonly string[] | null
  /** What came later in the same call does not count, though it is stored by now. */
  later?: ReadonlySet<string>
}

export interface NewDelivery {
  downstream: string
  /** The handler's `when` said no: stored as DELETED, SKIPPED. */
  skipped: boolean
  /** Claim it in the same commit if it is due; else it waits for a dispatcher. */
  claim: boolean
  leaseMs: number
  tries: number
  needsReceipt: boolean
}

/** What became of one NewTask. `inFlight` are indexes into its deliveries. */
export type InsertResult =
  | { kind: 'created'; at: Date; inFlight: number[] }
  /** contentHash null: retention removed it at this very moment. */
  | { kind: 'known'; contentHash: string | null; taskNo: string }
  /** Another task has its business key; `by` is that one's taskNo. */
  | { kind: 'biz_taken'; by: string }
  /** It names tasks to wait for that it cannot wait for. */
  | { kind: 'invalid'; errors: readonly Invalid[] }

/** Group commit of accepts: tasks and deliveries, the first claim included, in one statement. taskNos are distinct. */
export const insertTasks = (sql: Sql, tasks: readonly NewTask[]): Promise<InsertResult[]> =>
  insert(sql, tasks, sql``)

/** The same of rows of the outbox, each beside its task; the same statement takes those away whose task it stored. */
export const insertFromOutbox = (
  sql: Sql,
  tasks: readonly NewTask[],
  rowIds: readonly number[]
): Promise<InsertResult[]> =>
  insert(
    sql,
    tasks,
    sql`, gone as (
      delete from outbox where id in (
        select r.row_id
        from unnest(
          ${plainArray(rowIds)}::bigint[], ${plainArray(tasks.map(task => task.id))}::uuid[]
        ) as r (row_id, task_id)
        where (r.task_id in (select id from stored)) is true
      )
    )`
  )

/** `more`: what else happens in the statement, to those that are `stored`. */
async function insert(sql: Sql, tasks: readonly NewTask[], more: ReturnType<Sql>): Promise<InsertResult[]> {
  const [done] = await sql<[Done]>`
    with stored as (
      ${inserting(sql, tasks, 'ACTIVE')}
    ), delivered as (
      ${delivering(sql, tasks)}
    )${more}
    ${telling(sql, tasks)}`
  return orKnown(sql, tasks, insertedOf(done, tasks))
}

/** What the statements tell that store tasks: by what is missing, which is nearly always nothing: no list to make, to send and to take apart. */
export interface Done {
  now: Date
  created: string | null
  waiting: string | null
}

export const telling = (sql: Sql, tasks: readonly NewTask[]) => sql`
    select now() as now,
      (select case when count(*) < ${tasks.length} then coalesce(string_agg(id::text, ','), '') end
        from stored) as created,
      (select string_agg(task_id || downstream, ',') from delivered where phase <> 'IN_FLIGHT') as waiting`

/** The CTE `stored` of a statement that stores tasks. */
export const inserting = (sql: Sql, tasks: readonly NewTask[], state: TaskState) => sql`
      insert into task (
        id, task_no, message_code, scene_type, message_body, content_hash, deliver_start_time,
        need_callback, retry_times, extend, state, created_at, created_by, traceparent, biz_type, biz_key, unique_biz
      )
      select id, task_no, message_code, scene_type, message_body, content_hash,
        coalesce(start_at, now() + delay_ms * interval '1 ms'),
        need_callback, retry_times, extend, ${state}::text, now(), created_by, traceparent, biz_type, biz_key, unique_biz
      from unnest(
        ${plainArray(tasks.map(task => task.id))}::uuid[], ${textArray(tasks.map(task => task.taskNo))}::text[],
        ${textArray(tasks.map(task => task.messageCode))}::text[], ${textArray(tasks.map(task => task.sceneType))}::text[],
        ${textArray(tasks.map(task => task.messageBody))}::text[], ${textArray(tasks.map(task => task.contentHash))}::text[],
        ${textArray(tasks.map(task => task.startAt?.toISOString()))}::timestamptz[],
        ${plainArray(tasks.map(task => task.delayMs))}::float8[],
        ${plainArray(tasks.map(task => task.needCallback))}::boolean[], ${plainArray(tasks.map(task => task.retryTimes))}::int[],
        ${textArray(tasks.map(task => task.extend))}::jsonb[], ${textArray(tasks.map(task => task.createdBy))}::text[],
        ${textArray(tasks.map(task => task.traceparent))}::text[], ${textArray(tasks.map(task => task.biz?.type))}::text[],
        ${textArray(tasks.map(task => task.biz?.key))}::text[],
        ${plainArray(tasks.map(task => task.biz?.unique || null))}::boolean[]
      ) as a (
        id, task_no, message_code, scene_type, message_body, content_hash, start_at, delay_ms,
        need_callback, retry_times, extend, created_by, traceparent, biz_type, biz_key, unique_biz
      )
      -- Everybody takes the keys of both unique indexes in one order, or two batches could wait for each other.
      order by case when unique_biz then message_code end, case when unique_biz then biz_type end,
        case when unique_biz then biz_key end, task_no
      -- Of its number or of its business key: which, the second statement tells.
      on conflict do nothing
      returning id`

/**
 * The CTE `delivered`: deliveries of those in `stored`, the first claim included. `(… in (select …)) is true` is looked up in
 * a hash; as a join of two lists it would cost their product.
 */
export function delivering(
  sql: Sql,
  tasks: readonly NewTask[],
  unclaimed: 'WAITING' | 'BLOCKED' = 'WAITING'
) {
  const rows = tasks.flatMap(task => task.deliveries.map(delivery => ({ task, delivery })))
  return sql`
      insert into delivery (
        task_id, downstream, status, phase, next_action_at, attempt, tries_left, lost, round_from,
        needs_receipt, deliver_before, reason, created_at, updated_at
      )
      select task_id, downstream, case when skipped then -1 else 0 end, phase,
        case phase
          when 'IN_FLIGHT' then now() + lease_ms * interval '1 ms'
          when 'WAITING' then greatest(now(), least(start_at, deliver_before))
          when 'BLOCKED' then coalesce(deliver_before, '9999-12-31Z')
        end,
        case phase when 'IN_FLIGHT' then 1 else 0 end,
        case phase when 'IN_FLIGHT' then tries - 1 else tries end,
        0, 1, needs_receipt, deliver_before, case when skipped then 'SKIPPED' end, now(), now()
      from (
        select task_id, downstream, skipped, lease_ms, tries, needs_receipt, deliver_before,
          coalesce(start_at, now() + delay_ms * interval '1 ms', now()) as start_at,
          case
            when skipped then null
            when claim and coalesce(start_at, now() + delay_ms * interval '1 ms', now()) <= now() then 'IN_FLIGHT'
            else ${unclaimed}::text
          end as phase
        from unnest(
          ${plainArray(rows.map(row => row.task.id))}::uuid[], ${textArray(rows.map(row => row.delivery.downstream))}::text[],
          ${plainArray(rows.map(row => row.delivery.skipped))}::boolean[],
          ${plainArray(rows.map(row => row.delivery.claim))}::boolean[],
          ${plainArray(rows.map(row => row.delivery.leaseMs))}::float8[],
          ${plainArray(rows.map(row => row.delivery.tries))}::int[],
          ${plainArray(rows.map(row => row.delivery.needsReceipt))}::boolean[],
          ${textArray(rows.map(row => row.task.deliverBefore?.toISOString()))}::timestamptz[],
          ${textArray(rows.map(row => row.task.startAt?.toISOString()))}::timestamptz[],
          ${plainArray(rows.map(row => row.task.delayMs))}::float8[]
        ) as w (
          task_id, downstream, skipped, claim, lease_ms, tries, needs_receipt, deliver_before, start_at, delay_ms
        )
      ) w
      where (task_id in (select id from stored)) is true
      returning task_id, downstream, phase`
}

/** undefined: not stored by this statement. */
export function insertedOf(done: Done, tasks: readonly NewTask[]): (InsertResult | undefined)[] {
  const created = done.created === null ? null : new Set(done.created.split(','))
  const waiting = done.waiting === null ? null : new Set(done.waiting.split(','))
  return tasks.map(task => {
    if (created && !created.has(task.id)) return undefined
    const inFlight = task.deliveries.flatMap(({ downstream, skipped }, at) =>
      skipped || waiting?.has(task.id + downstream) ? [] : [at]
    )
    return { kind: 'created', at: done.now, inFlight }
  })
}

/** Of the rows that `on conflict do nothing` left out: the insert's own snapshot cannot see them. */
export async function orKnown(
  sql: Sql,
  tasks: readonly NewTask[],
  inserted: readonly (InsertResult | undefined)[]
): Promise<InsertResult[]> {
  const missing = tasks.filter((_, index) => !inserted[index])
  const known = missing.length
    ? await findHashes(
        sql,
        missing.map(task => task.taskNo)
      )
    : new Map<string, string>()
  const taken = await findBizTaken(
    sql,
    missing.filter(task => !known.has(task.taskNo))
  )
  return tasks.map((task, index) => {
    const by = taken.get(task)
    return (
      inserted[index] ??
      (by === undefined
        ? { kind: 'known', taskNo: task.taskNo, contentHash: known.get(task.taskNo) ?? null }
        : { kind: 'biz_taken', by })
    )
  })
}

/** content_hash by taskNo; unknown ones are missing. */
export async function findHashes(sql: Sql, taskNos: readonly string[]): Promise<Map<string, string>> {
  const rows = await sql<Pick<Row<typeof task>, 'task_no' | 'content_hash'>[]>`
    select task_no, content_hash from task where task_no = any(${textArray(taskNos)}::text[])`
  return new Map(rows.map(row => [row.task_no, row.content_hash]))
}

/** A task's deliveries as an operator's act needs them. */
export interface Standing {
  id: string
  state: TaskState
  messageCode: string
  retryTimes: number | null
  deliveries: {
    downstream: string
    status: Status
    attempt: number
    expired: boolean
    reason: Reason | null
  }[]
}

/** null: no such task. */
export async function readTaskState(sql: Sql, taskNo: string): Promise<Standing | null> {
  const rows = await sql<
    (Pick<Row<typeof task>, 'id' | 'state' | 'message_code' | 'retry_times'> &
      Pick<Row<typeof delivery>, 'status' | 'attempt' | 'reason'> & {
        downstream: string | null
        expired: boolean
      })[]
  >`
    select t.id, t.state, t.message_code, t.retry_times, d.downstream, d.status, d.attempt, d.reason,
      coalesce(d.deliver_before <= now(), false) as expired
    from task t left join delivery d on d.task_id = t.id
    where t.task_no = ${taskNo}
    order by d.downstream`
  const [first] = rows
  return first
    ? {
        id: first.id,
        state: first.state,
        messageCode: first.message_code,
        retryTimes: first.retry_times,
        deliveries: rows.flatMap(({ downstream, status, attempt, expired, reason }) =>
          downstream === null ? [] : [{ downstream, status: statusWord(status), attempt, expired, reason }]
        )
      }
    : null
}

/** The taskNos among these whose every delivery has come to rest, and those that do not exist. A PREPARED one has still to get its deliveries. */
export async function findEnded(sql: Sql, taskNos: readonly string[]): Promise<Set<string>> {
  const rows = await sql<{ task_no: string }[]>`
    select w.task_no
    from unnest(${textArray(taskNos)}::text[]) as w (task_no)
    where not exists (
      select from task t left join delivery d on d.task_id = t.id and d.status = 0
      where t.task_no = w.task_no and (d.task_id is not null or t.state = 'PREPARED')
    )`
  return new Set(rows.map(row => row.task_no))
}
