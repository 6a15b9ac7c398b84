// What processes know of one another, and of the downstreams that they share.
import { boolean, integer, jsonb, pgTable, serial, text, at } from './drizzle.ts'

/** A row once it was ever paused, or its limits were set. */
export const downstream = pgTable('downstream', {
  name: text('name').primaryKey(),
  pausedAt: at('paused_at'),
  pausedBy: text('paused_by'),
  /** Null: the handler's. */
  concurrency: integer('concurrency'),
  perSecond: integer('per_second'),
  limitsAt: at('limits_at'),
  limitsBy: text('limits_by')
})

/** A downstream that a worker leaves to the others for a while. */
export interface YieldedDownstream {
  downstream: string
  /** RFC 3339. */
  until: string
  reason: string
  /** It only starts nothing there until it knows whether others reach it. */
  isDoubt?: boolean
}

/** Heartbeats. */
export const node = pgTable('node', {
  id: text('id').primaryKey(),
  roles: text('roles').notNull(),
  version: text('version').notNull(),
  seenAt: at('seen_at').notNull().defaultNow(),
  startedAt: at('started_at').notNull().defaultNow(),
  /** Fingerprints of SECRET and SECRET_PREVIOUS. Null: of a process that does not tell. */
  secrets: text('secrets').array(),
  queue: text('queue'),
  handlers: text('handlers'),
  /** When its worker reached each downstream last, ms since 1970. */
  reached: jsonb('reached').$type<Record<string, number>>(),
  yielded: jsonb('yielded').$type<YieldedDownstream[]>()
})

/**
 * One row for each life of a process, with its last beat. Without the row its process counts as dead. A number is never used again.
 * Narrow: a transaction that somebody keeps open keeps each beat.
 */
export const owner = pgTable('owner', {
  number: serial('number').primaryKey(),
  seenAt: at('seen_at').notNull().defaultNow(),
  isWorker: boolean('is_worker').notNull(),
  node: text('node').notNull(),
  /** See runtime/process-identity.ts. */
  process: text('process')
})
