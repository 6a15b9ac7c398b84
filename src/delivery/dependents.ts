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
import { isInfrastructure, type Sql } from '../db/pool.ts'
import type { Move } from '../domain/transitions.ts'
import { lowestUuid, uuidAt } from '../domain/ids.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Cluster } from './cluster.ts'
import type { Complete } from './complete.ts'

export interface DependentsDeps {
  sql: Sql
  complete: Complete
  cluster: Pick<Cluster, 'hasDependents' | 'setDependents' | 'now'>
  /** Looks at keys of which the next one may go. */
  promote: (keys: readonly OrderingKey[]) => void
  /** Something became due. */
  wake: () => void
  log: Logger
}

/**
 * Releases tasks that wait for others. The process that ends a task looks for its dependents, and the process that accepts a dependent looks
 * at its prerequisites, each in a statement after its commit: of two commits at the same time, the later look sees both. The sweep finds what
 * a crashed process did not look at, or a process that did not know yet of a dependent.
 */
export interface Dependents {
  /** Deliveries of these tasks have ended. Asks PostgreSQL nothing while no task waits for another. */
  ended(taskIds: readonly string[]): void
  /** These tasks were accepted, and wait. */
  accepted(taskIds: readonly string[]): void
  /** Looks at tasks that wait: once around for some thousands, else at a part and at the youngest. */
  sweep(): Promise<void>
  /** Resolves when nothing waits to be looked at. */
  idle(): Promise<void>
}

const lookedAtOnce = 500
/** A sweep stays a small part of what the database does, however many wait. */
const sweepPage = 1_000
const sweepPages = 5
/** Dependents this young may be unknown to the process that ended their prerequisite. */
const youngMs = 10_000

/** A task that ended, or one that was accepted to wait. */
type Trigger = { ended: string } | { accepted: string }

export function dependents(deps: DependentsDeps): Dependents {
  const { sql, cluster, log } = deps
  const looks = batcher<Trigger, void>({
    max: lookedAtOnce,
    inFlight: 1,
    async write(triggers) {
      const ended = triggers.flatMap(one => ('ended' in one ? one.ended : []))
      const ids = triggers.flatMap(one => ('accepted' in one ? one.accepted : []))
      await look(deps, { ids: [...new Set([...ids, ...ended])], ended: [...new Set(ended)] })
      return triggers.map(() => undefined)
    }
  })
  const add = (trigger: Trigger): void => {
    looks.add(trigger).catch((err: unknown) => failed(log, err))
  }
  let from = lowestUuid
  let sweeping = false

  async function sweep(): Promise<void> {
    for (let pages = 0; pages < sweepPages; pages++) {
      const ids = await findWaiting(sql, from, sweepPage)
      await look(deps, { ids, ended: [] })
      from = ids.length < sweepPage ? lowestUuid : (ids.at(-1) ?? lowestUuid)
      if (from === lowestUuid) return
    }
    const young = uuidAt(new Date(cluster.now().getTime() - youngMs))
    await look(deps, { ids: await findWaiting(sql, young, sweepPage), ended: [] })
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
    idle: () => looks.idle()
  }
}

function failed(log: Logger, err: unknown): void {
  // The sweep finds them.
  if (isInfrastructure(err)) log.debug({ err }, 'dependents.failed')
  else log.error({ err }, 'dependents.failed')
}

/** Looks at tasks that wait, and moves each as its prerequisites say. */
async function look(deps: DependentsDeps, asked: { ids: string[]; ended: string[] }): Promise<void> {
  for (let from = lowestUuid; asked.ids.length + asked.ended.length > 0;) {
    const found = await findDependents(deps.sql, asked, from, lookedAtOnce)
    await settle(deps, found)
    const last = found.at(-1)
    if (!last || found.length < lookedAtOnce) return
    from = last.taskId
  }
}

/** First the moves, then the rows of `dependency`: after a crash in between, the next look closes them. */
async function settle(
  { sql, complete, promote, wake, log }: DependentsDeps,
  found: Dependent[]
): Promise<void> {
  const moves: { move: Move; task: Dependent }[] = []
  const over: string[] = []
  const done: [taskId: string, afterId: string][] = []
  // In an orderingKey they also need their turn, which `promote` decides.
  const turns: OrderingKey[] = []
  const held: { taskId: string; downstream: string; attempt: number }[] = []
  const free: { taskId: string; downstream: string }[] = []
  for (const one of found) {
    const { taskId, blocked } = one
    // Nothing is BLOCKED: it has ended by itself, or a process released it and crashed before it closed the row.
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
        moves.push({ move: { ...key, name: 'fail', reason: 'DEPENDENCY_DELETED' }, task: one })
      if (verdict === 'hold' && !alarmed) held.push(key)
    }
    if (verdict === 'hold' && blocked.some(({ alarmed }) => !alarmed))
      log.warn({ taskNo: one.taskNo, messageCode: one.messageCode, failed: one.failed }, 'dependent.held')
  }
  const applied = await Promise.all(moves.map(complete))
  if (held.length > 0) await raiseDependencyFailed(sql, held)
  if (free.length > 0) await resolveDependencyFailed(sql, free)
  if (over.length + done.length > 0) await closeDependencies(sql, over, done)
  if (turns.length > 0) promote(turns)
  if (moves.some(({ move }, at) => move.name === 'unblock' && applied[at] === 'moved')) wake()
}

/**
 * What follows for a task from its prerequisites. `fail`: one was deleted. `hold`: one FAILED, which a late receipt or an operator may
 * still change. `wait`: they are on their way. `unblock`: nothing is left to wait for.
 */
function verdictOf({ sending, failed, deleted }: Dependent): 'fail' | 'hold' | 'wait' | 'unblock' {
  if (deleted > 0) return 'fail'
  if (failed > 0) return 'hold'
  return sending > 0 ? 'wait' : 'unblock'
}
