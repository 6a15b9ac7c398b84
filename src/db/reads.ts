import { asc, desc, eq, relations, sql, type SQL, type PgColumn, drizzle } from './drizzle.ts'
import { openDb, readConnections } from './pool.ts'
import * as tables from './schema.ts'

const { task, delivery, attempt, receipt, prepared } = tables

const schema = {
  ...tables,
  ofTask: relations(task, ({ one, many }) => ({
    deliveries: many(delivery),
    prepared: one(prepared, { fields: [task.id], references: [prepared.taskId] })
  })),
  ofDelivery: relations(delivery, ({ one, many }) => ({
    task: one(task, { fields: [delivery.taskId], references: [task.id] }),
    attempts: many(attempt),
    receipts: many(receipt)
  })),
  ofAttempt: relations(attempt, ({ one }) => ({
    delivery: one(delivery, {
      fields: [attempt.taskId, attempt.downstream],
      references: [delivery.taskId, delivery.downstream]
    })
  })),
  ofReceipt: relations(receipt, ({ one }) => ({
    delivery: one(delivery, {
      fields: [receipt.taskId, receipt.downstream],
      references: [delivery.taskId, delivery.downstream]
    })
  }))
}

/** The most dependents that a task names. */
const namedBefore = 100
/** The most attempts, and the most receipts, that a task shows of each delivery: a delivery can be sent again without end. */
export const mostOfDelivery = 100

/** A task names only other tasks of these messageCodes; null: all. */
const ofCodes = sql`(${sql.placeholder('codes')}::text[] is null or other.message_code = any(${sql.placeholder('codes')}::text[]))`

const afterOf = (id: PgColumn) =>
  sql<string[] | null>`(
    select array_agg(other.task_no order by other.task_no)
    from dependency x join task other on other.id = x.after_id
    where x.task_id = ${id} and ${ofCodes}
  )`.as('after')

const beforeOf = (id: PgColumn) =>
  sql<string[] | null>`(
    select array_agg(first.task_no) from (
      select other.task_no
      from dependency x join task other on other.id = x.task_id
      where x.after_id = ${id} and ${ofCodes}
      order by x.task_id
      limit ${sql.raw(String(namedBefore))}
    ) first
  )`.as('before')

/** An expression over the delivery `d`, for the delivery of these columns. */
const ofD = <T>(expression: string, taskId: PgColumn, downstream: PgColumn): SQL<T> =>
  sql`(select ${sql.raw(expression)} from (select ${taskId} as task_id, ${downstream} as downstream) d)`

/**
 * The reason of the last attempt of the delivery `d`, or else of its last receipt. For a delivered attempt its own receipt is more exact
 * than `no_receipt`.
 */
export const lastReasonOfD = `coalesce(
  (select coalesce((select r.reason from receipt r where a.outcome = 'delivered' and r.task_id = a.task_id
      and r.downstream = a.downstream and r.attempt = a.attempt and r.applied and r.result <> 'PROCESSING'
      order by r.id desc limit 1), a.reason)
    from attempt a where a.task_id = d.task_id and a.downstream = d.downstream order by a.attempt desc limit 1),
  (select r.reason from receipt r where r.task_id = d.task_id and r.downstream = d.downstream order by r.id desc limit 1))`

export const lastReason = (taskId: PgColumn, downstream: PgColumn): SQL<string | null> =>
  ofD(lastReasonOfD, taskId, downstream)

export const lastAttemptAt = (taskId: PgColumn, downstream: PgColumn): SQL<string | null> => sql`(
  select a.started_at from attempt a where a.task_id = ${taskId} and a.downstream = ${downstream}
  order by a.attempt desc limit 1)`

/** The fingerprint of the last failure of the delivery `d`. */
export const lastFingerprintOfD = `(
  select e.fingerprint from failure e where e.task_id = d.task_id and e.downstream = d.downstream
  order by e.id desc limit 1)`

/** The time of the last failure of the delivery `d`. */
export const lastFailedAtOfD = `(
  select e.created_at from failure e where e.task_id = d.task_id and e.downstream = d.downstream
  order by e.id desc limit 1)`

export const lastFingerprint = (taskId: PgColumn, downstream: PgColumn): SQL<string | null> =>
  ofD(lastFingerprintOfD, taskId, downstream)

/** The status code of the answer to the last attempt, if it was answered. */
export const lastStatus = (taskId: PgColumn, downstream: PgColumn): SQL<number | null> => sql`(
  select a.status_code from attempt a where a.task_id = ${taskId} and a.downstream = ${downstream}
  order by a.attempt desc limit 1)`

export type Reads = ReturnType<typeof openReads>

/**
 * The reads of the API, through drizzle, on their own connections: drizzle changes how its client parses times, and a slow list
 * delays no task. Their errors have those of PostgreSQL as their cause.
 */
export function openReads(url: string) {
  const client = openDb(url, { max: readConnections, applicationName: 'ackbox reads' })
  const db = drizzle(client, { schema })
  return {
    db,
    // Prepared: drizzle takes a millisecond to build a nested query, and callers that wait for a task's end read it often.
    task: db.query.task
      .findFirst({
        where: eq(task.taskNo, sql.placeholder('taskNo')),
        extras: fields => ({ after: afterOf(fields.id), before: beforeOf(fields.id) }),
        with: {
          prepared: true,
          deliveries: {
            orderBy: asc(delivery.downstream),
            with: {
              // The newest ones. One more tells whether there are more.
              attempts: { orderBy: desc(attempt.attempt), limit: mostOfDelivery + 1 },
              receipts: { orderBy: desc(receipt.id), limit: mostOfDelivery + 1 }
            }
          }
        }
      })
      .prepare('task'),
    tasks: db.query.task
      .findMany({
        columns: { messageBody: false },
        where: sql`${task.id} = any(${sql.placeholder('ids')}::uuid[])`,
        with: {
          prepared: true,
          deliveries: {
            orderBy: asc(delivery.downstream),
            extras: fields => ({
              lastAttemptAt: lastAttemptAt(fields.taskId, fields.downstream).as('last_attempt_at'),
              lastReason: lastReason(fields.taskId, fields.downstream).as('last_reason'),
              lastStatus: lastStatus(fields.taskId, fields.downstream).as('last_status')
            })
          }
        },
        orderBy: desc(task.id)
      })
      .prepare('tasks'),
    end: () => client.end({ timeout: 5 })
  }
}
