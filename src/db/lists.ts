// The reads of the API: lists by a keyset that new rows cannot shift, one whole task, and counts.
import { uuidForm } from '../domain/ids.ts'
import { and, desc, eq, gte, isNotNull, isNull, lt, sql } from './drizzle.ts'
import { plainArray, textArray } from './arrays.ts'
import { alarmReason } from './alarms.ts'
import { readBlockers } from './blocks.ts'
import { lastAttemptAt, lastReason, lastStatus, mostOfDelivery, type Reads } from './reads.ts'
import { alarm, delivery, downstream, outboxRejected, prepared, reconciliation, task } from './schema.ts'
import { attemptView, deliveryView, iso, receiptView, taskView, type TaskView } from './views.ts'
import { present } from '../domain/optional-members.ts'
import { readShapes } from './request-shapes.ts'
import { downstreamsWith, searchTasks, statusOfTask, type TaskFilter } from './search.ts'
import { searchDeliveries, type DeliveryFilter } from './search-deliveries.ts'
import { is, mostCounted, mostLooked, ofMessages, paged, pagedLook, upTo, type ListFilter } from './page.ts'
import { statusWord, type AlarmKind } from '../domain/types.ts'

/** Tasks by their visible status and more, newest first. */
export async function listTasks(reads: Reads, filter: TaskFilter) {
  if (filter.cursor !== undefined && !uuidForm.test(filter.cursor)) return 'bad_cursor' as const
  const { page, next } = pagedLook(filter, await searchTasks(reads, filter), row => row.id)
  const tasks = await reads.tasks.execute({ ids: plainArray(page.map(row => row.id)) })
  return { tasks: tasks.map(row => taskView(row, row.deliveries)), ...next }
}

/** Deliveries, newest task first. The cursor is `taskId:downstream`. */
export async function listDeliveries(reads: Reads, filter: DeliveryFilter) {
  const [id = '', name = ''] = filter.cursor?.split(':') ?? [upTo(filter)]
  if (!uuidForm.test(id)) return 'bad_cursor' as const
  const found = await searchDeliveries(reads, filter, [id, name])
  const { page, next } = pagedLook(filter, found, row => `${row.task_id}:${row.downstream}`)
  const { taskNo, messageCode, sceneType, createdAt, createdBy, bizType, bizKey } = task
  const rows = await reads.db
    .select({
      task: { taskNo, messageCode, sceneType, createdAt, createdBy },
      biz: { bizType, bizKey },
      delivery,
      lastAttemptAt: lastAttemptAt(delivery.taskId, delivery.downstream),
      lastReason: lastReason(delivery.taskId, delivery.downstream),
      lastStatus: lastStatus(delivery.taskId, delivery.downstream)
    })
    .from(delivery)
    .innerJoin(task, eq(task.id, delivery.taskId))
    .where(
      sql`(${delivery.taskId}, ${delivery.downstream}) in (select * from unnest(
        ${plainArray(page.map(row => row.task_id))}::uuid[], ${textArray(page.map(row => row.downstream))}::text[]))`
    )
    .orderBy(desc(delivery.taskId), desc(delivery.downstream))
  const blocked = rows.filter(row => row.delivery.phase === 'BLOCKED').map(row => row.delivery)
  const blockers = await readBlockers(reads, blocked, filter.messageCodes)
  const deliveries = rows.map(row => ({
    ...row.task,
    ...present('bizType', row.biz.bizType),
    ...present('bizKey', row.biz.bizKey),
    createdAt: row.task.createdAt.toISOString(),
    ...deliveryView({
      ...row.delivery,
      lastAttemptAt: row.lastAttemptAt,
      lastReason: row.lastReason,
      lastStatus: row.lastStatus
    }),
    ...present('blocker', blockers.get(`${row.delivery.taskId} ${row.delivery.downstream}`))
  }))
  return { deliveries, ...next }
}

/**
 * Alarms raised from `from` to `to`, newest task first: the task may be much older. `open`: not resolved yet. The cursor is
 * `taskId:downstream:attempt:kind`.
 */
export async function listAlarms(
  { db }: Reads,
  { to, ...filter }: ListFilter & { kind?: string; notKind?: AlarmKind; open?: boolean; taskNo?: string }
) {
  const [id = '', name = '', attemptNo = '0', kind = ''] = filter.cursor?.split(':') ?? [upTo(filter)]
  if (!uuidForm.test(id) || !/^\d{1,9}$/.test(attemptNo)) return 'bad_cursor' as const
  const rows = await db
    .select({
      // A rejected row has neither a task nor a delivery. Its values are as its producer wrote them.
      taskNo: sql<string>`coalesce(${task.taskNo}, left(${outboxRejected.taskNo}, 200), ${reconciliation.unknownTaskNos}[1], '')`,
      messageCode: sql<string>`coalesce(${task.messageCode}, left(${outboxRejected.messageCode}, 200), ${reconciliation.messageCode}, '')`,
      alarm,
      state: task.state,
      // An alarm that is not about a delivery is about its task.
      status: sql<number>`coalesce(${delivery.status}, (${statusOfTask}))`,
      reason: sql<string | null>`${sql.raw(alarmReason)}`
    })
    .from(alarm)
    .leftJoin(task, eq(task.id, alarm.taskId))
    .leftJoin(outboxRejected, and(eq(alarm.kind, 'REJECTED'), eq(outboxRejected.id, alarm.taskId)))
    .leftJoin(reconciliation, and(eq(alarm.kind, 'MISMATCH'), eq(reconciliation.unknownAlarm, alarm.taskId)))
    .leftJoin(delivery, and(eq(delivery.taskId, alarm.taskId), eq(delivery.downstream, alarm.downstream)))
    .leftJoin(prepared, and(eq(prepared.taskId, alarm.taskId), eq(alarm.kind, 'PREPARED_STUCK')))
    .where(
      and(
        sql`(${alarm.taskId}, ${alarm.downstream}, ${alarm.attempt}, ${alarm.kind})
          < (${id}::uuid, ${name}, ${Number(attemptNo)}::int, ${kind})`,
        gte(alarm.createdAt, filter.from),
        to && lt(alarm.createdAt, to),
        ofMessages(
          filter,
          sql`coalesce(${task.messageCode}, ${outboxRejected.messageCode}, ${reconciliation.messageCode})`
        ),
        is(alarm.downstream, filter.downstream),
        filter.taskNo === undefined
          ? undefined
          : sql`${alarm.taskId} = (select id from task where task_no = ${filter.taskNo})`,
        is(alarm.kind, filter.kind),
        // Written like the condition of alarm_open_idx.
        filter.notKind === undefined ? undefined : sql`${alarm.kind} <> ${sql.raw(`'${filter.notKind}'`)}`,
        filter.open === undefined
          ? undefined
          : filter.open
            ? isNull(alarm.resolvedAt)
            : isNotNull(alarm.resolvedAt)
      )
    )
    .orderBy(desc(alarm.taskId), desc(alarm.downstream), desc(alarm.attempt), desc(alarm.kind))
    .limit(filter.limit + 1)
  const { page, next } = paged(filter, rows, ({ alarm: { taskId, ...last } }) =>
    [taskId, last.downstream, last.attempt, last.kind].join(':')
  )
  const alarms = page.map(({ taskNo, messageCode, alarm, state, status, reason }) => ({
    taskNo,
    messageCode,
    downstream: alarm.downstream,
    attempt: alarm.attempt,
    kind: alarm.kind,
    // The alarm of a rejected row has no task.
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
 * One whole task: body text, deliveries, each with its newest attempts and receipts, oldest first. One statement reads them at one
 * moment: with several, a FAILED delivery could be shown without the attempt that failed it. null: unknown. `codes`: only other tasks of
 * these messageCodes are named; null: all.
 */
export async function readTask(
  reads: Reads,
  taskNo: string,
  codes: readonly string[] | null = null
): Promise<TaskView | null> {
  const row = await reads.task.execute({ taskNo, codes: codes && textArray(codes) })
  if (!row) return null
  const isMore = (rows: readonly unknown[]) => rows.length > mostOfDelivery
  const shown = <T>(rows: readonly T[]) => rows.slice(0, mostOfDelivery).toReversed()
  const isAnyMore = row.deliveries.some(one => isMore(one.attempts) || isMore(one.receipts))
  const counts = isAnyMore ? await countOfDeliveries(reads, row.id) : new Map<string, never>()
  const shapes = await readShapes(
    reads,
    row.deliveries.flatMap(one => one.attempts.flatMap(({ requestShape }) => requestShape ?? []))
  )
  return {
    ...taskView(row, row.deliveries),
    ...present('after', row.after),
    ...present('before', row.before),
    messageBody: row.messageBody,
    deliveries: row.deliveries.map(one => ({
      ...deliveryView(one),
      attempts: shown(one.attempts).map(each => attemptView(each, shapes)),
      receipts: shown(one.receipts).map(receiptView),
      ...present('attemptsTotal', isMore(one.attempts) ? counts.get(one.downstream)?.attempts : null),
      ...present('receiptsTotal', isMore(one.receipts) ? counts.get(one.downstream)?.receipts : null)
    }))
  }
}

/** By downstream. */
async function countOfDeliveries({ db }: Reads, taskId: string) {
  const rows = await db.execute<{ downstream: string; attempts: number; receipts: number }>(sql`
    select d.downstream,
      (select count(*)::int from attempt a where a.task_id = d.task_id and a.downstream = d.downstream) as attempts,
      (select count(*)::int from receipt r where r.task_id = d.task_id and r.downstream = d.downstream) as receipts
    from delivery d where d.task_id = ${taskId}::uuid`)
  return new Map(rows.map(row => [row.downstream, row]))
}

/**
 * Counts of open and FAILED deliveries by downstream: of those in the table, in `names`, and with a FAILED delivery, which may be left of a
 * handler that was removed. They are exact up to 10,000 rows. Beyond, it
 * reads 20,000 rows each of those that are due, that come due next (all IN_FLIGHT ones are among them), and that wait for others.
 */
export async function countDownstreams({ db }: Reads, names: readonly string[]) {
  const look = (clock: string, most: number) => sql`(
    select d.phase, d.next_action_at as at from delivery d where d.downstream = n.name and d.status = 0 and ${sql.raw(clock)}
    order by d.next_action_at limit ${most})`
  const rows = await db.execute<{
    name: string
    pausedAt: Date | string | null
    pausedBy: string | null
    concurrency: number | null
    perSecond: number | null
    setAt: Date | string | null
    setBy: string | null
    looked: number[]
    /** Since when the oldest unclaimed delivery is due. */
    oldestDueAt: Date | string | null
    waiting: number
    inFlight: number
    awaitingReceipt: number
    blocked: number
    failed: number
  }>(sql`
    ${downstreamsWith(2)}
    select n.name, ${downstream.pausedAt} as "pausedAt", ${downstream.pausedBy} as "pausedBy", ${downstream.concurrency} as concurrency,
      ${downstream.perSecond} as "perSecond", ${downstream.limitsAt} as "setAt", ${downstream.limitsBy} as "setBy", c.*,
      (select count(*)::int from (
        select from delivery f where f.downstream = n.name and f.status = 2 limit ${mostCounted + 1}) f) as failed
    from (
      select unnest(${textArray(names)}::text[]) as name union select name from downstream
      union select downstream from name where downstream is not null
    ) n
      left join downstream on downstream.name = n.name
      cross join lateral (
        select min(at) filter (where look = 1 and phase = 'WAITING') as "oldestDueAt", count(*) filter (where phase = 'WAITING')::int as waiting,
          count(*) filter (where phase = 'IN_FLIGHT')::int as "inFlight",
          count(*) filter (where phase = 'AWAITING_RECEIPT')::int as "awaitingReceipt",
          count(*) filter (where phase = 'BLOCKED')::int as blocked,
          array[count(*) filter (where look = 1), count(*) filter (where look = 2), count(*) filter (where look = 3)]::int[] as looked
        from (
          select 1 as look, phase, at from ${look('d.next_action_at <= now()', mostLooked)} due
          union all
          select 2, phase, at from ${look("d.next_action_at > now() and d.next_action_at < '9000-01-01'", mostLooked)} later
          union all
          select 3, phase, at from ${look("d.next_action_at >= '9000-01-01'", mostLooked)} held
        ) looked
      ) c
    order by n.name`)
  const date = (at: Date | string | null) => (at === null ? null : new Date(at))
  return rows.map(({ looked, concurrency, perSecond, setAt, setBy, ...row }) => ({
    ...row,
    pausedAt: date(row.pausedAt),
    oldestDueAt: date(row.oldestDueAt),
    limits: { concurrency, perSecond, setAt: date(setAt), setBy },
    /** More rows are open than were read: there may be more of each phase. */
    partial: looked.some(count => count >= mostLooked)
  }))
}
