// What runs in the background: bulk redeliveries, and reconciliations by schedule.
import { sql, check, index, integer, jsonb, pgTable, primaryKey, text, uuid, at, oneOf } from './drizzle.ts'

const operationStates = ['RUNNING', 'STOPPED', 'DONE'] as const
type OperationState = (typeof operationStates)[number]

/** Which FAILED deliveries a bulk redelivery takes. All members together; without a member: any. */
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
  /** Of its last failure. */
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
    /** Of whoever asked: only tasks of these. Null: of all. */
    messageCodes: text('message_codes').array(),
    /** How many matched at the start, counted to 10,001. */
    matched: integer('matched').notNull(),
    redelivered: integer('redelivered').notNull().default(0),
    skipped: integer('skipped').notNull().default(0),
    /** By downstream: the last task looked at, or `end`. */
    cursors: jsonb('cursors').$type<Record<string, string>>().notNull().default({}),
    owner: text('owner'),
    leasedUntil: at('leased_until'),
    createdAt: at('created_at').notNull().defaultNow(),
    createdBy: text('created_by').notNull(),
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

/** What an operation took, and what became of it. `result` null: it was being changed when its process died, or just now. */
export const operationDelivery = pgTable(
  'operation_delivery',
  {
    operationId: uuid('operation_id').notNull(),
    taskId: uuid('task_id').notNull(),
    downstream: text('downstream').notNull(),
    attempt: integer('attempt').notNull(),
    result: text('result').$type<'redelivered' | 'skipped'>()
  },
  t => [
    primaryKey({ name: 'operation_delivery_pkey', columns: [t.operationId, t.taskId, t.downstream] }),
    check('operation_delivery_result_check', oneOf(t.result, ['redelivered', 'skipped']))
  ]
)

/** A row for each downstream of a handler that has a `reconcile`: when it runs next, who runs it now, and what the last run found. */
export const reconciliation = pgTable(
  'reconciliation',
  {
    messageCode: text('message_code').notNull(),
    downstream: text('downstream').notNull(),
    nextAt: at('next_at').notNull(),
    /** Who runs it, and until when: nobody else starts it before. */
    owner: text('owner'),
    until: at('until'),
    /** Tasks that were created before are compared already. */
    comparedTo: at('compared_to').notNull(),
    /** Of the last run that came to its end. */
    ranAt: at('ran_at'),
    missing: integer('missing'),
    differs: integer('differs'),
    unknown: integer('unknown'),
    /** The first of those that the downstream has handled and we do not know. */
    unknownTaskNos: text('unknown_task_nos').array(),
    /** The alarm about them has this id instead of a task's. */
    unknownAlarm: uuid('unknown_alarm'),
    /** Why the last run came to no end. */
    error: text('error')
  },
  t => [primaryKey({ name: 'reconciliation_pkey', columns: [t.messageCode, t.downstream] })]
)
