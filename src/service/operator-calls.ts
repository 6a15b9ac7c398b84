// What operators do and look at, as the API calls it: push, settle, bulk redelivery, limits, audit, nodes.
import type { ApiDeps } from '../api/deps.ts'
import { setLimits } from '../db/cluster.ts'
import type { AuditEntry } from '../db/keys.ts'
import { countDownstreams } from '../db/lists.ts'
import { countFailed, createOperation, stopOperation } from '../db/operations.ts'
import {
  countOutcomes,
  listAudit,
  listNodes,
  listOperationDeliveries,
  listOperations,
  readOperation
} from '../db/operator-lists.ts'
import type { Sql } from '../db/pool.ts'
import type { Reads } from '../db/reads.ts'
import { uuidv7 } from '../domain/ids.ts'
import type { Cluster } from '../delivery/cluster.ts'
import type { Complete } from '../delivery/complete.ts'
import type { Dispatcher } from '../delivery/dispatcher.ts'
import type { Cancelled } from '../delivery/load.ts'
import { push, settle, type Written } from '../delivery/operate.ts'
import type { Registry } from '../handler/load.ts'

export interface OperatorCallsOptions {
  sql: Sql
  reads: Reads
  registry: Registry
  complete: Complete
  dispatching: Pick<Dispatcher, 'wake'>
  cluster: Cluster
  cancelled: Cancelled
  written: (deed: AuditEntry) => Written
}

export type OperatorCalls = Pick<
  ApiDeps,
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
>

export function operatorCalls(options: OperatorCallsOptions): OperatorCalls {
  const { sql, reads, registry, complete, dispatching, cluster, cancelled, written } = options
  const readWhole = async (id: string, codes: readonly string[] | null) => {
    const found = await readOperation(reads, id, codes)
    return found && { ...found, deliveries: await countOutcomes(reads, id) }
  }
  return {
    push(asked) {
      const { taskNo, downstream = null, who } = asked
      return push(
        { sql, complete, cluster, wake: dispatching.wake },
        asked,
        written({ who, what: 'task.push', target: taskNo, detail: { downstream } })
      )
    },
    settle(asked) {
      const { taskNo, downstream = null, who, status, reason } = asked
      return settle(
        { sql, complete, cluster, cancelled },
        asked,
        written({ who, what: 'task.settle', target: taskNo, detail: { downstream, status, reason } })
      )
    },
    countFailed: selection => countFailed(sql, selection),
    async redeliverAll(selection, who) {
      const { matched, partial } = await countFailed(sql, selection)
      const id = uuidv7()
      // What is not counted may be any number.
      await createOperation(sql, id, selection, partial ? Math.max(matched, 10_001) : matched, who)
      return (await readWhole(id, null)) ?? { id }
    },
    readOperation: readWhole,
    listOperations: filter => listOperations(reads, filter),
    listOperationDeliveries: filter => listOperationDeliveries(reads, filter),
    stopOperation: asked => stopOperation(sql, asked),
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
