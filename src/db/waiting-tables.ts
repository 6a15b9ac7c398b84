// The tables of tasks that wait: for other tasks, for their turn in an orderingKey, or for the commit of their producer.
import { sql, at, bigint, check, index, integer, oneOf, pgTable, primaryKey, text, uuid } from './drizzle.ts'
import { checkAnswers, type CheckAnswer } from '../domain/types.ts'

/** A row for each pair of a task and its prerequisite. `done_at`: since when it no longer waits. */
export const dependency = pgTable(
  'dependency',
  {
    taskId: uuid('task_id').notNull(),
    afterId: uuid('after_id').notNull(),
    doneAt: at('done_at')
  },
  t => [
    primaryKey({ name: 'dependency_pkey', columns: [t.taskId, t.afterId] }),
    index('dependency_after_idx').on(t.afterId, t.taskId),
    index('dependency_open_idx')
      .on(t.taskId)
      .where(sql`${t.doneAt} is null`)
  ]
)

/** Deliveries of one downstream with one key run one after the other. A statement that decides which is next locks this row first. */
export const ordering = pgTable(
  'ordering',
  {
    downstream: text('downstream').notNull(),
    orderingKey: text('ordering_key').notNull(),
    /** The position of the next accepted delivery. */
    next: bigint('next', { mode: 'number' }).notNull(),
    /** The position of the delivery that may run; null: none is left. */
    head: bigint('head', { mode: 'number' }),
    /** Since when its head is FAILED and holds it. */
    heldAt: at('held_at')
  },
  t => [
    primaryKey({ name: 'ordering_pkey', columns: [t.downstream, t.orderingKey] }),
    index('ordering_held_idx')
      .on(t.downstream, t.orderingKey)
      .where(sql`${t.heldAt} is not null`)
  ]
)

/** A key whose next delivery may run, since one has ended. Written in the same transaction, by a trigger (by hand in the migration). */
export const promotion = pgTable(
  'promotion',
  {
    downstream: text('downstream').notNull(),
    orderingKey: text('ordering_key').notNull()
  },
  t => [index('promotion_key_idx').on(t.downstream, t.orderingKey)]
)

/**
 * The row of a task that was posted as prepared: the values that its deliveries need at the commit, and the checks of its
 * producer. While the task is PREPARED it has a clock for the next check. Afterwards `ended_by` shows the end.
 */
export const prepared = pgTable(
  'prepared',
  {
    taskId: uuid('task_id').primaryKey(),
    messageCode: text('message_code').notNull(),
    nextActionAt: at('next_action_at'),
    /** A process makes a check; until then no other process does. */
    leasedUntil: at('leased_until'),
    /** The number of checks. An answer counts only for the check with this number. */
    checks: integer('checks').notNull().default(0),
    /** The number of answers UNKNOWN. */
    answered: integer('answered').notNull().default(0),
    /** The number of checks in a row without an answer. */
    unanswered: integer('unanswered').notNull().default(0),
    lastAnswer: text('last_answer').$type<CheckAnswer>(),
    lastReason: text('last_reason'),
    lastCheckedAt: at('last_checked_at'),
    checkAfterMs: bigint('check_after_ms', { mode: 'number' }).notNull(),
    preparedAt: at('prepared_at').notNull().defaultNow(),
    /** As posted. It counts from the commit. */
    delayMs: bigint('delay_ms', { mode: 'number' }),
    deliverBefore: at('deliver_before'),
    endedAt: at('ended_at'),
    /** The name of the key that ended it, or `check:` with the number of the check. */
    endedBy: text('ended_by')
  },
  t => [
    index('prepared_due_idx')
      .on(t.messageCode, t.nextActionAt)
      .where(sql`${t.nextActionAt} is not null`),
    check('prepared_ended_has_no_clock', sql`(${t.nextActionAt} is null) = (${t.endedAt} is not null)`),
    check('prepared_ended_has_hand', sql`(${t.endedAt} is null) = (${t.endedBy} is null)`),
    check('prepared_last_answer_check', oneOf(t.lastAnswer, checkAnswers)),
    check('prepared_numbers_check', sql`${t.checks} >= 0 and ${t.answered} >= 0 and ${t.unanswered} >= 0`)
  ]
)
