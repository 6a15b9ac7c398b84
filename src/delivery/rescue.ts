import { raiseNoHandler } from '../db/alarms.ts'
import { findOrphans } from '../db/deliveries.ts'
import { findOverdue, findOwned, type Overdue } from '../db/overdue.ts'
import type { DeadOwner } from '../db/owners.ts'
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
  await decideAll(
    deps,
    overdue,
    overdue.map(one => moveOf(deps, one))
  )
  return overdue.length < overdueAtOnce
}

/**
 * Takes back what a dead process owned, without waiting for its leases. If it was no worker it sent nothing: that is not counted.
 * What it had put into the queue may be taken back with the rest: its job is then of an attempt that is no more.
 */
export async function rescueOwned(
  deps: RescueDeps & { downstreams: readonly { name: string; leaseMs: number }[] },
  { number, isWorker }: DeadOwner
): Promise<void> {
  for (;;) {
    const owned = await findOwned(deps.sql, deps.downstreams, number, overdueAtOnce)
    const moves = owned.map((one): Move => {
      const { overdue: _, ...move } = moveOf(deps, one, isWorker)
      return { ...move, owner: number }
    })
    const rescued = await decideAll(deps, owned, moves)
    if (owned.length < overdueAtOnce || rescued === 0) return
  }
}

/** How many were moved. */
async function decideAll(
  deps: RescueDeps,
  overdue: readonly Overdue[],
  moves: readonly Move[]
): Promise<number> {
  if (overdue.length > 0) failpoint('dispatch.after_select')
  const done = await Promise.all(
    overdue.map((task, at) => deps.complete({ move: moves[at] ?? null, task, messageCode: task.messageCode }))
  )
  if (overdue.length > 0) failpoint('dispatch.after_commit')
  let moved = 0
  overdue.forEach((one, index) => {
    const move = moves[index]
    if (done[index] !== 'moved' || !move) return
    moved++
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
  return moved
}

/** `workersLive`: somebody may have sent it. */
function moveOf(
  { handlers, cluster, random }: RescueDeps,
  one: Overdue,
  workersLive = cluster.workers() > 0
): Move {
  const { taskId, downstream, attempt, orderingKey } = one
  const key = { taskId, downstream, attempt, orderingKey, overdue: true }
  if (one.phase === 'WAITING' || one.phase === 'BLOCKED') return { ...key, name: 'fail', reason: 'EXPIRED' }
  const policy =
    handlers.get(one.messageCode)?.downstreams.find(d => d.name === one.downstream)?.policy ?? defaultPolicy
  const lost = {
    kind: 'lost',
    workersLive: workersLive && !cluster.isPaused(one.downstream)
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
