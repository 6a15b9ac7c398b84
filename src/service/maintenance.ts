// The periodic work of a process, until it stops.
import type { Config } from './config.ts'
import { heartbeat } from '../db/cluster.ts'
import { isInfrastructure, type Sql } from '../db/pool.ts'
import { removeOld } from '../db/retention.ts'
import { repeat } from '../runtime/repeat.ts'
import { sendAlarms, alarmChannel } from '../delivery/alarms.ts'
import type { Dependents } from '../delivery/dependents.ts'
import type { Dispatcher } from '../delivery/dispatcher.ts'
import type { Outbox } from '../delivery/outbox.ts'
import type { Checker } from '../delivery/checker.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Cluster } from '../delivery/cluster.ts'

export interface MaintenanceOptions {
  config: Config
  sql: Sql
  node: string
  version: string
  secret: string
  cluster: Cluster
  dispatching: Dispatcher
  outbox: Outbox
  dependents: Dependents
  checker: Checker
  log: Logger
  signal: AbortSignal
  /** Ends the last loop: a draining process still accepts tasks and receipts. */
  drained: AbortSignal
}

const beatMs = 5_000
const refreshMs = 1_000
const alarmMs = 1_000
const checkMs = 1_000
const retentionMs = 60_000
const retentionBatch = 1_000

/** Each resolves once its signal aborts and its last turn is over: all of `running` by `signal`, `refreshing` by `drained`. */
export function startMaintenance(options: MaintenanceOptions): {
  running: Promise<void>[]
  refreshing: Promise<void>
} {
  const { config, sql, node, version, cluster, dispatching, dependents, checker, log, signal, drained } =
    options
  const roles = [...config.roles].join(',')
  const failed =
    (what: string) =>
    (err: unknown): void => {
      if (isInfrastructure(err)) cluster.setDatabaseAway()
      log.warn({ err }, `${what}.failed`)
    }
  // Without it what a slow statement of the drain set would never be cleared, and all that comes would hear 503.
  const refreshing = repeat(
    refreshMs,
    async () => {
      await cluster.refresh()
      // At once: who waits has waited for this look already. It never rejects, and what it says is not waited for.
      if (config.roles.has('dispatcher') && !signal.aborted) void dependents.sweep()
    },
    failed('refresh'),
    drained
  )
  const running = [repeat(beatMs, () => heartbeat(sql, { id: node, roles, version }), failed('beat'), signal)]
  if (!config.roles.has('dispatcher')) return { running, refreshing }
  const channel =
    config.alarmWebhookUrl === undefined
      ? undefined
      : alarmChannel({
          url: config.alarmWebhookUrl,
          secret: config.alarmWebhookSecret ?? options.secret,
          egressAllow: config.egressAllow ?? []
        })
  let after: string | null = null
  running.push(
    dispatching.run(signal),
    options.outbox.run(signal),
    // What was asked is answered, and written, before anything is closed.
    repeat(checkMs, checker.look, failed('checks'), signal).then(checker.idle),
    repeat(
      alarmMs,
      async () => ((await sendAlarms({ sql, channel, log })) > 0 ? 0 : alarmMs),
      failed('alarm'),
      signal
    ),
    repeat(
      retentionMs,
      async () => {
        const { removed, next } = await removeOld(sql, config.retentionDays, retentionBatch, after)
        after = next
        if (removed > 0) log.info({ removed }, 'retention.removed')
        return next === null ? retentionMs : 100
      },
      failed('retention'),
      signal
    )
  )
  return { running, refreshing }
}
