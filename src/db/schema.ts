// The tables: `npx drizzle-kit generate` prints the difference as SQL, and the types of rows come from here. Most lists of
// the API are read through drizzle. The hot path is plain SQL.
// There are no foreign keys: each would cost one more look-up and one more row lock a task on the hot path, and the one
// statement that deletes tasks (retention) deletes their rows in the other tables, or drops them with their day.

import {
  sql,
  type InferSelectModel,
  type Table,
  bigint,
  bigserial,
  boolean,
  check,
  index,
  integer,
  interval,
  jsonb,
  pgTable,
  primaryKey,
  smallint,
  text,
  uniqueIndex,
  uuid,
  at,
  bytea,
  oneOf
} from './drizzle.ts'
import {
  handledBys,
  phases,
  reasons,
  receiptResults,
  statusNumber,
  type AttemptEnd,
  type HandledBy,
  type Phase,
  type Reason,
  type TaskState,
  type ReceiptResult
} from '../domain/types.ts'

export { dependency, ordering, prepared, promotion } from './waiting-tables.ts'
export { alarm, alarmChannel, alarmGroup, alarmSend } from './alarm-tables.ts'
export { downstream, node, owner } from './cluster-tables.ts'
export { operation, operationDelivery, reconciliation } from './operation-tables.ts'
export { failure, failureArchive, session, statMinute } from './dashboard-tables.ts'
export { requestShape } from './request-tables.ts'

const outcomes = ['delivered', 'probed', 'refused', 'failed'] as const satisfies AttemptEnd['kind'][]
const taskStates = ['ACTIVE', 'PREPARED', 'CANCELLED'] as const

/** A row of a table by the names of its columns, as plain SQL returns it. */
export type Row<T extends Table> = InferSelectModel<T, { dbColumnNames: true }>

/**
 * Immutable except for `state`, and for `extend` if an onReceipt sets it. The body is exactly the text that was posted: jsonb would
 * reorder, round and refuse.
 */
export const task = pgTable(
  'task',
  {
    id: uuid('id').primaryKey(),
    seq: bigserial('seq', { mode: 'number' }).notNull(),
    taskNo: text('task_no').notNull().unique('task_task_no_key'),
    messageCode: text('message_code').notNull(),
    sceneType: text('scene_type').notNull(),
    messageBody: text('message_body').notNull(),
    contentHash: text('content_hash').notNull(),
    /** Null: the same as content_hash, or stored by a process of version 1.0. */
    contentNormal: text('content_normal'),
    deliverStartTime: at('deliver_start_time'),
    needCallback: boolean('need_callback'),
    retryTimes: smallint('retry_times'),
    orderingKey: text('ordering_key'),
    extend: jsonb('extend'),
    state: text('state').$type<TaskState>().notNull().default('ACTIVE'),
    createdAt: at('created_at').notNull().defaultNow(),
    createdBy: text('created_by').notNull(),
    traceparent: text('traceparent'),
    bizType: text('biz_type'),
    bizKey: text('biz_key'),
    uniqueBiz: boolean('unique_biz')
  },
  t => [
    check('task_state_check', oneOf(t.state, taskStates)),
    index('task_biz_idx')
      .on(t.bizType, t.bizKey, t.id)
      .where(sql`${t.bizType} is not null`),
    uniqueIndex('task_unique_biz_key')
      .on(t.messageCode, t.bizType, t.bizKey)
      .where(sql`${t.uniqueBiz}`)
  ]
)

/** The only hot row. Fillfactor 70 (by hand in the migration) leaves room for its next versions on the same page. */
export const delivery = pgTable(
  'delivery',
  {
    taskId: uuid('task_id').notNull(),
    downstream: text('downstream').notNull(),
    status: smallint('status').notNull(),
    phase: text('phase').$type<Phase>(),
    nextActionAt: at('next_action_at'),
    attempt: integer('attempt').notNull(),
    triesLeft: smallint('tries_left').notNull(),
    lost: smallint('lost').notNull().default(0),
    roundFrom: integer('round_from').notNull().default(1),
    needsReceipt: boolean('needs_receipt').notNull(),
    orderingKey: text('ordering_key'),
    position: bigint('position', { mode: 'number' }),
    deliverBefore: at('deliver_before'),
    reason: text('reason').$type<Reason>(),
    deliveredAt: at('delivered_at'),
    handledAt: at('handled_at'),
    handledBy: text('handled_by').$type<HandledBy>(),
    createdAt: at('created_at').notNull().defaultNow(),
    updatedAt: at('updated_at').notNull().defaultNow(),
    updatedBy: text('updated_by'),
    /** Null in the first round. */
    round: smallint('round'),
    /** When the round was claimed first; null: when the row was created. */
    roundAt: at('round_at'),
    /** While it is IN_FLIGHT: the number of the process that claimed it, or that took it from the queue (owner). Null: not known. */
    owner: integer('owner')
  },
  t => [
    primaryKey({ name: 'delivery_pkey', columns: [t.taskId, t.downstream] }),
    // Each index costs time on every task: these two and no more. Those of ordering keys have no entry for deliveries without a key.
    index('delivery_due_idx')
      .on(t.downstream, t.nextActionAt)
      .where(sql`${t.status} = 0`),
    index('delivery_failed_idx')
      .on(t.downstream, t.taskId)
      .where(sql`${t.status} = 2`),
    uniqueIndex('delivery_position_key')
      .on(t.downstream, t.orderingKey, t.position)
      .where(sql`${t.orderingKey} is not null`),
    // Two heads are impossible.
    uniqueIndex('delivery_head_key')
      .on(t.downstream, t.orderingKey)
      .where(
        sql`${t.position} > 0 and ${oneOf(
          t.phase,
          phases.filter(phase => phase !== 'BLOCKED')
        )}`
      ),
    check(
      'delivery_position_check',
      sql`(${t.orderingKey} is null) = (${t.position} is null) and ${t.position} is distinct from 0`
    ),
    check('delivery_blocked_in_order', sql`${t.position} > 0 or ${t.phase} is distinct from 'BLOCKED'`),
    check('delivery_status_check', oneOf(t.status, Object.values(statusNumber))),
    // A SENDING delivery always has a clock and a phase, and no other delivery has them: no orphan, no zombie.
    check('delivery_sending_has_clock', sql`(${t.status} = 0) = (${t.nextActionAt} is not null)`),
    check('delivery_sending_has_phase', sql`(${t.status} = 0) = (${t.phase} is not null)`),
    check(
      'delivery_handled_has_time',
      sql`${t.status} <> 1 or (${t.handledAt} is not null and ${t.handledBy} is not null)`
    ),
    check('delivery_failed_has_reason', sql`${t.status} <> 2 or ${t.reason} is not null`),
    check('delivery_phase_check', oneOf(t.phase, phases)),
    check('delivery_reason_check', oneOf(t.reason, reasons)),
    check('delivery_handled_by_check', oneOf(t.handledBy, handledBys)),
    check('delivery_numbers_check', sql`${t.attempt} >= 0 and ${t.triesLeft} >= 0 and ${t.lost} >= 0`)
  ]
)

/**
 * Append-only, except for the reason of a delivered attempt for which no receipt came. Written even when its move changed no row.
 * Partitioned by days of task_id (partitions.ts), like receipts.
 */
export const attempt = pgTable(
  'attempt',
  {
    taskId: uuid('task_id').notNull(),
    downstream: text('downstream').notNull(),
    attempt: integer('attempt').notNull(),
    outcome: text('outcome').$type<AttemptEnd['kind']>().notNull(),
    reason: text('reason'),
    statusCode: integer('status_code'),
    answer: bytea('answer'),
    /** JSON of [name, value] pairs. */
    headers: text('headers'),
    address: text('address'),
    warning: text('warning'),
    ms: integer('ms').notNull(),
    node: text('node').notNull(),
    startedAt: at('started_at').notNull(),
    /** The broker's own id. */
    messageId: text('message_id'),
    /** The version of the handler that made its request (handler/version.ts). Null: an older version of Ackbox wrote it. */
    handlerVersion: integer('handler_version'),
    // What was sent; null for a first attempt that was delivered, since its request can be made again (delivery/request-again.ts).
    requestShape: bigint('request_shape', { mode: 'number' }),
    target: text('target'),
    bodyBytes: integer('body_bytes'),
    bodySha256: bytea('body_sha256')
  },
  t => [
    primaryKey({ name: 'attempt_pkey', columns: [t.taskId, t.downstream, t.attempt] }),
    check('attempt_outcome_check', oneOf(t.outcome, outcomes))
  ]
)

/** Append-only. `data` is the text as posted. */
export const receipt = pgTable(
  'receipt',
  {
    id: bigserial('id', { mode: 'number' }).notNull(),
    taskId: uuid('task_id').notNull(),
    downstream: text('downstream').notNull(),
    attempt: integer('attempt').notNull(),
    result: text('result').$type<ReceiptResult>().notNull(),
    reason: text('reason'),
    data: text('data'),
    applied: boolean('applied').notNull(),
    late: boolean('late').notNull().default(false),
    remote: text('remote'),
    createdAt: at('created_at').notNull().defaultNow()
  },
  t => [
    primaryKey({ name: 'receipt_pkey', columns: [t.taskId, t.id] }),
    check('receipt_result_check', oneOf(t.result, receiptResults))
  ]
)

/** `hash` is the sha256 of the key in hex; the key itself is shown once and kept nowhere. */
export const apiKey = pgTable('api_key', {
  id: text('id').primaryKey(),
  name: text('name').notNull(),
  hash: text('hash').notNull().unique('api_key_hash_key'),
  scopes: text('scopes').array().notNull(),
  messageCodes: text('message_codes').array(),
  createdAt: at('created_at').notNull().defaultNow(),
  revokedAt: at('revoked_at'),
  /** The key that created it. Null: the command line, AUTH=off, or a process of an older version. */
  createdById: text('created_by_id'),
  /** The key whose limits it shares. Null: it has limits of its own. */
  quotaId: text('quota_id')
})

/** The values of a producer, unchecked: later they pass the same checks as a POST, which refuse wrong values. */
const enqueued = () => ({
  taskNo: text('task_no'),
  messageCode: text('message_code'),
  sceneType: text('scene_type'),
  messageBody: text('message_body'),
  deliverStartTime: at('deliver_start_time'),
  delay: interval('delay'),
  deliverBefore: at('deliver_before'),
  orderingKey: text('ordering_key'),
  needCallback: boolean('need_callback'),
  retryTimes: integer('retry_times'),
  bizType: text('biz_type'),
  bizKey: text('biz_key'),
  extend: jsonb('extend'),
  /** Of enqueue_many: all other members, as the producer wrote them. */
  members: jsonb('members'),
  traceparent: text('traceparent'),
  createdAt: at('created_at')
    .notNull()
    .default(sql`clock_timestamp()`),
  createdBy: text('created_by').notNull()
})

/** Written by ackbox_api.enqueue (by hand in the migration) in the producer's own transaction; rows are only inserted and deleted. */
export const outbox = pgTable('outbox', {
  id: bigserial('id', { mode: 'number' }).primaryKey(),
  ...enqueued()
})

/** Rows that could not become tasks, with the problem that the answer to a POST would have. The id is also that of the alarm. */
export const outboxRejected = pgTable('outbox_rejected', {
  id: uuid('id').primaryKey(),
  ...enqueued(),
  problem: jsonb('problem').notNull(),
  rejectedAt: at('rejected_at').notNull().defaultNow()
})

/** The process that accepts the rows of a shard of ordering keys, and until when. */
export const outboxLease = pgTable('outbox_lease', {
  shard: smallint('shard').primaryKey(),
  owner: text('owner').notNull(),
  until: at('until').notNull()
})

/** The acts of operators. A trigger (by hand in the migration) refuses update and delete. */
export const audit = pgTable(
  'audit',
  {
    id: bigserial('id', { mode: 'number' }).primaryKey(),
    at: at('at').notNull().defaultNow(),
    who: text('who').notNull(),
    what: text('what').notNull(),
    target: text('target'),
    detail: jsonb('detail'),
    /** The API key that was used. Null: the command line, AUTH=off, or a row of an older version. */
    keyId: text('key_id')
  },
  t => [index('audit_target_idx').on(t.target, t.id)]
)
