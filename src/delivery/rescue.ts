import { raiseNoHandler } from '../db/alarms.ts'
import { findOrphans } from '../db/deliveries.ts'
import {
  findOverdue,
  findOwned,
  findUnlocked,
  findUnread,
  type Overdue,
  type ScanCursor
} from '../db/overdue.ts'
import type { DeadOwner } from '../db/owners.ts'
import type { Sql } from '../db/pool.ts'
import { decide } from '../domain/retry-policy.ts'
import type { Move } from '../domain/transitions.ts'
import { policyOf, type LoadedHandler } from '../handler/loaded.ts'
import { failpoint } from '../runtime/failpoint.ts'
import { withTimeout } from '../runtime/with-timeout.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Cluster } from './cluster.ts'
import { completeOrSkip, type Complete } from './complete.ts'
import { reasonOf } from '../runtime/errors.ts'

export interface RescueDeps {
  sql: Sql
  handlers: ReadonlyMap<string, LoadedHandler>
  complete: Complete
  cluster: Cluster
  random: () => number
  log: Logger
}

/** The deliveries that this worker has taken from the queue of a downstream and not ended. */
export type TakenBy = (
  downstream: string,
  worker: string
) => Promise<readonly (readonly [taskId: string, attempt: number])[]>

type RescueOwnedDeps = RescueDeps & {
  downstreams: readonly { name: string; leaseMs: number }[]
  takenBy: TakenBy
}

const overdueAtOnce = 1_000
/** The clocks that one look reads: some ten milliseconds. */
const clocksAtOnce = 20_000
/** Longer than a working queue takes for an answer. */
const queueMs = 2_000

/**
 * Decides for deliveries whose clock has ended, from these places on: lost leases, missing receipts, passed deliverBefore. `left`: the
 * places with more clocks than one look reads. `lookMs`: how long the look took.
 */
export async function rescueOverdue(
  deps: RescueDeps,
  places: readonly ScanCursor[]
): Promise<{ left: ScanCursor[]; lookMs: number }> {
  const clocks = Math.max(overdueAtOnce, Math.floor(clocksAtOnce / Math.max(1, places.length)))
  const began = performance.now()
  const found = await findOverdue(deps.sql, places, { clocks, limit: overdueAtOnce })
  const lookMs = performance.now() - began
  const free = await findUnlocked(
    deps.sql,
    found.flatMap(one => one.overdue)
  )
  const moved = await decideAll(
    deps,
    free,
    free.map(one => ({ ...rescueMoveOf(deps, one), overdue: true }))
  )
  // There may be more at a place with so many. If none could be moved, the look goes on behind them.
  const left = found.flatMap(
    ({ place, overdue, next }) => (overdue.length === overdueAtOnce && moved > 0 ? place : next) ?? []
  )
  return { left, lookMs }
}

/**
 * Takes back the deliveries of a dead process, without waiting for its leases. If it was no worker it sent nothing, so no try is
 * counted. Deliveries that it had enqueued may be taken back too: their jobs then belong to attempts that no longer exist.
 */
export async function rescueOwned(
  deps: RescueOwnedDeps,
  { number, node, isWorker }: DeadOwner
): Promise<void> {
  for (;;) {
    const owned = await findOwned(deps.sql, deps.downstreams, number, overdueAtOnce)
    const moves = owned.map((one): Move => ({ ...rescueMoveOf(deps, one, isWorker), owner: number }))
    const rescued = await decideAll(deps, owned, moves)
    if (owned.length < overdueAtOnce || rescued === 0) break
  }
  if (isWorker)
    await Promise.all(deps.downstreams.map(({ name }) => rescueTaken(deps, name, { number, node })))
}

/** Takes back claims that a dead worker had taken from a queue and not read. Their enqueuer still owns them: they were not sent. */
async function rescueTaken(
  deps: RescueOwnedDeps,
  downstream: string,
  worker: Pick<DeadOwner, 'number' | 'node'>
): Promise<void> {
  const taken = await withTimeout(deps.takenBy(downstream, worker.node), queueMs, () => {
    throw new Error(`no answer within ${queueMs} ms`)
  }).catch((err: unknown) => {
    // The queue is away: the leases end.
    deps.log.warn({ downstream, reason: reasonOf(err) }, 'rescue.queue_unread')
    return []
  })
  const unread = await findUnread(deps.sql, downstream, taken, worker)
  const moves = unread.map(({ owner, ...one }): Move => ({ ...rescueMoveOf(deps, one, false), owner }))
  await decideAll(deps, unread, moves)
}

/** Returns how many deliveries were moved. Those that are locked or cannot be written keep no others waiting: a later look finds them. */
async function decideAll(
  deps: RescueDeps,
  overdue: readonly Overdue[],
  moves: readonly Move[]
): Promise<number> {
  if (overdue.length > 0) failpoint('rescue.after_select')
  const done = await Promise.all(
    overdue.map((task, at) =>
      completeOrSkip(
        deps.complete,
        { move: moves[at] ?? null, task, noReceipt: noReceiptOf(deps, task) },
        fields => deps.log.error(fields, 'rescue.failed')
      )
    )
  )
  if (overdue.length > 0) failpoint('rescue.after_commit')
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

/** `mayHaveBeenSent`: a worker may have sent it. */
function rescueMoveOf(
  { handlers, cluster, random }: RescueDeps,
  one: Overdue,
  mayHaveBeenSent = cluster.workers() > 0
): Move {
  const { taskId, downstream, attempt, orderingKey } = one
  // A new round keeps the number of the attempt.
  const key = { taskId, downstream, attempt, orderingKey, ifStill: one.phase }
  if (one.phase === 'WAITING' || one.phase === 'BLOCKED') return { ...key, name: 'fail', reason: 'EXPIRED' }
  const policy = policyOf(handlers, one.messageCode, downstream)
  const lost = {
    kind: 'lost',
    mayHaveBeenSent: mayHaveBeenSent && !cluster.isPaused(one.downstream)
  } as const
  const { move: name, ...more } = decide(
    one.phase === 'IN_FLIGHT' ? lost : { kind: 'no_receipt' },
    one,
    policy,
    random()
  )
  return { ...key, name, ...more }
}

/** The reason of a delivered attempt whose receipt is missing. */
const noReceiptOf = ({ handlers }: Pick<RescueDeps, 'handlers'>, one: Overdue): string | undefined =>
  one.phase === 'AWAITING_RECEIPT'
    ? `no_receipt: none within ${policyOf(handlers, one.messageCode, one.downstream).receiptTimeoutMs / 1_000} s`
    : undefined

/** Deliveries whose downstream this process does not know stay as they are. If no other process knows it either, an alarm informs the operator. */
export async function raiseOrphans(
  { sql, log }: Pick<RescueDeps, 'sql' | 'log'>,
  names: string[]
): Promise<void> {
  const found = await findOrphans(sql, names, overdueAtOnce)
  if (found.length === 0) return
  const raised = await raiseNoHandler(sql, found)
  const orphans = found.filter((_, at) => !raised[at]?.isElsewhere)
  if (orphans.length === 0) return
  log.warn(
    { downstreams: [...new Set(orphans.map(one => one.downstream))], deliveries: orphans.length },
    'delivery.no_handler'
  )
}
