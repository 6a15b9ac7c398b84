// What the API can ask for, made of the verbs of flow/ and the lists of db/.
import type { ApiDeps } from './api/deps.ts'
import type { Config } from './config.ts'
import { listAlarms, listDeliveries, listTasks } from './db/lists.ts'
import { readTask } from './db/read.ts'
import { audit, findKey } from './db/keys.ts'
import { countDownstreams, pause, resume } from './db/nodes.ts'
import { isInfrastructure, type Sql } from './db/open.ts'
import { Unavailable } from './errors.ts'
import type { Accept } from './flow/accept.ts'
import type { Dispatcher } from './flow/dispatch.ts'
import type { Fresh } from './flow/fresh.ts'
import type { Log } from './flow/log.ts'
import type { Record } from './flow/record.ts'
import { redeliver } from './flow/redeliver.ts'
import { remove } from './flow/remove.ts'
import type { Surroundings } from './flow/surroundings.ts'
import type { Waiters } from './flow/wait.ts'
import type { Registry } from './handler/load.ts'
import type { Metrics } from './metrics.ts'

export interface OperationsOptions {
  config: Config
  sql: Sql
  registry: Registry
  accept: Accept
  receive: ApiDeps['receive']
  record: Record
  dispatching: Dispatcher
  around: Surroundings
  fresh: Fresh | undefined
  waiting: Waiters
  /** Deliveries that wait in the queue of a downstream. */
  queued: (downstream: string) => number
  queueUp: () => boolean
  draining: () => boolean
  metrics: Metrics
  log: Log
}

/** Whatever of this asks PostgreSQL while it is away throws Unavailable: a 503, never a 500. */
export function operations(options: OperationsOptions): ApiDeps {
  const { config, sql, registry, record, dispatching, around, waiting, metrics, log } = options
  const { handlers } = registry
  const names = [...registry.downstreams.keys()]
  return unavailable({
    accept: options.accept,
    acceptMany: asked => options.accept.many(asked),
    readTask: taskNo => readTask(sql, taskNo),
    async waitTask(taskNo, timeoutMs, signal) {
      return (await waiting.wait(taskNo, timeoutMs, signal)) ?? readTask(sql, taskNo)
    },
    listTasks: filter => listTasks(sql, filter),
    listDeliveries: filter => listDeliveries(sql, filter),
    listAlarms: filter => listAlarms(sql, filter),
    remove: taskNo => remove({ sql, record, surroundings: around, fresh: options.fresh }, taskNo),
    redeliver: asked =>
      redeliver({ sql, record, surroundings: around, handlers, wake: dispatching.wake }, asked),
    receive: options.receive,
    async listDownstreams() {
      const counts = await countDownstreams(sql, names)
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
      if (!(await isKnown(sql, registry, name))) return false
      await pause(sql, name, who)
      await around.refresh()
      return true
    },
    async resume(name) {
      if (!(await isKnown(sql, registry, name))) return false
      await resume(sql, name)
      await around.refresh()
      dispatching.wake()
      return true
    },
    handlers,
    findKey: hash => findKey(sql, hash),
    audit: entry => audit(sql, entry),
    async ready() {
      const checks = {
        database: around.isAway() ? 'away' : 'ok',
        queue: options.queueUp() ? 'ok' : 'away',
        draining: options.draining() ? 'yes' : 'no'
      }
      // Without its queue it still accepts: deliveries wait in PostgreSQL.
      return { ok: !around.isAway() && !options.draining(), checks }
    },
    overload: () => (options.accept.isFull() ? 1 : null),
    now: () => around.now(),
    metrics,
    log,
    auth: config.auth,
    ...(config.keyPerSecond !== undefined && { keyPerSecond: config.keyPerSecond }),
    trustProxy: config.trustProxy
  })
}

/** A downstream that no handler names any more may still be resumed. */
async function isKnown(sql: Sql, { downstreams }: Registry, name: string): Promise<boolean> {
  return downstreams.has(name) || (await countDownstreams(sql, [])).some(one => one.name === name)
}

/** Whatever the API asks of PostgreSQL while it is away is a 503, never a 500. */
function unavailable(deps: ApiDeps): ApiDeps {
  const wrapped = Object.entries(deps).map(([name, member]: [string, unknown]) => {
    if (typeof member !== 'function' || name === 'now' || name === 'overload') return [name, member]
    const asked = async (...args: unknown[]): Promise<unknown> => {
      try {
        return await (member as (...all: unknown[]) => unknown)(...args)
      } catch (err) {
        if (!isInfrastructure(err)) throw err
        throw new Unavailable('the database cannot be reached', 1, { cause: err })
      }
    }
    return [name, asked]
  })
  return Object.fromEntries(wrapped) as ApiDeps
}
