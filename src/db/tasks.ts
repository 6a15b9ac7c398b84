import type { Sql } from './pool.ts'
import type { Row, task } from './schema.ts'
import { plainArray, setOf, textArray, unlessAll } from './arrays.ts'
import {
  storedDeliveriesCte,
  storedDeliveriesInOrder,
  placesOf,
  placesColumn,
  type DeliveryRow,
  type NewDelivery,
  type Place
} from './new-deliveries.ts'
import type { Content } from '../domain/content.ts'
import type { Invalid } from '../runtime/errors.ts'
import type { TaskState } from '../domain/types.ts'

/** A task to store. Its text members are as posted; times are Dates; `delayMs` counts from the database's now. */
export interface NewTask extends Content {
  id: string
  taskNo: string
  messageCode: string
  sceneType: string
  messageBody: string
  startAt: Date | null
  delayMs: number | null
  deliverBefore: Date | null
  needCallback: boolean | null
  retryTimes: number | null
  extend: string | null
  traceparent: string | null
  createdBy: string
  biz?: Biz | null
  orderingKey?: string | null
  /** It waits for these tasks. */
  after?: After | null
  /** Posted as prepared: no delivery is made, and the checks of its producer begin. */
  prepared?: { checkAfterMs: number }
  /** It was stored as prepared, and is committed now: only its deliveries are new. `by`: the key or the check. */
  committed?: { by: string; createdAt: Date; seen: SeenHalf }
  deliveries: NewDelivery[]
  /** Stored by the same statement, each as a task of its own. */
  steps?: NewSteps
}

/** The business object that a task is about. `unique`: no second unique task of its messageCode may have the same. */
interface Biz {
  type: string
  key: string
  unique: boolean
}

/** A half message as it was read: each check that is recorded changes one of the two counts. */
export interface SeenHalf {
  id: string
  /** The number of answers UNKNOWN, and of checks in a row without an answer. */
  answered: number
  unanswered: number
}

/** The tasks that are delivered with a task: one after the other behind it, or all at once. */
export interface NewSteps {
  inSequence: boolean
  tasks: NewTask[]
}

/** The tasks to wait for, by number. */
export interface After {
  taskNos: readonly string[]
  /** The messageCodes that the caller may see; null: all. */
  codes: readonly string[] | null
  /** Tasks that came later in the same call do not count, though they are stored by now. */
  later?: ReadonlySet<string>
}

/** The result of one NewTask. `inFlight` are indexes into its deliveries; `places` has one for each, only with an orderingKey. */
export type InsertResult =
  | { kind: 'created'; at: Date; inFlight: number[]; places?: (Place | undefined)[] }
  /** content null: it is gone, no half message any more, or checked meanwhile. */
  | { kind: 'known'; content: Content | null }
  /** Another task has its business key; `by` is the taskNo of that task. */
  | { kind: 'biz_taken'; by: string }
  /** It names prerequisites that it cannot wait for. */
  | { kind: 'invalid'; errors: readonly Invalid[] }

/** Group commit of accepts: tasks and deliveries, the first claim included, in one statement. taskNos are distinct. */
export const insertTasks = (sql: Sql, tasks: readonly NewTask[]): Promise<InsertResult[]> =>
  insert(sql, tasks, sql``)

/** The same for outbox rows; `rowIds` are in the order of `tasks`. The same statement deletes the rows whose task it stored. */
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

/** `more`: further CTEs of the statement, for the tasks in `stored`. */
async function insert(sql: Sql, tasks: readonly NewTask[], more: ReturnType<Sql>): Promise<InsertResult[]> {
  const [done] = await sql<[Done]>`
    with stored as (
      ${insertTasksSql(sql, tasks, 'ACTIVE')}
    ),${insertDeliveriesCte(sql, tasks)}${more}
    ${resultSelect(sql, tasks)}`
  return resolveConflicts(sql, tasks, insertedOf(done, tasks))
}

/** The result of a statement that stores tasks. `created` is null if none is missing. */
export interface Done {
  now: Date
  created: string | null
  unclaimed: string | null
  /** With an orderingKey only. */
  places?: string | null
}

export const resultSelect = (sql: Sql, tasks: readonly NewTask[]) => sql`
    select now() as now,
      (select ${unlessAll(sql, tasks.length, sql`id::text`)} from stored) as created,
      (select string_agg(task_id || downstream, ',') from stored_deliveries where phase <> 'IN_FLIGHT') as unclaimed${
        hasKey(tasks) ? placesColumn(sql) : sql``
      }`

/** The insert for the CTE `stored` of a statement that stores tasks. `only`: a condition for all of them. */
export const insertTasksSql = (sql: Sql, tasks: readonly NewTask[], state: TaskState, only = sql``) => sql`
      insert into task (
        id, task_no, message_code, scene_type, message_body, content_hash, content_normal, deliver_start_time,
        need_callback, retry_times, extend, state, created_at, created_by, traceparent, biz_type, biz_key, unique_biz${
          hasKey(tasks) ? sql`, ordering_key` : sql``
        }
      )
      select id, task_no, message_code, scene_type, message_body, content_hash, content_normal,
        coalesce(start_at, now() + delay_ms * interval '1 ms'),
        need_callback, retry_times, extend, ${state}::text, now(), created_by, traceparent, biz_type, biz_key, unique_biz${
          hasKey(tasks) ? sql`, ordering_key` : sql``
        }
      from unnest(
        ${plainArray(tasks.map(task => task.id))}::uuid[], ${textArray(tasks.map(task => task.taskNo))}::text[],
        ${textArray(tasks.map(task => task.messageCode))}::text[], ${textArray(tasks.map(task => task.sceneType))}::text[],
        ${textArray(tasks.map(task => task.messageBody))}::text[], ${textArray(tasks.map(task => task.contentHash))}::text[],
        ${textArray(tasks.map(task => task.contentNormal))}::text[],
        ${textArray(tasks.map(task => task.startAt?.toISOString()))}::timestamptz[],
        ${plainArray(tasks.map(task => task.delayMs))}::float8[],
        ${plainArray(tasks.map(task => task.needCallback))}::boolean[], ${plainArray(tasks.map(task => task.retryTimes))}::int[],
        ${textArray(tasks.map(task => task.extend))}::jsonb[], ${textArray(tasks.map(task => task.createdBy))}::text[],
        ${textArray(tasks.map(task => task.traceparent))}::text[], ${textArray(tasks.map(task => task.biz?.type))}::text[],
        ${textArray(tasks.map(task => task.biz?.key))}::text[],
        ${plainArray(tasks.map(task => task.biz?.unique || null))}::boolean[]${
          hasKey(tasks) ? sql`, ${textArray(tasks.map(task => task.orderingKey))}::text[]` : sql``
        }
      ) as a (
        id, task_no, message_code, scene_type, message_body, content_hash, content_normal, start_at, delay_ms,
        need_callback, retry_times, extend, created_by, traceparent, biz_type, biz_key, unique_biz${
          hasKey(tasks) ? sql`, ordering_key` : sql``
        }
      )
      ${only}
      -- Everybody takes the keys of both unique indexes in one order, or two batches could wait for each other.
      order by case when unique_biz then message_code end, case when unique_biz then biz_type end,
        case when unique_biz then biz_key end, task_no
      -- Of its number or of its business key: which, the second statement tells.
      on conflict do nothing
      returning id`

const hasKey = (tasks: readonly NewTask[]): boolean => tasks.some(task => task.orderingKey)

/** The CTE `stored_deliveries`, and those that it needs for an orderingKey. Without a key the statement has none of the latter. */
export const insertDeliveriesCte = (
  sql: Sql,
  tasks: readonly NewTask[],
  unclaimed: 'WAITING' | 'BLOCKED' = 'WAITING'
) =>
  hasKey(tasks)
    ? storedDeliveriesInOrder(sql, deliveriesOf(tasks))
    : storedDeliveriesCte(sql, deliveriesOf(tasks), unclaimed)

export const deliveriesOf = (tasks: readonly NewTask[]): DeliveryRow[] =>
  tasks.flatMap(task =>
    task.deliveries.map(delivery => ({
      ...delivery,
      taskId: task.id,
      deliverBefore: task.deliverBefore,
      startAt: task.startAt,
      delayMs: task.delayMs,
      orderingKey: task.orderingKey ?? null,
      waits: task.after != null
    }))
  )

/** undefined: not stored by this statement. */
export function insertedOf(done: Done, tasks: readonly NewTask[]): (InsertResult | undefined)[] {
  const created = setOf(done.created)
  const unclaimed = setOf(done.unclaimed)
  const places = placesOf(done.places)
  return tasks.map(task => {
    if (created && !created.has(task.id)) return undefined
    const inFlight = task.deliveries.flatMap(({ downstream, skipped }, at) =>
      skipped || unclaimed?.has(task.id + downstream) ? [] : [at]
    )
    if (!task.orderingKey) return { kind: 'created', at: done.now, inFlight }
    const ofKey = task.deliveries.map(({ downstream }) => places.get(task.id + downstream))
    return { kind: 'created', at: done.now, inFlight, places: ofKey }
  })
}

/** Looks up the tasks that `on conflict do nothing` left out: the insert's own snapshot cannot see them. */
export async function resolveConflicts(
  sql: Sql,
  tasks: readonly NewTask[],
  inserted: readonly (InsertResult | undefined)[]
): Promise<InsertResult[]> {
  const missing = tasks.filter((_, index) => !inserted[index])
  const known = missing.length
    ? await findContents(
        sql,
        missing.map(task => task.taskNo)
      )
    : new Map<string, Content>()
  const taken = await findBizTaken(
    sql,
    missing.filter(task => !known.has(task.taskNo))
  )
  return tasks.map((task, index) => {
    const by = taken.get(task)
    return (
      inserted[index] ??
      (by === undefined
        ? { kind: 'known', content: known.get(task.taskNo) ?? null }
        : { kind: 'biz_taken', by })
    )
  })
}

/**
 * The tasks whose business key another task has, with the taskNo of that task. They were not stored, though their numbers are free. A
 * task that is missing here conflicted with a task that is gone by now.
 */
async function findBizTaken<Task extends { messageCode: string; biz?: Biz | null }>(
  sql: Sql,
  tasks: readonly Task[]
): Promise<Map<Task, string>> {
  const candidates = tasks.flatMap(task => (task.biz?.unique ? [{ task, biz: task.biz }] : []))
  if (candidates.length === 0) return new Map()
  const rows = await sql<{ ord: number; task_no: string }[]>`
    select a.ord::int, t.task_no
    from unnest(
      ${textArray(candidates.map(one => one.task.messageCode))}::text[], ${textArray(candidates.map(one => one.biz.type))}::text[],
      ${textArray(candidates.map(one => one.biz.key))}::text[]
    ) with ordinality as a (message_code, biz_type, biz_key, ord)
    join task t on t.message_code = a.message_code and t.biz_type = a.biz_type and t.biz_key = a.biz_key and t.unique_biz`
  const taken = new Map<Task, string>()
  for (const { ord, task_no } of rows) {
    const candidate = candidates[ord - 1]
    if (candidate) taken.set(candidate.task, task_no)
  }
  return taken
}

/** By taskNo; unknown ones are missing. */
export async function findContents(sql: Sql, taskNos: readonly string[]): Promise<Map<string, Content>> {
  const rows = await sql<Pick<Row<typeof task>, 'task_no' | 'content_hash' | 'content_normal'>[]>`
    select task_no, content_hash, content_normal from task where task_no = any(${textArray(taskNos)}::text[])`
  return new Map(
    rows.map(row => [row.task_no, { contentHash: row.content_hash, contentNormal: row.content_normal }])
  )
}
