// Tables for the dashboard, so that it need not read the hot tables: counts by minute, failures, sessions.
import {
  bigint,
  bigserial,
  doublePrecision,
  index,
  integer,
  pgTable,
  primaryKey,
  text,
  uuid,
  at
} from './drizzle.ts'
import type { Reason } from '../domain/types.ts'

/** The counts of one process in one minute. `downstream` is empty for accepted tasks; `handled_ms` is a histogram. */
export const statMinute = pgTable(
  'stat_minute',
  {
    minute: at('minute').notNull(),
    node: text('node').notNull(),
    downstream: text('downstream').notNull(),
    messageCode: text('message_code').notNull(),
    accepted: integer('accepted').notNull(),
    attempts: integer('attempts').notNull(),
    failedAttempts: integer('failed_attempts').notNull(),
    handled: integer('handled').notNull(),
    direct: integer('direct').notNull(),
    failed: integer('failed').notNull(),
    exhausted: integer('exhausted').notNull(),
    handledMs: integer('handled_ms').array().notNull(),
    /** Null in the rows of older versions, as are the other columns from here on. */
    firstTries: integer('first_tries'),
    firstDelivered: integer('first_delivered'),
    failedLater: integer('failed_later'),
    /** The shortest and the longest latency of `handled_ms`; null without one. */
    shortestMs: doublePrecision('shortest_ms'),
    longestMs: doublePrecision('longest_ms')
  },
  t => [primaryKey({ name: 'stat_minute_pkey', columns: [t.minute, t.node, t.downstream, t.messageCode] })]
)

/** Append-only: each move to FAILED writes one in its own statement. */
export const failure = pgTable(
  'failure',
  {
    id: bigserial('id', { mode: 'number' }).primaryKey(),
    taskId: uuid('task_id').notNull(),
    downstream: text('downstream').notNull(),
    attempt: integer('attempt').notNull(),
    messageCode: text('message_code').notNull(),
    fingerprint: text('fingerprint').notNull(),
    reason: text('reason').$type<Reason>().notNull(),
    statusCode: integer('status_code'),
    /** The first line of the answer or of the error, without numbers and ids. */
    line: text('line'),
    createdAt: at('created_at').notNull().defaultNow()
  },
  t => [
    index('failure_delivery_idx').on(t.taskId, t.downstream, t.id),
    index('failure_fingerprint_idx').on(t.fingerprint, t.id),
    index('failure_created_idx').on(t.createdAt)
  ]
)

/** A group of failures that an operator has archived: hidden until it fails again. */
export const failureArchive = pgTable('failure_archive', {
  fingerprint: text('fingerprint').primaryKey(),
  note: text('note').notNull(),
  archivedAt: at('archived_at').notNull().defaultNow(),
  archivedBy: text('archived_by').notNull(),
  /** The newest failure that it covers. */
  lastFailureId: bigint('last_failure_id', { mode: 'number' }).notNull()
})

/** A sign-in with a key. `hash` is the sha256 of the cookie in hex. */
export const session = pgTable(
  'session',
  {
    hash: text('hash').primaryKey(),
    keyId: text('key_id').notNull(),
    createdAt: at('created_at').notNull().defaultNow(),
    expiresAt: at('expires_at').notNull()
  },
  t => [index('session_expires_idx').on(t.expiresAt)]
)
