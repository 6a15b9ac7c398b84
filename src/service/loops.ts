// The periodic work of a process, until it stops: dispatcher, outbox, bulk operations, alarms, retention, checks, statistics.
import type { Config } from './config.ts'
import { retention, retentionMs } from './retention.ts'
import { openChannels } from '../alarm/open-channels.ts'
import type { AlarmChannel } from '../alarm/types.ts'
import { forgetChannels, routeAlarms, sendDueMessage } from '../alarm/send-alarms.ts'
import { isAway } from '../db/batch.ts'
import { sweepAlarmSends, type AlarmSendKey } from '../db/alarm-sends.ts'
import { sweepAlarms, type AlarmKey } from '../db/alarms.ts'
import { primaryUrl } from '../db/hosts.ts'
import { isInfrastructure, locatePrimary, type Sql } from '../db/pool.ts'
import { reasonOf } from '../runtime/errors.ts'
import { repeat, sleep } from '../runtime/repeat.ts'
import { bulkOperations } from '../delivery/bulk-operations.ts'
import type { Complete } from '../delivery/complete.ts'
import type { Registry } from '../handler/load.ts'
import type { Successors } from '../delivery/successors.ts'
import type { Dispatcher } from '../delivery/dispatcher.ts'
import type { Outbox } from '../delivery/outbox.ts'
import type { Reconciler } from '../delivery/reconcile.ts'
import type { Checker } from '../delivery/checker.ts'
import { removeOldStatistics, writeStatistics } from '../db/statistics.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Metrics } from '../runtime/metrics.ts'
import type { Cluster } from '../delivery/cluster.ts'
import type { Presence } from './presence.ts'

export interface LoopsOptions {
  config: Config
  sql: Sql
  databaseUrl: string
  node: string
  presence: Pick<Presence, 'announce'>
  /** Other processes wait for news about a downstream that this process has reached. */
  hasNews: () => boolean
  /** Updates the gauges of the deliveries in the database. */
  countDeliveries: () => Promise<void>
  secret: string
  cluster: Cluster
  dispatcher: Dispatcher
  outbox: Outbox
  successors: Pick<Successors, 'sweep'>
  checker: Checker
  handlers: Registry['handlers']
  complete: Complete
  /** The current limits. */
  limits: ReadonlyMap<string, { concurrency: number; perSecond?: number | undefined }>
  reconciler: Reconciler
  metrics: Metrics
  log: Logger
  signal: AbortSignal
  /** Ends the last loop: a draining process still accepts tasks and receipts. */
  drained: AbortSignal
}

const announceMs = 5_000
const refreshMs = 1_000
const alarmMs = 1_000
/** The time between two sweeps of the alarms that channels have sent, for those that are resolved. */
const sentMs = 10_000
/** The time between two looks for channels that no process has any more. */
const forgetMs = 60_000
const checkMs = 1_000
/** After an error. Otherwise `look` returns the time until its next turn. */
const bulkMs = 1_000
const countMs = 15_000
/** The time between two sweeps of open alarms whose cause is over. */
const alarmSweepMs = 60_000
const statisticsMs = 10_000
const removalMs = 600_000
const sweepBatch = 1_000
const sentBatch = 5_000

/** Whether an error of a loop means that the database is away. `refresh` reads little, so its time limit does count. */
export const saysAway = (loop: string, err: unknown): boolean =>
  loop === 'refresh' ? isInfrastructure(err) : isAway(err)

/** Logs one event when the database is away and one when it is back. Errors of the loops in between are logged at debug. */
export function databaseOutage(
  cluster: Pick<Cluster, 'isDatabaseAway' | 'setDatabaseAway' | 'setDatabaseUnreachable'>,
  log: Logger
) {
  let since: number | undefined
  const began = (reason: string): void => {
    if (since !== undefined) return
    since = performance.now()
    log.warn({ reason }, 'database.unavailable')
  }
  return {
    failed:
      (name: string) =>
      (err: unknown): void => {
        if (!saysAway(name, err)) {
          log.warn({ err }, `${name}.failed`)
          return
        }
        // Only the look ends it, so only the look begins it. A statement that waits for a lock too long can be read beside.
        if (name === 'refresh' && isAway(err)) cluster.setDatabaseUnreachable()
        else cluster.setDatabaseAway()
        began(reasonOf(err))
        log.debug({ err }, `${name}.failed`)
      },
    /** After a look at the cluster that has succeeded. */
    looked(): void {
      if (cluster.isDatabaseAway()) began('it is read-only')
      else if (since !== undefined) {
        log.info({ ms: Math.round(performance.now() - since) }, 'database.available')
        since = undefined
      }
    }
  }
}

/**
 * Starts the loops. Each ends after its current turn: those of `claiming` and `running` when `signal` aborts, `refreshing` when `drained` does.
 * Only those of `claiming` hand deliveries to workers.
 */
export async function startLoops(options: LoopsOptions): Promise<{
  claiming: Promise<void>[]
  running: Promise<void>[]
  refreshing: Promise<void>
}> {
  const { config, sql, databaseUrl, node, presence, secret, cluster, dispatcher, successors, checker } =
    options
  const { log, signal, drained } = options
  const { alarmChannels, publicUrl, egressAllow = [] } = config
  const isDispatcher = config.roles.has('dispatcher')
  const channels = await openChannels(isDispatcher ? alarmChannels : [], {
    secret,
    publicUrl,
    egressAllow,
    now: () => cluster.now().getTime()
  })
  const { failed, looked } = databaseOutage(cluster, log)
  // Only this loop notices that the database is back. Without it, one slow statement while draining would turn every answer into a 503.
  let primary = primaryUrl(databaseUrl)
  const looking = repeat(
    refreshMs,
    async () => {
      if (cluster.isDatabaseAway()) await locatePrimary(databaseUrl)
      // Other parts of this process locate the primary too: the queue, and the check of the server.
      const now = primaryUrl(databaseUrl)
      if (now !== primary) log.warn({ from: new URL(primary).host, to: new URL(now).host }, 'database.moved')
      primary = now
      await cluster.refresh()
      looked()
      // After an outage its row is old, and others would soon not count it.
      if (options.hasNews() || cluster.isRejoining()) await presence.announce()
      // At once: deliveries have waited for this turn already. The sweep never rejects, and is not awaited.
      if (isDispatcher && !signal.aborted) void successors.sweep()
    },
    failed('refresh'),
    drained
  )
  const flush = () => options.metrics.statistics.flush(counts => writeStatistics(sql, node, counts))
  const counting = repeat(statisticsMs, flush, failed('statistics'), drained).then(flush)
  const refreshing = Promise.all([looking, counting.catch(failed('statistics'))]).then(() => {})
  const running = [repeat(announceMs, presence.announce, failed('presence'), signal)]
  if (!isDispatcher) return { claiming: [], running, refreshing }
  const redelivering = bulkOperations({
    ...options,
    isPaused: cluster.isPaused,
    limits: name => options.limits.get(name),
    wake: dispatcher.wake
  })
  const { reconciler } = options
  if (reconciler.isUsed)
    running.push(repeat(checkMs, () => reconciler.look(signal), failed('reconcile'), signal))
  const claiming = [
    dispatcher.run(signal),
    options.outbox.run(signal),
    // Running checks are answered and written before anything is closed.
    repeat(checkMs, checker.look, failed('checks'), signal).then(checker.idle)
  ]
  running.push(
    repeat(removalMs, () => removeOldStatistics(sql), failed('statistics'), signal),
    repeat(countMs, options.countDeliveries, failed('count'), signal),
    repeat(bulkMs, redelivering.look, failed('operation'), signal),
    repeat(
      alarmMs,
      async () => ((await routeAlarms({ sql, log }, channels)) > 0 ? 0 : alarmMs),
      failed('alarm'),
      signal
    ),
    // A loop for each channel: a broken or slow channel does not delay the others.
    ...channels.map(channel => sendLoop(options, channel, failed('alarm'))),
    // Not at the start: processes that have the channels may start a little later.
    sleep(forgetMs, signal).then(() =>
      repeat(forgetMs, () => forgetChannels({ sql, log }, channels), failed('alarm'), signal)
    ),
    repeat(alarmSweepMs, alarmSweep(options), failed('alarm'), signal),
    repeat(sentMs, sweepSent(options), failed('alarm'), signal),
    repeat(retentionMs, retention(options), failed('retention'), signal)
  )
  return { claiming, running, refreshing }
}

/** A turn of the sweep of alarms; resolves to the ms until the next. */
function alarmSweep({ sql }: LoopsOptions): () => Promise<number> {
  let after: AlarmKey | null = null
  return async () => {
    const { next } = await sweepAlarms(sql, sweepBatch, after)
    after = next
    return next === null ? alarmSweepMs : 100
  }
}

/** The same, for the alarms that channels have sent. An incident is over when nothing of it is left. */
function sweepSent({ sql }: LoopsOptions): () => Promise<number> {
  let after: AlarmSendKey | null = null
  return async () => {
    after = await sweepAlarmSends(sql, sentBatch, after)
    return after === null ? sentMs : 1_000
  }
}

async function sendLoop(
  { sql, metrics, log, signal }: LoopsOptions,
  channel: AlarmChannel,
  onError: (err: unknown) => void
): Promise<void> {
  const sendDue = async (): Promise<number> =>
    (await sendDueMessage({ sql, metrics, log, signal }, channel)) ? 0 : alarmMs
  await repeat(alarmMs, sendDue, onError, signal)
  await channel.close()
}
