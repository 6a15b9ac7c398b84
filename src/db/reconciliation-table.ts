import { integer, pgTable, primaryKey, text, uuid } from './drizzle.ts'
import { at } from './columns.ts'

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
