import { raiseNoHandler } from '../db/alarms.ts'
import { findOrphans, findOverdue, type Overdue } from '../db/deliveries.ts'
import type { Sql } from '../db/pool.ts'
import { decide, defaultPolicy } from '../domain/retry-policy.ts'
import type { Move } from '../domain/transitions.ts'
import type { LoadedHandler } from '../handler/loaded.ts'
import { failpoint } from '../runtime/failpoint.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Cluster } from './cluster.ts'
import type { Complete } from './complete.ts'

export interface RescueDeps {
  sql: Sql
  handlers: ReadonlyMap<string, LoadedHandler>
  complete: Complete
  cluster: Cluster
  random: () => number
  log: Logger
}

const overdueAtOnce = 1_000

/**
 * Decides for deliveries whose clock has ended: lost leases, missing receipts, passed deliverBefore. `since` skips clocks that an
 * earlier sweep has checked. Null: check all. False: there are more than one sweep takes.
 */
export async function rescueOverdue(
  deps: RescueDeps,
  downstreams: string[],
  since: Date | null
): Promise<boolean> {
  const overdue = await findOverdue(deps.sql, downstreams, since, overdueAtOnce)
  const moves = overdue.map(one => moveOf(deps, one))
  if (overdue.length > 0) failpoint('dispatch.after_select')
  const done = await Promise.all(
    overdue.map((task, at) => deps.complete({ move: moves[at] ?? null, task, messageCode: task.messageCode }))
  )
  if (overdue.length > 0) failpoint('dispatch.after_commit')
  overdue.forEach((one, index) => {
    const move = moves[index]
    if (done[index] !== 'moved' || !move) return
    deps.log.info(
      {
        taskNo: one.taskNo,
        messageCode: one.messageCode,
        downstream: one.downstream,
        attempt: one.attempt,
        was: one.phase,
        move: move.name,
        reason: move.reason,
        afterMs: move.afterMs
      },
      'delivery.rescued'
    )
  })
  return overdue.length < overdueAtOnce
}

function moveOf({ handlers, cluster, random }: RescueDeps, one: Overdue): Move {
  const { taskId, downstream, attempt, orderingKey } = one
  const key = { taskId, downstream, attempt, orderingKey, overdue: true }
  if (one.phase === 'WAITING' || one.phase === 'BLOCKED') return { ...key, name: 'fail', reason: 'EXPIRED' }
  const policy =
    handlers.get(one.messageCode)?.downstreams.find(d => d.name === one.downstream)?.policy ?? defaultPolicy
  const lost = {
    kind: 'lost',
    workersLive: cluster.workers() > 0 && !cluster.isPaused(one.downstream)
  } as const
  const { move: name, ...more } = decide(
    one.phase === 'IN_FLIGHT' ? lost : { kind: 'no_receipt' },
    one,
    policy,
    random()
  )
  return { ...key, name, ...more }
}

/** Deliveries whose downstream no handler names wait where they are. An alarm must tell the operator. */
export async function raiseOrphans(
  { sql, log }: Pick<RescueDeps, 'sql' | 'log'>,
  names: string[]
): Promise<void> {
  const orphans = await findOrphans(sql, names, overdueAtOnce)
  if (orphans.length === 0) return
  await raiseNoHandler(sql, orphans)
  log.warn(
    { downstreams: [...new Set(orphans.map(one => one.downstream))], deliveries: orphans.length },
    'delivery.no_handler'
  )
}
