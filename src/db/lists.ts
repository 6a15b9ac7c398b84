// What people look at: lists by a keyset that new rows cannot shift, one task whole, and counts.
import { and, desc, eq, gte, lt, sql, type SQL } from 'drizzle-orm'
import { alias, QueryBuilder } from 'drizzle-orm/pg-core'
import { plainArray, textArray } from './arrays.ts'
import type { Reads } from './reads.ts'
import { alarm, attempt, delivery, downstream, outboxRejected, prepared, task } from './schema.ts'
import {
  attemptView,
  deliveryView,
  iso,
  present,
  receiptView,
  statusWord,
  taskView,
  type TaskView
} from './views.ts'
import { is, ofMessages, paged, upTo, uuid, type Window } from './window.ts'
import { uuidAt } from '../domain/ids.ts'
import { statusNumber, type Status, type TaskStatus } from '../domain/types.ts'

const number = (status: Status | undefined): number | undefined => status && statusNumber[status]

/** Narrows tasks further; `downstream` is one of the task's, whatever became of that delivery. */
export type TaskFilter = Window & {
  status?: TaskStatus
  sceneType?: string
  needCallback?: boolean
  bizType?: string
  /** Only with a bizType. */
  bizKey?: string
}

const part = alias(delivery, 'part')
const isSending = sql`bool_or(${part.status} = 0)`
const visibleStatus = sql`case when ${isSending} then 0 when bool_or(${part.status} = 2) then 2
  when bool_or(${part.status} = 1) then 1 else -1 end`

/** `status` is a condition on all deliveries of a task together: an aggregate by key for each task, which is never made a join. */
function ofTask(filter: TaskFilter, status: SQL | undefined): SQL | undefined {
  const ofParts = and(
    status,
    filter.downstream === undefined ? undefined : sql`bool_or(${part.downstream} = ${filter.downstream})`,
    is(sql`bool_or(${part.needsReceipt})`, filter.needCallback)
  )
  return and(
    ofMessages(filter),
    // By an index of its own.
    is(task.bizType, filter.bizType),
    is(task.bizKey, filter.bizKey),
    is(task.sceneType, filter.sceneType),
    ofParts && sql`${new QueryBuilder().select({ ofParts }).from(part).where(eq(part.taskId, task.id))}`
  )
}

/** Tasks by their visible status and more, newest first. */
export async function listTasks(reads: Reads, filter: TaskFilter) {
  if (filter.cursor !== undefined && !uuid.test(filter.cursor)) return 'bad_cursor' as const
  const { status } = filter
  const rows = await (status === 'FAILED' && filter.bizKey === undefined
    ? failedIds(reads, filter)
    : status === 'PREPARED' || status === 'CANCELLED'
      ? halfIds(reads, filter, status)
      : taskIds(reads, filter, status))
  const { page, next } = paged(filter, rows, row => row.id)
  const tasks = await reads.tasks.execute({ ids: plainArray(page.map(row => row.id)) })
  return { tasks: tasks.map(row => taskView(row, row.deliveries)), ...next }
}

/** One more than a page, by the primary key, or by that of a business thing. */
function taskIds({ db }: Reads, filter: TaskFilter, status: Status | undefined): Promise<{ id: string }[]> {
  return db
    .select({ id: task.id })
    .from(task)
    .where(
      and(
        lt(task.id, upTo(filter)),
        gte(task.id, uuidAt(filter.from)),
        // One that is not ACTIVE has no deliveries, and their aggregate would say DELETED.
        status && eq(task.state, 'ACTIVE'),
        ofTask(filter, is(visibleStatus, number(status)))
      )
    )
    .orderBy(desc(task.id))
    .limit(filter.limit + 1)
}

/** The same for half messages that have no deliveries: of a downstream, or with receipts owed, there are none of them. */
function halfIds(
  { db }: Reads,
  filter: TaskFilter,
  state: 'PREPARED' | 'CANCELLED'
): Promise<{ id: string }[]> {
  return db
    .select({ id: task.id })
    .from(prepared)
    .innerJoin(task, eq(task.id, prepared.taskId))
    .where(
      and(
        lt(prepared.taskId, upTo(filter)),
        gte(prepared.taskId, uuidAt(filter.from)),
        is(sql`(${prepared.nextActionAt} is not null)`, state === 'PREPARED'),
        eq(task.state, state),
        ofTask(filter, undefined)
      )
    )
    .orderBy(desc(prepared.taskId))
    .limit(filter.limit + 1)
}

/**
 * The same for FAILED, which are few among millions: from the index of FAILED deliveries, a page of each downstream that
 * has any. A task that still has a SENDING one is not FAILED yet.
 */
async function failedIds({ db }: Reads, filter: TaskFilter): Promise<{ id: string }[]> {
  const page = db
    .select({ id: task.id })
    .from(delivery)
    .innerJoin(task, eq(task.id, delivery.taskId))
    .where(
      and(
        sql`${delivery.downstream} = failing.name and ${delivery.status} = 2`,
        lt(delivery.taskId, upTo(filter)),
        gte(delivery.taskId, uuidAt(filter.from)),
        ofTask(filter, sql`not ${isSending}`)
      )
    )
    .orderBy(desc(delivery.taskId))
    .limit(filter.limit + 1)
  return await db.execute<{ id: string }>(sql`
    with recursive failing (name) as (
      select min(downstream) from delivery where status = 2
      union all
      select (select min(d.downstream) from delivery d where d.status = 2 and d.downstream > f.name)
      from failing f where f.name is not null
    )
    select distinct page.id
    from failing cross join lateral ${page} page
    order by page.id desc
    limit ${filter.limit + 1}`)
}

/** Deliveries, newest task first. The cursor is `taskId:downstream`. */
export async function listDeliveries(
  { db }: Reads,
  window: Window & { status?: Status; phase?: string; reason?: string }
) {
  const [id = '', name = ''] = window.cursor?.split(':') ?? [upTo(window)]
  if (!uuid.test(id)) return 'bad_cursor' as const
  const { taskNo, messageCode, sceneType, createdAt } = task
  const rows = await db
    .select({ task: { taskNo, messageCode, sceneType, createdAt }, delivery })
    .from(delivery)
    .innerJoin(task, eq(task.id, delivery.taskId))
    .where(
      and(
        sql`(${delivery.taskId}, ${delivery.downstream}) < (${id}::uuid, ${name})`,
        gte(delivery.taskId, uuidAt(window.from)),
        ofMessages(window),
        is(delivery.downstream, window.downstream),
        is(delivery.status, number(window.status)),
        is(delivery.phase, window.phase),
        is(delivery.reason, window.reason)
      )
    )
    .orderBy(desc(delivery.taskId), desc(delivery.downstream))
    .limit(window.limit + 1)
  const { page, next } = paged(window, rows, row => `${row.delivery.taskId}:${row.delivery.downstream}`)
  const deliveries = page.map(row => ({
    ...row.task,
    createdAt: row.task.createdAt.toISOString(),
    ...deliveryView(row.delivery)
  }))
  return { deliveries, ...next }
}

/** Alarms, newest task first. `open`: not resolved yet. The cursor is `taskId:downstream:attempt:kind`. */
export async function listAlarms({ db }: Reads, window: Window & { kind?: string; open?: boolean }) {
  const [id = '', name = '', attemptNo = '0', kind = ''] = window.cursor?.split(':') ?? [upTo(window)]
  if (!uuid.test(id) || !/^\d{1,9}$/.test(attemptNo)) return 'bad_cursor' as const
  const rows = await db
    .select({
      // What was rejected has neither a task nor a delivery, and says of itself whatever its producer wrote.
      taskNo: sql<string>`coalesce(${task.taskNo}, left(${outboxRejected.taskNo}, 200), '')`,
      messageCode: sql<string>`coalesce(${task.messageCode}, left(${outboxRejected.messageCode}, 200), '')`,
      alarm,
      state: task.state,
      // What is not about a delivery is about its task.
      status: sql<number>`coalesce(${delivery.status}, (${new QueryBuilder()
        .select({ status: visibleStatus })
        .from(part)
        .where(eq(part.taskId, task.id))}))`,
      reason: sql<string | null>`
        case when ${alarm.kind} = 'FAILED' then ${delivery.reason}
          else coalesce(${attempt.reason}, ${delivery.reason}, ${outboxRejected.problem}->>'code',
            ${prepared.lastReason}, ${prepared.lastAnswer}) end`
    })
    .from(alarm)
    .leftJoin(task, eq(task.id, alarm.taskId))
    .leftJoin(outboxRejected, and(eq(alarm.kind, 'REJECTED'), eq(outboxRejected.id, alarm.taskId)))
    .leftJoin(delivery, and(eq(delivery.taskId, alarm.taskId), eq(delivery.downstream, alarm.downstream)))
    .leftJoin(prepared, and(eq(prepared.taskId, alarm.taskId), eq(alarm.kind, 'PREPARED_STUCK')))
    .leftJoin(
      attempt,
      and(
        eq(attempt.taskId, alarm.taskId),
        eq(attempt.downstream, alarm.downstream),
        eq(attempt.attempt, alarm.attempt)
      )
    )
    .where(
      and(
        sql`(${alarm.taskId}, ${alarm.downstream}, ${alarm.attempt}, ${alarm.kind})
          < (${id}::uuid, ${name}, ${Number(attemptNo)}::int, ${kind})`,
        gte(alarm.taskId, uuidAt(window.from)),
        ofMessages(window, sql`coalesce(${task.messageCode}, ${outboxRejected.messageCode})`),
        is(alarm.downstream, window.downstream),
        is(alarm.kind, window.kind),
        is(sql`(${alarm.resolvedAt} is null)`, window.open)
      )
    )
    .orderBy(desc(alarm.taskId), desc(alarm.downstream), desc(alarm.attempt), desc(alarm.kind))
    .limit(window.limit + 1)
  const { page, next } = paged(window, rows, ({ alarm: { taskId, ...last } }) =>
    [taskId, last.downstream, last.attempt, last.kind].join(':')
  )
  const alarms = page.map(({ taskNo, messageCode, alarm, state, status, reason }) => ({
    taskNo,
    messageCode,
    downstream: alarm.downstream,
    attempt: alarm.attempt,
    kind: alarm.kind,
    // One of a rejected row has no task.
    ...present('status', state === null ? null : state === 'ACTIVE' ? statusWord(status) : state),
    ...present('reason', reason),
    createdAt: alarm.createdAt.toISOString(),
    ...present('sentAt', iso(alarm.sentAt)),
    ...present('resolvedAt', iso(alarm.resolvedAt)),
    tries: alarm.tries
  }))
  return { alarms, ...next }
}

/**
 * One task whole: body text, deliveries, each with its attempts and receipts, all of one moment: by one statement, since of
 * several each sees a moment of its own, and a FAILED delivery could be shown without the attempt that failed it. null: unknown.
 * `codes`: of these messageCodes are the other tasks that it names; null: of all.
 */
export async function readTask(
  reads: Reads,
  taskNo: string,
  codes: readonly string[] | null = null
): Promise<TaskView | null> {
  const row = await reads.task.execute({ taskNo, codes: codes && textArray(codes) })
  if (!row) return null
  return {
    ...taskView(row, row.deliveries),
    ...present('after', row.after),
    ...present('before', row.before),
    messageBody: row.messageBody,
    deliveries: row.deliveries.map(one => ({
      ...deliveryView(one),
      attempts: one.attempts.map(attemptView),
      receipts: one.receipts.map(receiptView)
    }))
  }
}

/** Exact counts of what is not at rest, by downstream; those in the table and those named. */
export function countDownstreams({ db }: Reads, names: readonly string[]) {
  const counted = (name: string) => sql<number>`c.${sql.identifier(name)}`
  return db
    .select({
      name: sql<string>`n.name`,
      pausedAt: downstream.pausedAt,
      pausedBy: downstream.pausedBy,
      waiting: counted('waiting'),
      inFlight: counted('in_flight'),
      awaitingReceipt: counted('awaiting_receipt'),
      blocked: counted('blocked'),
      failed: counted('failed')
    })
    .from(sql`(select unnest(${textArray(names)}::text[]) as name union select name from downstream) n`)
    .leftJoin(downstream, sql`${downstream.name} = n.name`)
    .crossJoinLateral(sql`(
      select count(*) filter (where phase = 'WAITING')::int as waiting,
        count(*) filter (where phase = 'IN_FLIGHT')::int as in_flight,
        count(*) filter (where phase = 'AWAITING_RECEIPT')::int as awaiting_receipt,
        count(*) filter (where phase = 'BLOCKED')::int as blocked,
        (select count(*) from delivery f where f.downstream = n.name and f.status = 2)::int as failed
      from delivery d where d.downstream = n.name and d.status = 0
    ) c`)
    .orderBy(sql`n.name`)
}
