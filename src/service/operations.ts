// The operations of the API, built from the verbs of delivery/ and the lists of db/.
import type { ApiDeps } from '../api/deps.ts'
import type { Config } from './config.ts'
import { countDownstreams, listAlarms, listDeliveries, listTasks, readTask } from '../db/lists.ts'
import { listRejected, removeRejected, retryRejected } from '../db/rejected.ts'
import { audit, openKeyFinder, type AuditEntry } from '../db/keys.ts'
import { pause, resume } from '../db/cluster.ts'
import type { Sql } from '../db/pool.ts'
import type { Reads } from '../db/reads.ts'
import { findHashes } from '../db/tasks.ts'
import type { Accept } from '../delivery/accept.ts'
import type { Dispatcher } from '../delivery/dispatcher.ts'
import type { Cancelled } from '../delivery/load.ts'
import type { Outbox } from '../delivery/outbox.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Complete } from '../delivery/complete.ts'
import { redeliver, remove } from '../delivery/operate.ts'
import type { Cluster } from '../delivery/cluster.ts'
import type { Waiters } from '../delivery/wait.ts'
import type { Registry } from '../handler/load.ts'
import type { Metrics } from '../runtime/metrics.ts'
import type { HalfMessages } from './half.ts'

export interface OperationsOptions {
  config: Config
  sql: Sql
  reads: Reads
  registry: Registry
  accept: Accept
  receive: ApiDeps['receive']
  half: HalfMessages
  complete: Complete
  dispatching: Dispatcher
  outbox: Outbox
  cluster: Cluster
  cancelled: Cancelled
  waiting: Waiters
  /** Deliveries that wait in the queue of a downstream. */
  queued: (downstream: string) => number
  queueUp: () => boolean
  draining: () => boolean
  metrics: Metrics
  log: Logger
}

/** The operations of the API. While PostgreSQL is away a call rejects, and the API answers 503. */
export function operations(options: OperationsOptions): ApiDeps {
  const {
    config,
    sql,
    reads,
    registry,
    complete,
    dispatching,
    cluster: around,
    waiting,
    metrics,
    log
  } = options
  const { handlers } = registry
  const names = [...registry.downstreams.keys()]
  const written = (deed: AuditEntry) => () => audit(sql, deed)
  return {
    accept: options.accept,
    acceptMany: asked => options.accept.many(asked),
    readTask: (taskNo, codes) => readTask(reads, taskNo, codes),
    contentHashes: taskNos => findHashes(sql, taskNos),
    async waitTask(taskNo, owner, timeoutMs, signal, codes) {
      return (await waiting.wait(taskNo, owner, timeoutMs, signal)) ?? readTask(reads, taskNo, codes)
    },
    listTasks: filter => listTasks(reads, filter),
    listDeliveries: filter => listDeliveries(reads, filter),
    listAlarms: filter => listAlarms(reads, filter),
    remove: (taskNo, who) =>
      remove(
        { sql, complete, cluster: around, cancelled: options.cancelled },
        taskNo,
        who,
        written({ who, what: 'task.delete', target: taskNo })
      ),
    redeliver(asked) {
      const { taskNo, downstream = null, force, who } = asked
      return redeliver(
        { sql, complete, cluster: around, handlers, wake: dispatching.wake },
        asked,
        written({ who, what: 'task.redeliver', target: taskNo, detail: { downstream, force } })
      )
    },
    commit: options.half.commit,
    rollBack: options.half.rollBack,
    check: options.half.check,
    receive: options.receive,
    async listDownstreams() {
      const counts = await countDownstreams(reads, names)
      return counts.map(one => {
        const known = registry.downstreams.get(one.name)
        return {
          ...one,
          pausedAt: one.pausedAt?.toISOString(),
          pausedBy: one.pausedBy ?? undefined,
          queued: options.queued(one.name),
          transport: known?.transport,
          concurrency: known?.concurrency,
          perSecond: known?.perSecond,
          timeoutMs: known?.timeoutMs
        }
      })
    },
    async pause(name, who) {
      if (!(await isKnown(reads, registry, name))) return false
      await audit(sql, { who, what: 'downstream.pause', target: name })
      await pause(sql, name, who)
      await around.refresh()
      return true
    },
    async resume(name, who) {
      if (!(await isKnown(reads, registry, name))) return false
      await audit(sql, { who, what: 'downstream.resume', target: name })
      await resume(sql, name)
      await around.refresh()
      dispatching.wake()
      return true
    },
    listRejected: filter => listRejected(reads, filter),
    async retryRejected(request) {
      const isBack = await retryRejected(sql, request)
      if (isBack) options.outbox.nudge()
      return isBack
    },
    removeRejected: request => removeRejected(sql, request),
    nudge: options.outbox.nudge,
    handlers,
    findKey: openKeyFinder(sql),
    async ready() {
      const checks = {
        database: around.isDatabaseAway() ? 'away' : 'ok',
        queue: options.queueUp() ? 'ok' : 'away',
        draining: options.draining() ? 'yes' : 'no'
      }
      // It accepts tasks even without its queue: deliveries wait in PostgreSQL.
      return { ok: !around.isDatabaseAway() && !options.draining(), checks }
    },
    overload: () => (options.accept.isFull() ? 1 : null),
    now: () => around.now(),
    metrics,
    log,
    auth: config.auth,
    ...(config.keyPerSecond !== undefined && { keyPerSecond: config.keyPerSecond }),
    trustProxy: config.trustProxy,
    host: config.host,
    publicUrl: config.publicUrl
  }
}

/** A downstream without a handler can still be resumed. */
async function isKnown(reads: Reads, { downstreams }: Registry, name: string): Promise<boolean> {
  return downstreams.has(name) || (await countDownstreams(reads, [])).some(one => one.name === name)
}
