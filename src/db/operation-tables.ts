// Background work: bulk redeliveries, and reconciliations by schedule.
import {
  sql,
  check,
  index,
  integer,
  jsonb,
  pgTable,
  primaryKey,
  smallint,
  text,
  uuid,
  at,
  oneOf
} from './drizzle.ts'

const operationStates = ['RUNNING', 'STOPPED', 'DONE'] as const
type OperationState = (typeof operationStates)[number]

/** Selects the FAILED deliveries of a bulk redelivery. All members must match; a missing member matches any. */
export interface RedeliverFilter {
  messageCode?: string
  sceneType?: string
  downstream?: string
  bizType?: string
  bizKey?: string
  createdBy?: string
  taskNoPrefix?: string
  reason?: string
  /** Part of the text of the last reason. */
  lastReason?: string
  /** The fingerprint of its last failure. */
  fingerprint?: string
  /** RFC 3339: when the task was created. */
  from?: string
  to?: string
}

export const operation = pgTable(
  'operation',
  {
    id: uuid('id').primaryKey(),
    state: text('state').$type<OperationState>().notNull().default('RUNNING'),
    filter: jsonb('filter').$type<RedeliverFilter>().notNull(),
    /** The messageCodes of the caller: only their tasks. Null: all. */
    messageCodes: text('message_codes').array(),
    /** Matching deliveries at the start, counted up to 10,001. */
    matched: integer('matched').notNull(),
    redelivered: integer('redelivered').notNull().default(0),
    skipped: integer('skipped').notNull().default(0),
    /** By downstream: the last task that was read, or `end`. */
    cursors: jsonb('cursors').$type<Record<string, string>>().notNull().default({}),
    owner: text('owner'),
    leasedUntil: at('leased_until'),
    createdAt: at('created_at').notNull().defaultNow(),
    createdBy: text('created_by').notNull(),
    /** The API key that started it. Null: AUTH=off, or a process of an older version. */
    createdById: text('created_by_id'),
    updatedAt: at('updated_at').notNull().defaultNow(),
    endedAt: at('ended_at'),
    endedBy: text('ended_by')
  },
  t => [
    check('operation_state_check', oneOf(t.state, operationStates)),
    check('operation_ended_check', sql`(${t.state} = 'RUNNING') = (${t.endedAt} is null)`),
    index('operation_running_idx')
      .on(t.id)
      .where(sql`${t.state} = 'RUNNING'`)
  ]
)

/** The deliveries that an operation took. `result` null: it is being changed, or was when its process died. */
export const operationDelivery = pgTable(
  'operation_delivery',
  {
    operationId: uuid('operation_id').notNull(),
    taskId: uuid('task_id').notNull(),
    downstream: text('downstream').notNull(),
    attempt: integer('attempt').notNull(),
    /** The round that FAILED. Null: taken by a process of a version without this column. */
    round: smallint('round'),
    result: text('result').$type<'redelivered' | 'skipped'>()
  },
  t => [
    primaryKey({ name: 'operation_delivery_pkey', columns: [t.operationId, t.taskId, t.downstream] }),
    index('operation_delivery_taken_idx')
      .on(t.operationId, t.taskId, t.downstream)
      .where(sql`${t.result} is null`),
    check('operation_delivery_result_check', oneOf(t.result, ['redelivered', 'skipped']))
  ]
)

/** A row for each downstream with a `reconcile`: the next run, the running one, and the result of the last one. */
export const reconciliation = pgTable(
  'reconciliation',
  {
    messageCode: text('message_code').notNull(),
    downstream: text('downstream').notNull(),
    nextAt: at('next_at').notNull(),
    /** The process that runs it, and until when no other may start it. */
    owner: text('owner'),
    until: at('until'),
    /** Tasks created before this time are compared already. */
    comparedTo: at('compared_to').notNull(),
    /** The last complete run, and its counts. */
    ranAt: at('ran_at'),
    missing: integer('missing'),
    differs: integer('differs'),
    unknown: integer('unknown'),
    /** The first taskNos that the downstream has handled and that are unknown here. */
    unknownTaskNos: text('unknown_task_nos').array(),
    /** The alarm about them has this id instead of a task's. */
    unknownAlarm: uuid('unknown_alarm'),
    /** Why the last run failed. */
    error: text('error')
  },
  t => [primaryKey({ name: 'reconciliation_pkey', columns: [t.messageCode, t.downstream] })]
)
