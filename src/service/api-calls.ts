// The calls of the API, built from the verbs of delivery/ and the lists of db/.
import { buildApp, buildHealthApp } from '../api/app.ts'
import type { ApiDeps } from '../api/deps.ts'
import type { App } from '../api/typed.ts'
import type { Config } from './config.ts'
import { countDownstreams, listAlarms, listDeliveries, listTasks, readTask } from '../db/lists.ts'
import { listOrderingKeys } from '../db/ordering.ts'
import { iso } from '../db/views.ts'
import { present } from '../domain/optional-members.ts'
import { countText } from '../db/page.ts'
import { reconcile } from '../db/reconcile.ts'
import { listRejected, removeRejected, retryRejected } from '../db/rejected.ts'
import { resolveAlarm } from '../db/alarms.ts'
import { archiveFailure, listFailures } from '../db/failure-groups.ts'
import {
  createKey,
  createSession,
  endSession,
  listApiKeys,
  openKeyFinder,
  revokeKey
} from '../db/api-keys.ts'
import { readStats } from '../db/statistics.ts'
import { findContents } from '../db/tasks.ts'
import type { Accept } from '../delivery/accept.ts'
import { dryRun } from '../delivery/dry-run.ts'
import { requestNow, withRequests, type RequestAgainDeps } from '../delivery/request-again.ts'
import { refusalBy } from '../delivery/handler-refusal.ts'
import type { Outbox } from '../delivery/outbox.ts'
import type { Logger } from '../runtime/logger.ts'
import type { LongPolls } from '../delivery/long-polls.ts'
import { withWaitingFor } from '../delivery/waiting-for.ts'
import { watchChanges } from '../delivery/watch-changes.ts'
import type { Metrics } from '../runtime/metrics.ts'
import type { Guard } from '../transport/egress/guard.ts'
import { refusedBy } from './egress.ts'
import type { HalfMessages } from './half.ts'
import { isKnown, operatorCalls, type OperatorCallsOptions } from './operator-calls.ts'
import { defined } from '../domain/optional-members.ts'

export interface ApiCallsOptions extends OperatorCallsOptions {
  config: Config
  accept: Accept
  receive: ApiDeps['receive']
  half: HalfMessages
  outbox: Outbox
  longPolls: LongPolls
  guard: Pick<Guard, 'check'>
  headers: RequestAgainDeps['headers']
  transports: RequestAgainDeps['transports']
  /** Deliveries that wait in the queue of a downstream. */
  queued: (downstream: string) => number
  queueUp: () => boolean
  draining: () => boolean
  metrics: Metrics
  log: Logger
}

/** The functions that the API calls. While PostgreSQL is away, they reject and the API answers 503. */
export function apiCalls(options: ApiCallsOptions): ApiDeps {
  const { config, sql, reads, registry, cluster, longPolls, metrics, log } = options
  const { handlers } = registry
  const names = [...registry.downstreams.keys()]
  const explaining = { reads, handlers, cluster }
  const { headers, transports } = options
  const again = { reads, handlers, headers, transports, settings: process.env }
  return {
    accept: options.accept,
    acceptMany: requests => options.accept.many(requests),
    refusal: refusalBy(handlers, log),
    dryRun: request =>
      dryRun({ handlers, refused: refusedBy(options.guard), settings: process.env, log }, request),
    requestNow: (taskNo, downstream) => requestNow(again, taskNo, downstream),
    withRequests: task => withRequests(again, task),
    async readTask(taskNo, codes = null) {
      return withWaitingFor(explaining, await readTask(reads, taskNo, codes), codes)
    },
    contents: taskNos => findContents(sql, taskNos),
    async waitTask(taskNo, quotaKey, timeoutMs, signal, codes) {
      return (
        (await longPolls.wait(taskNo, quotaKey, timeoutMs, signal)) ??
        withWaitingFor(explaining, await readTask(reads, taskNo, codes), codes)
      )
    },
    listTasks: filter => listTasks(reads, filter),
    listDeliveries: filter => listDeliveries(reads, filter),
    listAlarms: filter => listAlarms(reads, filter),
    ...operatorCalls(options),
    commit: options.half.commit,
    rollBack: options.half.rollBack,
    check: options.half.check,
    receive: options.receive,
    async listDownstreams() {
      const counts = await countDownstreams(reads, names)
      return counts.map(({ partial, limits, ...one }) => {
        const known = registry.downstreams.get(one.name)
        const { concurrency, perSecond } = known ?? {}
        const isSet = limits.concurrency !== null || limits.perSecond !== null
        return {
          ...one,
          waiting: countText(one.waiting),
          inFlight: countText(one.inFlight),
          awaitingReceipt: countText(one.awaitingReceipt),
          blocked: countText(one.blocked),
          failed: countText(one.failed),
          ...(partial ? { partial } : {}),
          pausedAt: one.pausedAt?.toISOString(),
          pausedBy: one.pausedBy ?? undefined,
          oldestDueAt: one.oldestDueAt?.toISOString(),
          queued: options.queued(one.name),
          transport: known?.transport,
          concurrency: limits.concurrency ?? concurrency,
          perSecond: limits.perSecond ?? perSecond,
          timeoutMs: known?.timeoutMs,
          ...(isSet
            ? {
                limits: {
                  ...present('concurrency', limits.concurrency),
                  ...present('perSecond', limits.perSecond),
                  ...present('setAt', iso(limits.setAt)),
                  ...present('setBy', limits.setBy)
                },
                handlerLimits: { concurrency, perSecond }
              }
            : {})
        }
      })
    },
    listOrderingKeys: filter => listOrderingKeys(reads, filter),
    reconcile: async request =>
      (await isKnown(reads, registry, request.downstream)) ? reconcile(reads, request) : 'not_found',
    listRejected: filter => listRejected(reads, filter),
    async retryRejected(request) {
      const isBack = await retryRejected(sql, request)
      if (isBack) options.outbox.nudge()
      return isBack
    },
    removeRejected: request => removeRejected(sql, request),
    nudge: options.outbox.nudge,
    readStats: filter => readStats(reads, filter),
    listFailures: filter => listFailures(reads, filter),
    archiveFailure: request => archiveFailure(sql, request),
    createSession: session => createSession(sql, session),
    endSession: hash => endSession(sql, hash),
    watchChanges: watchChanges({ sql, log }),
    listApiKeys: filter => listApiKeys(reads.db, filter),
    createApiKey: key => createKey(sql, key),
    revokeApiKey: request => revokeKey(sql, request),
    resolveAlarm: request => resolveAlarm(sql, request),
    handlers,
    findKey: openKeyFinder(sql),
    async ready() {
      const checks = {
        database: cluster.isDatabaseAway() ? 'away' : 'ok',
        queue: options.queueUp() ? 'ok' : 'away',
        draining: options.draining() ? 'yes' : 'no',
        ...defined({ outbox: options.outbox.health() })
      }
      // Tasks are accepted even without the queue: deliveries wait in PostgreSQL.
      return { ok: !cluster.isDatabaseAway() && !options.draining(), checks }
    },
    isFull: options.accept.isFull,
    isDatabaseUnreachable: cluster.isDatabaseUnreachable,
    now: () => cluster.now(),
    metrics,
    log,
    auth: config.auth,
    ...defined({ dtmTargets: config.dtmTargets, keyPerSecond: config.keyPerSecond }),
    actsPerSecond: config.actsPerSecond,
    trustProxy: config.trustProxy,
    host: config.host,
    publicUrl: config.publicUrl
  }
}

/** The API. Other roles serve only health and metrics, and only if PORT is set. */
export async function openApp(config: Config, api: ApiDeps): Promise<App | undefined> {
  if (config.roles.has('api')) return await buildApp(api)
  return config.portGiven ? await buildHealthApp(api) : undefined
}
