// What a process does again and again, until it stops.
import type { Config } from './config.ts'
import { beat } from './db/nodes.ts'
import { isInfrastructure, type Sql } from './db/open.ts'
import { removeOld } from './db/retention.ts'
import { every } from './every.ts'
import { sendAlarms } from './flow/alarm.ts'
import type { Dispatcher } from './flow/dispatch.ts'
import type { Log } from './flow/log.ts'
import type { Surroundings } from './flow/surroundings.ts'
import { alarmChannel } from './webhook.ts'

export interface LoopsOptions {
  config: Config
  sql: Sql
  node: string
  version: string
  secret: string
  surroundings: Surroundings
  dispatching: Dispatcher
  log: Log
  signal: AbortSignal
  /** Ends the last loop: a process that drains still takes tasks and receipts. */
  drained: AbortSignal
}

const beatMs = 5_000
const refreshMs = 1_000
const alarmMs = 1_000
const retentionMs = 60_000
const retentionBatch = 1_000

/** Each resolves once its signal aborts and its last turn is over: all of `running` by `signal`, `refreshing` by `drained`. */
export function startLoops(options: LoopsOptions): { running: Promise<void>[]; refreshing: Promise<void> } {
  const { config, sql, node, version, surroundings, dispatching, log, signal, drained } = options
  const roles = [...config.roles].join(',')
  const failed =
    (what: string) =>
    (err: unknown): void => {
      if (isInfrastructure(err)) surroundings.setAway()
      log.warn({ err }, `${what}.failed`)
    }
  // Without it what a slow statement of the drain set would never be cleared, and all that comes would hear 503.
  const refreshing = every(refreshMs, surroundings.refresh, failed('refresh'), drained)
  const running = [every(beatMs, () => beat(sql, { id: node, roles, version }), failed('beat'), signal)]
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
    every(
      alarmMs,
      async () => ((await sendAlarms({ sql, channel, log })) > 0 ? 0 : alarmMs),
      failed('alarm'),
      signal
    ),
    every(
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
