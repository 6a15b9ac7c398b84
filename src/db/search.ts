// Searches for a page of a list of tasks. It reads at most 20,000 rows (5,000 for the text of a reason or a fingerprint), from the index that fits.
import { and, eq, gte, lt, sql, type SQL, alias, QueryBuilder } from './drizzle.ts'
import { lastReason, type Reads } from './reads.ts'
import { delivery, prepared, task } from './schema.ts'
import { is, literally, mostLooked, ofMessages, upTo, type ListFilter } from './page.ts'
import { uuidAt } from '../domain/ids.ts'
import { defined } from '../domain/optional-members.ts'
import { statusNumber, type Reason, type Status, type TaskStatus } from '../domain/types.ts'

/** `downstream`: the task has a delivery to it, in any status. */
export type TaskFilter = ListFilter & {
  id?: string
  status?: TaskStatus
  needCallback?: boolean
  sceneType?: string
  bizType?: string
  /** Only with a bizType. */
  bizKey?: string
  createdBy?: string
  taskNoPrefix?: string
  /** The reason of one of its deliveries. */
  reason?: Reason
  /** Part of the text of the last reason of one of its deliveries. */
  lastReason?: string
  /** Only with PREPARED: there was at least one check. */
  checked?: boolean
}

/** The rows of a page and one more, or fewer. */
export interface SearchResult<Row> {
  rows: Row[]
  /** Not all rows were read: the cursor at which to continue. */
  until?: string
}

const part = alias(delivery, 'part')
const isSending = sql`bool_or(${part.status} = 0)`
const visibleStatus = sql`case when ${isSending} then 0 when bool_or(${part.status} = 2) then 2
  when bool_or(${part.status} = 1) then 1 else -1 end`
export const statusOfTask = new QueryBuilder()
  .select({ status: visibleStatus })
  .from(part)
  .where(eq(part.taskId, task.id))

export const number = (status: Status | undefined): number | undefined => status && statusNumber[status]

export const hasText = (column: SQL, text: string | undefined): SQL | undefined =>
  text === undefined ? undefined : sql`${column} ilike ${`%${literally(text)}%`}`

/** Conditions of a task's own row. */
export const ofRow = (filter: Omit<TaskFilter, 'status'>): SQL | undefined =>
  and(
    is(task.id, filter.id),
    ofMessages(filter),
    is(task.bizType, filter.bizType),
    is(task.bizKey, filter.bizKey),
    is(task.sceneType, filter.sceneType),
    is(task.createdBy, filter.createdBy),
    filter.taskNoPrefix === undefined ? undefined : sql`starts_with(${task.taskNo}, ${filter.taskNoPrefix})`
  )

/** `status` is a condition on all deliveries of a task: an aggregate for each task, which PostgreSQL never turns into a join. */
function ofTask(filter: TaskFilter, status: SQL | undefined): SQL | undefined {
  const ofParts = and(
    status,
    filter.downstream === undefined ? undefined : sql`bool_or(${part.downstream} = ${filter.downstream})`,
    filter.reason === undefined ? undefined : sql`bool_or(${part.reason} = ${filter.reason})`,
    filter.lastReason === undefined
      ? undefined
      : sql`bool_or(${hasText(lastReason(part.taskId, part.downstream), filter.lastReason)})`,
    is(sql`bool_or(${part.needsReceipt})`, filter.needCallback)
  )
  return and(
    ofRow(filter),
    ofParts && sql`${new QueryBuilder().select({ ofParts }).from(part).where(eq(part.taskId, task.id))}`
  )
}

export async function searchTasks(reads: Reads, filter: TaskFilter): Promise<SearchResult<{ id: string }>> {
  const { status } = filter
  if (status === 'PREPARED' || status === 'CANCELLED') return await halves(reads, filter, status)
  if (filter.id !== undefined) return await byKey(reads, filter, status)
  // A business key has an index of its own.
  if (filter.bizKey === undefined && status === 'FAILED') return await failed(reads, filter)
  if (filter.bizKey === undefined && status === 'SENDING' && (await sendingAreFew(reads)))
    return { rows: await sending(reads, filter) }
  return await byKey(reads, filter, status)
}

/**
 * One statement for the rows of a page, newest first by `order`, and where its look ended if there are too few: between two statements, rows
 * leave the look and come to it. `end` is read only if it is needed.
 */
export async function pageOf<Row extends object>(
  { db }: Pick<Reads, 'db'>,
  {
    head = sql`with`,
    page,
    end,
    order,
    limit
  }: { head?: SQL; page: SQL; end: SQL; order: SQL; limit: number }
): Promise<{ rows: Row[]; end: Row | undefined }> {
  const found = await db.execute(sql`
    ${head} page as materialized (${page})
    select * from (
      select page.*, false as is_end from page
      union all
      select last.*, true from (${end}) last where (select count(*) from page) <= ${limit}
    ) found
    order by is_end, ${order}`)
  const rows = [...found] as (Row & { is_end: boolean })[]
  return { rows: rows.filter(row => !row.is_end), end: rows.find(row => row.is_end) }
}

/** The text of a reason, or the last failure, costs one more look-up for each row. */
export const mostOf = (filter: { lastReason?: string; fingerprint?: string }): number =>
  (filter.lastReason ?? filter.fingerprint) === undefined ? mostLooked : mostLooked / 4

/** By the primary key, or by the business key. */
async function byKey(
  reads: Reads,
  filter: TaskFilter,
  status: Status | undefined
): Promise<SearchResult<{ id: string }>> {
  const looked = (more: SQL): SQL => sql`
    select * from task
    where ${and(
      lt(task.id, upTo(filter)),
      gte(task.id, uuidAt(filter.from)),
      is(task.id, filter.id),
      filter.bizKey === undefined
        ? undefined
        : and(is(task.bizType, filter.bizType), is(task.bizKey, filter.bizKey))
    )}
    order by id desc
    ${more}`
  const { rows, end } = await pageOf<{ id: string }>(reads, {
    page: sql`
      select task.id from (${looked(sql`limit ${mostOf(filter)}`)}) task
      where ${and(
        // A task that is not ACTIVE has no deliveries: their aggregate would be DELETED.
        status && eq(task.state, 'ACTIVE'),
        ofTask(filter, is(visibleStatus, number(status))),
        sql`true`
      )}
      order by task.id desc
      limit ${filter.limit + 1}`,
    end: sql`select task.id from (${looked(sql`offset ${mostOf(filter) - 1} limit 1`)}) task`,
    order: sql`id desc`,
    limit: filter.limit
  })
  return { rows, ...defined({ until: end?.id }) }
}

/** The same for half messages. They have no deliveries: a filter by downstream or needCallback finds none. */
async function halves(
  reads: Reads,
  filter: TaskFilter,
  state: 'PREPARED' | 'CANCELLED'
): Promise<SearchResult<{ id: string }>> {
  const looked = (more: SQL): SQL => sql`
    select task_id, checks from prepared
    where ${and(
      lt(prepared.taskId, upTo(filter)),
      gte(prepared.taskId, uuidAt(filter.from)),
      is(sql`(${prepared.nextActionAt} is not null)`, state === 'PREPARED')
    )}
    order by task_id desc
    ${more}`
  const { rows, end } = await pageOf<{ id: string }>(reads, {
    page: sql`
      select task.id from (${looked(sql`limit ${mostLooked}`)}) half join task on task.id = half.task_id
      where ${and(eq(task.state, state), is(sql`(half.checks > 0)`, filter.checked), ofTask(filter, undefined))}
      order by task.id desc
      limit ${filter.limit + 1}`,
    end: sql`select task_id as id from (${looked(sql`offset ${mostLooked - 1} limit 1`)}) half`,
    order: sql`id desc`,
    limit: filter.limit
  })
  return { rows, ...defined({ until: end?.id }) }
}

/** The downstreams that have deliveries with this status, by skipping through its index; or only the given one. */
export const downstreamsWith = (status: 0 | 2, only?: string): SQL =>
  only === undefined
    ? sql`
  with recursive name (downstream) as (
    (select d.downstream from delivery d where d.status = ${sql.raw(String(status))} order by d.downstream limit 1)
    union all
    select (select d.downstream from delivery d
      where d.status = ${sql.raw(String(status))} and d.downstream > n.downstream order by d.downstream limit 1)
    from name n where n.downstream is not null
  )`
    : sql`with name (downstream) as (select ${only}::text)`

/** All SENDING deliveries, from the index of what is due. Only while they are not too many. */
export const allSending = sql`
  select d.task_id, d.downstream from name n cross join lateral (
    select w.task_id, w.downstream from delivery w
    where w.status = 0 and w.downstream = n.downstream
    order by w.next_action_at
    limit ${mostLooked + 1}
  ) d`

export async function sendingAreFew({ db }: Reads, only?: string): Promise<boolean> {
  const [row] = await db.execute<{ n: number }>(sql`
    ${downstreamsWith(0, only)}
    select count(*)::int as n from (${allSending} limit ${mostLooked + 1}) few`)
  return (row?.n ?? 0) <= mostLooked
}

async function sending({ db }: Reads, filter: TaskFilter): Promise<{ id: string }[]> {
  return await db.execute<{ id: string }>(sql`
    ${downstreamsWith(0)}, few as (select distinct task_id from (${allSending}) f)
    select task.id
    from few cross join lateral (select * from task where id = few.task_id offset 0) task
    where ${and(
      lt(sql`few.task_id`, sql`${upTo(filter)}::uuid`),
      gte(sql`few.task_id`, sql`${uuidAt(filter.from)}::uuid`),
      ofTask(filter, isSending)
    )}
    order by task.id desc
    limit ${filter.limit + 1}`)
}

/**
 * FAILED deliveries are few among millions: their index gives a page of each downstream that has any. A task that still has
 * a SENDING delivery is not FAILED yet.
 */
async function failed({ db }: Reads, filter: TaskFilter): Promise<SearchResult<{ id: string }>> {
  const looked = (more: SQL): SQL => sql`
    select f.task_id from delivery f
    where f.downstream = n.downstream and f.status = 2
      and f.task_id < ${upTo(filter)}::uuid and f.task_id >= ${uuidAt(filter.from)}::uuid
    order by f.task_id desc
    ${more}`
  const found = await db.execute<{ id: string; is_end: boolean }>(sql`
    ${downstreamsWith(2)}, page as (
      select page.id from name n cross join lateral (
        select task.id
        from (${looked(sql`limit ${mostOf(filter)}`)}) look
          cross join lateral (select * from task where id = look.task_id offset 0) task
        where ${ofTask(filter, sql`not ${isSending}`)}
        order by look.task_id desc
        limit ${filter.limit + 1}
      ) page
    ), last as (
      select last.task_id from name n cross join lateral (${looked(sql`offset ${mostOf(filter) - 1} limit 1`)}) last
    )
    select * from (
      (select distinct page.id, false as is_end from page order by page.id desc limit ${filter.limit + 1})
      union all
      (select last.task_id, true from last order by last.task_id desc limit 1)
    ) found
    order by is_end, id desc`)
  const rows = found.filter(row => !row.is_end)
  const until = found.find(row => row.is_end)?.id
  // A look of one downstream may end above the rows of another one: what lies between them is not on this page.
  const isWhole = rows.length > filter.limit && (rows[filter.limit - 1]?.id ?? '') >= (until ?? '')
  if (until === undefined || isWhole) return { rows }
  // The next page continues at the first of these ends.
  return { rows: rows.filter(row => row.id >= until), until }
}
