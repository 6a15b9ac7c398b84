// The state that processes share: about each other, and about the downstreams.
import type { AlarmRule } from '../domain/types.ts'
import { boolean, integer, json, jsonb, pgTable, serial, text, at } from './drizzle.ts'

/** A downstream has a row once it was paused or its limits were set. */
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
  /** The worker only starts no attempt there until it knows whether other workers reach it. */
  isDoubt?: boolean
}

/** The rule of each alarm channel, by its name. */
export type AlarmChannels = Readonly<Record<string, AlarmRule>>

/** Heartbeats. */
export const node = pgTable('node', {
  id: text('id').primaryKey(),
  roles: text('roles').notNull(),
  version: text('version').notNull(),
  seenAt: at('seen_at').notNull().defaultNow(),
  startedAt: at('started_at').notNull().defaultNow(),
  /** Fingerprints of SECRET and SECRET_PREVIOUS. Null: the process does not publish them. */
  secrets: text('secrets').array(),
  queue: text('queue'),
  handlers: text('handlers'),
  /** What it has a handler for: see `handlesEntry` in `db/cluster.ts`. Null: an older version. */
  handles: text('handles').array(),
  /** The rules of a dispatcher's alarm channels, by name. Null: no dispatcher, or an older version. As json, since they are compared as text. */
  channels: json('channels').$type<AlarmChannels>(),
  /** When its worker reached each downstream last, ms since 1970. */
  reached: jsonb('reached').$type<Record<string, number>>(),
  yielded: jsonb('yielded').$type<YieldedDownstream[]>()
})

/**
 * One row for each run of a process, with its last beat. A process without its row counts as dead. A number is never used again. The
 * row is narrow, since an open transaction keeps the row version of each beat.
 */
export const owner = pgTable('owner', {
  number: serial('number').primaryKey(),
  seenAt: at('seen_at').notNull().defaultNow(),
  isWorker: boolean('is_worker').notNull(),
  node: text('node').notNull(),
  /** See runtime/process-identity.ts. */
  process: text('process')
})
