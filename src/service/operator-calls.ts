// The functions of operators, for the API: acts on tasks, keys and downstreams, each with its audit row; bulk redelivery, audit, nodes.
import type { ApiDeps } from '../api/deps.ts'
import { pause, resume, setLimits } from '../db/cluster.ts'
import { listAudit, writeAudit, type AuditEntry } from '../db/audit.ts'
import { countDownstreams } from '../db/lists.ts'
import { countFailed, createOperation, stopOperation } from '../db/operations.ts'
import {
  countOutcomes,
  listOperationDeliveries,
  listOperations,
  readOperation
} from '../db/operation-lists.ts'
import { listNodes } from '../db/nodes.ts'
import type { Sql } from '../db/pool.ts'
import type { Reads } from '../db/reads.ts'
import { uuidv7 } from '../domain/ids.ts'
import type { Cluster } from '../delivery/cluster.ts'
import { orUnavailable } from '../delivery/unavailable.ts'
import type { Complete } from '../delivery/complete.ts'
import type { Dispatcher } from '../delivery/dispatcher.ts'
import type { StoppedClaims } from '../delivery/stopped-claims.ts'
import type { Successors } from '../delivery/successors.ts'
import { push, redeliver, releaseHeldKey, remove, settle, type WriteAudit } from '../delivery/operate.ts'
import type { Registry } from '../handler/load.ts'

export interface OperatorCallsOptions {
  sql: Sql
  reads: Reads
  registry: Registry
  complete: Complete
  dispatcher: Pick<Dispatcher, 'wake'>
  cluster: Cluster
  stoppedClaims: StoppedClaims
  successors: Pick<Successors, 'promote'>
}

export type OperatorCalls = Pick<
  ApiDeps,
  | 'remove'
  | 'redeliver'
  | 'push'
  | 'settle'
  | 'countFailed'
  | 'redeliverAll'
  | 'readOperation'
  | 'listOperations'
  | 'listOperationDeliveries'
  | 'stopOperation'
  | 'listAudit'
  | 'listNodes'
  | 'setLimits'
  | 'release'
  | 'pause'
  | 'resume'
>

export function operatorCalls(options: OperatorCallsOptions): OperatorCalls {
  const { sql, reads, registry, complete, dispatcher, cluster, stoppedClaims } = options
  const auditOf =
    (entry: AuditEntry): WriteAudit =>
    (before, after) =>
      writeAudit(sql, { ...entry, detail: { ...entry.detail, before, after } })
  /** Unavailable if PostgreSQL does not answer in time. The act may still happen. */
  const answered = <T>(act: Promise<T>): Promise<T> => orUnavailable(cluster, act, { mayBeLocked: true })
  const readWhole = async (id: string, codes: readonly string[] | null) => {
    const found = await readOperation(reads, id, codes)
    return found && { ...found, deliveries: await countOutcomes(reads, found) }
  }
  return {
    remove: (taskNo, who) =>
      answered(
        remove(
          { sql, complete, stoppedClaims },
          taskNo,
          who,
          auditOf({ who, what: 'task.delete', target: taskNo })
        )
      ),
    redeliver(request) {
      const { taskNo, downstream = null, force, who } = request
      return answered(
        redeliver(
          { sql, complete, handlers: registry.handlers, wake: dispatcher.wake },
          request,
          auditOf({ who, what: 'task.redeliver', target: taskNo, detail: { downstream, force } })
        )
      )
    },
    push(request) {
      const { taskNo, downstream = null, who } = request
      return answered(
        push(
          { sql, complete, wake: dispatcher.wake },
          request,
          auditOf({ who, what: 'task.push', target: taskNo, detail: { downstream } })
        )
      )
    },
    settle(request) {
      const { taskNo, downstream = null, who, status, reason } = request
      return answered(
        settle(
          { sql, complete, stoppedClaims },
          request,
          auditOf({ who, what: 'task.settle', target: taskNo, detail: { downstream, status, reason } })
        )
      )
    },
    countFailed: selection => countFailed(sql, selection),
    async redeliverAll(selection, { matched, partial }, who) {
      const id = uuidv7()
      // With a partial count, the true number may be larger.
      const count = partial ? Math.max(matched, 10_001) : matched
      const running = await createOperation(sql, id, selection, count, who)
      return running === id ? ((await readWhole(id, null)) ?? { id }) : running
    },
    readOperation: readWhole,
    listOperations: filter => listOperations(reads, filter),
    listOperationDeliveries: filter => listOperationDeliveries(reads, filter),
    stopOperation: request => stopOperation(sql, request),
    release(request, who) {
      const target = `${request.downstream} ${request.orderingKey}`
      return answered(
        releaseHeldKey({ sql, promote: options.successors.promote }, request, taskNo =>
          writeAudit(sql, { who, what: 'key.release', target, detail: { taskNo } })
        )
      )
    },
    async pause(name, who) {
      if (!(await isKnown(reads, registry, name))) return false
      await pause(sql, name, who)
      await cluster.refresh()
      return true
    },
    async resume(name, who) {
      if (!(await isKnown(reads, registry, name))) return false
      await resume(sql, name, who)
      await cluster.refresh()
      dispatcher.wake()
      return true
    },
    listAudit: filter => listAudit(reads, filter),
    listNodes: () => listNodes(reads),
    async setLimits(name, limits, who) {
      if (!(await isKnown(reads, registry, name))) return false
      await setLimits(sql, name, limits, who)
      await cluster.refresh()
      return true
    }
  }
}

/** A downstream without a handler can still be resumed, and its limits reset. */
export async function isKnown(reads: Reads, { downstreams }: Registry, name: string): Promise<boolean> {
  return downstreams.has(name) || (await countDownstreams(reads, [])).some(one => one.name === name)
}
