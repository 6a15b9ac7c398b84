// Rows of the outbox that could not become tasks: operators list them, and retry or delete them.
import { and, desc, lt, sql, type PgColumn } from './drizzle.ts'
import { isAnyOf } from './arrays.ts'
import { enqueuedColumns } from './outbox.ts'
import { ofMessages, paged, type ListFilter } from './page.ts'
import type { Reads } from './reads.ts'
import { actor } from './audit.ts'
import type { Sql } from './pool.ts'
import { outboxRejected as row } from './schema.ts'
import { present } from '../domain/optional-members.ts'
import type { Actor } from '../domain/types.ts'

/** The cursor is the id of the last one. */
export type RejectedFilter = Pick<ListFilter, 'messageCodes' | 'messageCode' | 'cursor' | 'limit'>

const short = (column: PgColumn) => sql<string | null>`left(${column}, 200)`

/**
 * The last rejected row first, each with its problem. Texts of a producer are cut to a readable length; the body, which may have
 * any size, is not shown.
 */
export async function listRejected({ db }: Reads, filter: RejectedFilter) {
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
        filter.cursor === undefined ? undefined : lt(row.id, filter.cursor),
        ofMessages(filter, row.messageCode)
      )
    )
    .orderBy(desc(row.id))
    .limit(filter.limit + 1)
  const { page, next } = paged(filter, rows, one => one.id)
  const rejected = page.map(({ taskNo, messageCode, sceneType, orderingKey, ...one }) => ({
    ...one,
    ...present('taskNo', taskNo),
    ...present('messageCode', messageCode),
    ...present('sceneType', sceneType),
    ...present('orderingKey', orderingKey),
    createdAt: one.createdAt.toISOString(),
    rejectedAt: one.rejectedAt.toISOString()
  }))
  return { rejected, ...next }
}

/** `who`: the operator who retries or deletes the row. `messageCodes`: those that the operator may change. */
export interface RejectedRequest {
  id: string
  messageCodes: readonly string[] | null
  who: Actor
}

/** Removes the row, as the CTE `gone`, and its alarm. */
const taken = (db: Sql, { id, messageCodes }: RejectedRequest) => db`
    gone as (
      delete from outbox_rejected where id = ${id}::uuid and ${isAnyOf(db, messageCodes, 'message_code')}
      returning *
    ), quiet as (
      delete from alarm where task_id in (select id from gone)
    )`

/** Puts the row back, behind all rows that wait; removes its alarm; the audit names the operator. False: there is no such row. */
export async function retryRejected(db: Sql, request: RejectedRequest): Promise<boolean> {
  const back = await db`
    with ${taken(db, request)}, back as (
      insert into outbox (${enqueuedColumns(db)}) select ${enqueuedColumns(db)} from gone
    )
    insert into audit (who, key_id, what, target, detail)
    select ${actor(db, request.who)}, 'outbox.retry', id, jsonb_build_object('taskNo', left(task_no, 200), 'problem', problem->'code')
    from gone`
  return back.count > 0
}

/** Deletes the row for good; the audit keeps its facts, without the body. False: there is no such row. */
export async function removeRejected(db: Sql, request: RejectedRequest): Promise<boolean> {
  const dropped = await db`
    with ${taken(db, request)}
    insert into audit (who, key_id, what, target, detail)
    select ${actor(db, request.who)}, 'outbox.delete', id, jsonb_build_object(
      'taskNo', left(task_no, 200), 'messageCode', left(message_code, 200), 'createdBy', created_by, 'problem', problem->'code'
    )
    from gone`
  return dropped.count > 0
}
