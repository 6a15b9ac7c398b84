import { batcher } from '../db/batch.ts'
import {
  closeDependencies,
  findDependents,
  findWaiting,
  raiseDependencyFailed,
  resolveDependencyFailed,
  type Dependent
} from '../db/dependents.ts'
import type { OrderingKey } from '../db/ordering.ts'
import { findUnlocked } from '../db/overdue.ts'
import { isInfrastructure, type Sql } from '../db/pool.ts'
import type { Move } from '../domain/transitions.ts'
import { lowestUuid, uuidAt } from '../domain/ids.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Cluster } from './cluster.ts'
import { completeOrSkip, type Complete } from './complete.ts'

export interface DependentsDeps {
  sql: Sql
  complete: Complete
  cluster: Pick<Cluster, 'hasDependents' | 'setDependents' | 'now'>
  /** Looks at keys whose next delivery may start. */
  promote: (keys: readonly OrderingKey[]) => void
  /** Called when a delivery became due. */
  wake: () => void
  log: Logger
}

/**
 * Lets tasks start that waited for others. The process that ends a task looks for its dependents, and the process that accepts a dependent looks
 * at its prerequisites, each in a statement after its commit: of two commits at the same time, the later look sees both. The sweep finds
 * the dependents that a crashed process did not look at, or that the ending process did not know yet.
 */
export interface Dependents {
  /** Deliveries of these tasks have ended. Runs no query while no task waits for another. */
  ended(taskIds: readonly string[]): void
  /** These dependents were accepted. */
  accepted(taskIds: readonly string[]): void
  /** Looks at waiting tasks: at all of them up to some thousands, else at the next part and at the youngest. */
  sweep(): Promise<void>
  /** Resolves when no task waits for a look. */
  idle(): Promise<void>
}

const lookedAtOnce = 500
/** A sweep stays a small part of the database's work, however many tasks wait. */
const sweepPage = 1_000
const sweepPages = 5
/** Dependents this young may be unknown to the process that ended their prerequisite. */
const youngMs = 10_000

/** The id of an ended task, or of an accepted dependent. */
type Trigger = { ended: string } | { accepted: string }

export function dependents(deps: DependentsDeps): Dependents {
  const { sql, cluster, log } = deps
  const triggered = batcher<Trigger, void>({
    max: lookedAtOnce,
    inFlight: 1,
    async write(triggers) {
      const ended = triggers.flatMap(one => ('ended' in one ? one.ended : []))
      const ids = triggers.flatMap(one => ('accepted' in one ? one.accepted : []))
      await moveWaiting(deps, { ids: [...new Set([...ids, ...ended])], ended: [...new Set(ended)] })
      return triggers.map(() => undefined)
    }
  })
  const add = (trigger: Trigger): void => {
    triggered.add(trigger).catch((err: unknown) => failed(log, err))
  }
  let from = lowestUuid
  let sweeping = false

  async function sweep(): Promise<void> {
    for (let pages = 0; pages < sweepPages; pages++) {
      const ids = await findWaiting(sql, from, sweepPage)
      await moveWaiting(deps, { ids, ended: [] })
      from = ids.length < sweepPage ? lowestUuid : (ids.at(-1) ?? lowestUuid)
      if (from === lowestUuid) return
    }
    const young = uuidAt(new Date(cluster.now().getTime() - youngMs))
    await moveWaiting(deps, { ids: await findWaiting(sql, young, sweepPage), ended: [] })
  }

  return {
    ended(taskIds) {
      if (cluster.hasDependents()) for (const ended of taskIds) add({ ended })
    },
    accepted(taskIds) {
      cluster.setDependents()
      for (const accepted of taskIds) add({ accepted })
    },
    async sweep() {
      if (sweeping || !cluster.hasDependents()) return
      sweeping = true
      await sweep()
        .catch((err: unknown) => failed(log, err))
        .finally(() => (sweeping = false))
    },
    idle: () => triggered.idle()
  }
}

function failed(log: Logger, err: unknown): void {
  // The sweep finds these tasks.
  if (isInfrastructure(err)) log.debug({ err }, 'dependents.failed')
  else log.error({ err }, 'dependents.failed')
}

/** Moves the waiting tasks, each according to its prerequisites. */
async function moveWaiting(deps: DependentsDeps, tasks: { ids: string[]; ended: string[] }): Promise<void> {
  for (let from = lowestUuid; tasks.ids.length + tasks.ended.length > 0;) {
    const found = await findDependents(deps.sql, tasks, from, lookedAtOnce)
    await moveDependents(deps, found)
    const last = found.at(-1)
    if (!last || found.length < lookedAtOnce) return
    from = last.taskId
  }
}

/** First the moves, then the rows of `dependency`: after a crash in between, the next look closes them. */
async function moveDependents(
  { sql, complete, promote, wake, log }: DependentsDeps,
  found: Dependent[]
): Promise<void> {
  const moves: { move: Move; task: Dependent }[] = []
  const over: string[] = []
  const done: [taskId: string, afterId: string][] = []
  // Deliveries with an orderingKey also wait for their turn, which `promote` decides.
  const turns: OrderingKey[] = []
  const held: { taskId: string; downstream: string; attempt: number }[] = []
  const free: { taskId: string; downstream: string }[] = []
  for (const one of found) {
    const { taskId, blocked } = one
    // No delivery is BLOCKED: the task ended on its own, or a process let it start and crashed before it closed the row.
    const verdict = blocked.length === 0 ? 'over' : verdictOf(one)
    if (verdict === 'hold' || verdict === 'wait') for (const id of one.done) done.push([taskId, id])
    else over.push(taskId)
    for (const { downstream, attempt, orderingKey, alarmed } of blocked) {
      const key = { taskId, downstream, attempt, orderingKey }
      if (verdict === 'unblock' && orderingKey !== null) {
        turns.push({ downstream, orderingKey })
        if (alarmed) free.push(key)
      } else if (verdict === 'unblock')
        moves.push({ move: { ...key, name: 'unblock', afterMs: one.startMs }, task: one })
      if (verdict === 'fail')
        moves.push({
          move: { ...key, name: 'fail', reason: 'DEPENDENCY_DELETED', ifStill: 'BLOCKED' },
          task: one
        })
      if (verdict === 'hold' && !alarmed) held.push(key)
    }
  }
  const unlocked = new Set(
    await findUnlocked(
      sql,
      moves.map(one => one.move)
    )
  )
  const applied = await Promise.all(
    moves.map(async one =>
      unlocked.has(one.move)
        ? completeOrSkip(complete, one, fields => log.error(fields, 'dependents.failed'))
        : 'skipped'
    )
  )
  // Their waits stay open, so the sweep finds them again.
  const unmoved = new Set(moves.filter((_, at) => applied[at] === 'skipped').map(one => one.move.taskId))
  const closed = over.filter(taskId => !unmoved.has(taskId))
  const raised = held.length > 0 ? await raiseDependencyFailed(sql, held) : new Set()
  for (const { taskId, taskNo, messageCode, failed } of found)
    if (raised.has(taskId)) log.warn({ taskNo, messageCode, failed }, 'dependent.held')
  if (free.length > 0) await resolveDependencyFailed(sql, free)
  if (closed.length + done.length > 0) await closeDependencies(sql, closed, done)
  if (turns.length > 0) promote(turns)
  if (moves.some(({ move }, at) => move.name === 'unblock' && applied[at] === 'moved')) wake()
}

/**
 * The consequence for a task of its prerequisites. `fail`: one was deleted. `hold`: one FAILED, but a late receipt or an operator may
 * still change that. `wait`: some are still SENDING. `unblock`: all are HANDLED.
 */
function verdictOf({ sending, failed, deleted }: Dependent): 'fail' | 'hold' | 'wait' | 'unblock' {
  if (deleted > 0) return 'fail'
  if (failed > 0) return 'hold'
  return sending > 0 ? 'wait' : 'unblock'
}
