// Lists of bulk operations and of their deliveries.
import { statusWord } from '../domain/types.ts'
import { and, asc, desc, eq, lt, sql, type SQL } from './drizzle.ts'
import { lastReason, type Reads } from './reads.ts'
import { iso } from './views.ts'
import { present } from '../domain/optional-members.ts'
import { delivery, operation, operationDelivery, task } from './schema.ts'
import { countText, mostCounted, paged } from './page.ts'
import { textArray } from './arrays.ts'
import { lowestUuid, uuidForm } from '../domain/ids.ts'

/** `codes`: those of the caller; null: all. Only a caller with all codes sees an operation for all codes. */
const seenBy = (codes: readonly string[] | null) =>
  codes === null ? undefined : sql`${operation.messageCodes} <@ ${textArray(codes)}::text[]`

const operationView = (row: typeof operation.$inferSelect) => ({
  id: row.id,
  kind: 'redeliver',
  state: row.state,
  filter: row.filter,
  matched: countText(row.matched),
  redelivered: row.redelivered,
  skipped: row.skipped,
  createdAt: row.createdAt.toISOString(),
  createdBy: row.createdBy,
  ...present('createdById', row.createdById),
  updatedAt: row.updatedAt.toISOString(),
  ...present('endedAt', iso(row.endedAt)),
  ...present('endedBy', row.endedBy)
})

/** null: there is none that the caller may see. */
export async function readOperation({ db }: Reads, id: string, codes: readonly string[] | null) {
  const [row] = await db
    .select()
    .from(operation)
    .where(and(eq(operation.id, id), seenBy(codes)))
  return row ? operationView(row) : null
}

/** The newest first. */
export async function listOperations(
  { db }: Reads,
  filter: { messageCodes: readonly string[] | null; cursor?: string; limit: number }
) {
  if (filter.cursor !== undefined && !uuidForm.test(filter.cursor)) return 'bad_cursor' as const
  const rows = await db
    .select()
    .from(operation)
    .where(
      and(
        filter.cursor === undefined ? undefined : lt(operation.id, filter.cursor),
        seenBy(filter.messageCodes)
      )
    )
    .orderBy(desc(operation.id))
    .limit(filter.limit + 1)
  const { page, next } = paged(filter, rows, row => row.id)
  return { operations: page.map(operationView), ...next }
}

/** The deliveries of an operation, in their current state. The cursor is `taskId:downstream`. null: as above. */
export async function listOperationDeliveries(
  reads: Reads,
  filter: { id: string; messageCodes: readonly string[] | null; cursor?: string; limit: number }
) {
  const [id = '', name = ''] = filter.cursor?.split(':') ?? [lowestUuid]
  if (!uuidForm.test(id)) return 'bad_cursor' as const
  if (!(await readOperation(reads, filter.id, filter.messageCodes))) return null
  const item = operationDelivery
  const rows = await reads.db
    .select({
      taskId: item.taskId,
      downstream: item.downstream,
      result: item.result,
      taskNo: task.taskNo,
      messageCode: task.messageCode,
      status: delivery.status,
      phase: delivery.phase,
      attempt: delivery.attempt,
      reason: delivery.reason,
      lastReason: lastReason(item.taskId, item.downstream)
    })
    .from(item)
    .innerJoin(task, eq(task.id, item.taskId))
    .innerJoin(delivery, and(eq(delivery.taskId, item.taskId), eq(delivery.downstream, item.downstream)))
    .where(
      and(eq(item.operationId, filter.id), sql`(${item.taskId}, ${item.downstream}) > (${id}::uuid, ${name})`)
    )
    .orderBy(asc(item.taskId), asc(item.downstream))
    .limit(filter.limit + 1)
  const { page, next } = paged(filter, rows, row => `${row.taskId}:${row.downstream}`)
  const deliveries = page.map(row => ({
    taskNo: row.taskNo,
    messageCode: row.messageCode,
    downstream: row.downstream,
    ...present('result', row.result),
    status: statusWord(row.status),
    ...present('phase', row.phase),
    attempt: row.attempt,
    ...present('reason', row.reason),
    ...present('lastReason', row.lastReason),
    /** After the operation had redelivered it. */
    failedAgain: row.result === 'redelivered' && row.status === 2
  }))
  return { deliveries, ...next }
}

/**
 * The current statuses of all deliveries that an operation redelivered: the first 10,000 alone would prove nothing. Beyond 10,000 only
 * SENDING and FAILED deliveries are counted, from their indexes, and only when the operation no longer runs; the rest is HANDLED or was
 * deleted.
 */
export async function countOutcomes(
  { db }: Reads,
  { id, redelivered, state }: { id: string; redelivered: number; state: string }
): Promise<Record<string, number>> {
  if (redelivered > mostCounted && state === 'RUNNING') return {}
  const standing = (status: SQL) => sql`
    select d.status, count(*)::int as n
    from ${operationDelivery} i join ${delivery} d on d.task_id = i.task_id and d.downstream = i.downstream
    where i.operation_id = ${id} and i.result = 'redelivered' and ${status}
    group by d.status`
  const rows = await db.execute<{ status: number; n: number }>(
    redelivered <= mostCounted
      ? standing(sql`true`)
      : sql`${standing(sql`d.status = 0`)} union all ${standing(sql`d.status = 2`)}`
  )
  const counts = Object.fromEntries(rows.map(row => [statusWord(row.status), row.n]))
  return redelivered <= mostCounted ? counts : { SENDING: 0, FAILED: 0, ...counts }
}
