// Rows of the outbox that were no task: people look at them, and take them back or drop them.
import { and, desc, eq, inArray, lt, sql, type PgColumn } from './drizzle.ts'
import { textArray } from './arrays.ts'
import type { Reads } from './reads.ts'
import type { Sql } from './pool.ts'
import { outboxRejected } from './schema.ts'
import { present } from './views.ts'

/** `messageCodes`: what the caller may see; null: all. The cursor is the id of the last one. */
export interface RejectedFilter {
  messageCodes: readonly string[] | null
  messageCode?: string
  cursor?: string
  limit: number
}

const highest = 'ffffffff-ffff-ffff-ffff-ffffffffffff'
const row = outboxRejected
const short = (column: PgColumn) => sql<string | null>`left(${column}, 200)`

/**
 * The last one rejected first, each with its problem. Whatever a producer wrote is cut to a length that somebody may want to read;
 * the body, which may be of any size, is not shown.
 */
export async function listRejected({ db }: Reads, filter: RejectedFilter) {
  const { messageCodes, messageCode, cursor = highest, limit } = filter
  const rows = await db
    .select({
      id: row.id,
      taskNo: short(row.taskNo),
      messageCode: short(row.messageCode),
      sceneType: short(row.sceneType),
      orderingKey: short(row.orderingKey),
      bodyBytes: sql<number>`coalesce(octet_length(${row.messageBody}), 0)`,
      createdBy: row.createdBy,
      createdAt: row.createdAt,
      rejectedAt: row.rejectedAt,
      problem: row.problem
    })
    .from(row)
    .where(
      and(
        lt(row.id, cursor),
        messageCodes ? inArray(row.messageCode, [...messageCodes]) : undefined,
        messageCode === undefined ? undefined : eq(row.messageCode, messageCode)
      )
    )
    .orderBy(desc(row.id))
    .limit(limit + 1)
  const page = rows.slice(0, limit)
  const last = page.at(-1)
  return {
    rejected: page.map(({ taskNo, messageCode: code, sceneType, orderingKey, ...one }) => ({
      ...one,
      ...present('taskNo', taskNo),
      ...present('messageCode', code),
      ...present('sceneType', sceneType),
      ...present('orderingKey', orderingKey),
      createdAt: one.createdAt.toISOString(),
      rejectedAt: one.rejectedAt.toISOString()
    })),
    ...(rows.length > page.length && last ? { nextCursor: last.id } : {})
  }
}

const codes = (messageCodes: readonly string[] | null): string | null =>
  messageCodes && textArray(messageCodes)

/** Who takes it back or drops it; `messageCodes`: what he may touch. */
export interface RejectedRequest {
  id: string
  messageCodes: readonly string[] | null
  who: string
}

/** Puts it back, behind all that waits; its alarm goes with it, and the audit says who did it. False: there is none. */
export async function retryRejected(db: Sql, request: RejectedRequest): Promise<boolean> {
  const back = await db`
    with gone as (
      delete from outbox_rejected
      where id = ${request.id}::uuid and (
        ${codes(request.messageCodes)}::text[] is null or message_code = any(${codes(request.messageCodes)}::text[])
      )
      returning *
    ), back as (
      insert into outbox (
        task_no, message_code, scene_type, message_body, deliver_start_time, delay, deliver_before, ordering_key,
        need_callback, retry_times, biz_type, biz_key, extend, members, traceparent, created_at, created_by
      )
      select task_no, message_code, scene_type, message_body, deliver_start_time, delay, deliver_before, ordering_key,
        need_callback, retry_times, biz_type, biz_key, extend, members, traceparent, created_at, created_by
      from gone
    ), quiet as (
      delete from alarm where task_id in (select id from gone)
    )
    insert into audit (who, what, target, detail)
    select ${request.who}, 'outbox.retry', id, jsonb_build_object('taskNo', left(task_no, 200), 'problem', problem->'code')
    from gone`
  return back.count > 0
}

/** Drops it for good; the audit keeps what it was, but for its body. False: there is none. */
export async function removeRejected(db: Sql, request: RejectedRequest): Promise<boolean> {
  const dropped = await db`
    with gone as (
      delete from outbox_rejected
      where id = ${request.id}::uuid and (
        ${codes(request.messageCodes)}::text[] is null or message_code = any(${codes(request.messageCodes)}::text[])
      )
      returning *
    ), quiet as (
      delete from alarm where task_id in (select id from gone)
    )
    insert into audit (who, what, target, detail)
    select ${request.who}, 'outbox.delete', id, jsonb_build_object(
      'taskNo', left(task_no, 200), 'messageCode', left(message_code, 200), 'createdBy', created_by, 'problem', problem->'code'
    )
    from gone`
  return dropped.count > 0
}
