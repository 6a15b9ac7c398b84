// Alarms, and the rows for the channels that must still send them.
import { sql, check, index, integer, pgTable, primaryKey, text, uuid, at, oneOf } from './drizzle.ts'
import { alarmKinds, type AlarmKind } from '../domain/types.ts'

/** An event that people must learn of. The move itself writes it; it is claimed and retried like a delivery. */
export const alarm = pgTable(
  'alarm',
  {
    taskId: uuid('task_id').notNull(),
    downstream: text('downstream').notNull(),
    attempt: integer('attempt').notNull(),
    kind: text('kind').$type<AlarmKind>().notNull(),
    /** What raised it, for TLS and BLOCKED_TARGET: the reason of an attempt of the round that begins with `attempt`. */
    reason: text('reason'),
    createdAt: at('created_at').notNull().defaultNow(),
    sentAt: at('sent_at'),
    resolvedAt: at('resolved_at'),
    tries: integer('tries').notNull().default(0),
    nextActionAt: at('next_action_at').notNull().defaultNow()
  },
  t => [
    primaryKey({ name: 'alarm_pkey', columns: [t.taskId, t.downstream, t.attempt, t.kind] }),
    index('alarm_unsent_idx')
      .on(t.nextActionAt)
      .where(sql`${t.sentAt} is null`),
    // Few rows, among the many alarms of kind FAILED.
    index('alarm_open_idx')
      .on(t.taskId, t.downstream, t.attempt, t.kind)
      .where(sql`${t.resolvedAt} is null and ${t.kind} <> 'FAILED'`),
    check('alarm_kind_check', oneOf(t.kind, alarmKinds))
  ]
)

/** The time of the next message that the vendor's limit allows. A channel has a row once it was used. */
export const alarmChannel = pgTable('alarm_channel', {
  name: text('name').primaryKey(),
  freeAt: at('free_at').notNull().defaultNow()
})

/** All alarms of one downstream and kind in one channel: each message is about a group. `opened_at`: sent, and not yet resolved. */
export const alarmGroup = pgTable(
  'alarm_group',
  {
    channel: text('channel').notNull(),
    downstream: text('downstream').notNull(),
    kind: text('kind').$type<AlarmKind>().notNull(),
    nextActionAt: at('next_action_at').notNull().defaultNow(),
    tries: integer('tries').notNull().default(0),
    toldAt: at('told_at'),
    openedAt: at('opened_at')
  },
  t => [primaryKey({ name: 'alarm_group_pkey', columns: [t.channel, t.downstream, t.kind] })]
)

/** An alarm that a channel must send. Once sent, it is removed, or kept until the incident is over. */
export const alarmSend = pgTable(
  'alarm_send',
  {
    channel: text('channel').notNull(),
    downstream: text('downstream').notNull(),
    kind: text('kind').$type<AlarmKind>().notNull(),
    taskId: uuid('task_id').notNull(),
    attempt: integer('attempt').notNull(),
    taskNo: text('task_no').notNull(),
    messageCode: text('message_code').notNull(),
    reason: text('reason'),
    raisedAt: at('raised_at').notNull(),
    sentAt: at('sent_at')
  },
  t => [
    primaryKey({ name: 'alarm_send_pkey', columns: [t.channel, t.downstream, t.kind, t.taskId, t.attempt] }),
    index('alarm_send_unsent_idx')
      .on(t.channel, t.downstream, t.kind)
      .where(sql`${t.sentAt} is null`)
  ]
)
