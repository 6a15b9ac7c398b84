// Actions of operators on one task or one key. Each action rejects with the error of PostgreSQL. It may still take effect.
import type { TaskView } from '../db/views.ts'
import { readBrief } from '../db/read-tasks.ts'
import { readHolder, releaseKey, type OrderingKey, type Passed } from '../db/ordering.ts'
import type { Sql } from '../db/pool.ts'
import { isMoved } from '../db/transitions.ts'
import { readTaskProgress, type TaskProgress } from '../db/task-progress.ts'
import { retryTimesOf, type LoadedHandler } from '../handler/loaded.ts'
import { moves, statusOf, type Move } from '../domain/transitions.ts'
import type { Actor, Status } from '../domain/types.ts'
import type { Complete, Completed } from './complete.ts'
import type { StoppedClaims } from './stopped-claims.ts'

/** Gets the status before and after of each delivery that an operator changes. Called before the first change, for the audit. */
export type WriteAudit = (before: Record<string, Status>, after: Record<string, Status>) => Promise<void>

interface RedeliverDeps {
  sql: Sql
  complete: Complete
  handlers: ReadonlyMap<string, LoadedHandler>
  /** Called when a delivery became due. */
  wake: () => void
}

/** `force` also redelivers HANDLED deliveries, those past their deliverBefore, and those whose prerequisite was deleted. */
export interface RedeliverRequest {
  taskNo: string
  downstream?: string
  force: boolean
  who: Actor
}

/** Starts a new round, with all tries again, for FAILED deliveries. The same statement resolves the alarm. */
export async function redeliver(
  deps: RedeliverDeps,
  request: RedeliverRequest,
  audit: WriteAudit
): Promise<TaskView | 'not_found' | 'nothing' | 'expired' | 'prerequisite_deleted' | 'prepared'> {
  const task = await readTaskProgress(deps.sql, request.taskNo)
  if (!task) return 'not_found'
  if (task.state === 'PREPARED') return 'prepared'
  const eligible = scoped(task.deliveries, request.downstream).filter(
    one => one.status === 'FAILED' || (request.force && one.status === 'HANDLED')
  )
  const timely = request.force ? eligible : eligible.filter(one => !one.expired)
  // A delivery that failed because its prerequisite was deleted is sent only with force.
  const wanted = request.force ? timely : timely.filter(one => one.reason !== 'DEPENDENCY_DELETED')
  if (timely.length > wanted.length && wanted.length === 0) return 'prerequisite_deleted'
  if (wanted.length === 0) return eligible.length > 0 ? 'expired' : 'nothing'
  const planned = wanted.map(({ downstream, attempt, status, orderingKey, position, startMs }): Move => {
    const inOrder = (position ?? 0) > 0
    const name = status === 'HANDLED' ? 'repeat' : inOrder ? 'requeue' : 'redeliver'
    const retryTimes = retryTimesOf(deps.handlers, task, downstream)
    // One that was never tried still waits for the start time of its producer.
    const afterMs = attempt === 0 ? startMs : 0
    const move = {
      taskId: task.id,
      downstream,
      attempt,
      name,
      afterMs,
      retryTimes,
      orderingKey,
      by: request.who.name
    } as const
    return request.force ? move : { ...move, timely: true }
  })
  await auditMoves(audit, wanted, planned)
  const done = await Promise.all(planned.map(move => deps.complete({ move, task })))
  const isDone =
    done.some(isMoved) ||
    (await hasHappened(deps.sql, request, done, wanted, (now, before) => now.round > before.round))
  if (!isDone) return 'nothing'
  deps.wake()
  return readBrief(deps.sql, request.taskNo)
}

type Parts = TaskProgress['deliveries']

/** Whether the first write of a move has changed its delivery: its answer was lost, and its second write came too late. */
async function hasHappened(
  sql: Sql,
  { taskNo, who }: { taskNo: string; who: Actor },
  done: readonly Completed[],
  parts: Parts,
  isChange: (now: Parts[number], before: Parts[number]) => boolean
): Promise<boolean> {
  const unknown = parts.filter((_, at) => done[at] === 'unknown')
  if (unknown.length === 0) return false
  const task = await readTaskProgress(sql, taskNo)
  return unknown.some(before => {
    const now = task?.deliveries.find(one => one.downstream === before.downstream)
    return now?.updatedBy === who.name && isChange(now, before)
  })
}

const auditMoves = (audit: WriteAudit, parts: Parts, planned: readonly Move[]): Promise<void> =>
  audit(
    Object.fromEntries(parts.map(one => [one.downstream, one.status])),
    Object.fromEntries(planned.map(move => [move.downstream, statusOf(moves[move.name].to)]))
  )

const scoped = (parts: Parts, downstream: string | undefined): Parts =>
  parts.filter(one => downstream === undefined || one.downstream === downstream)

export interface PushRequest {
  taskNo: string
  downstream?: string
  who: Actor
}

/** Ends the backoff of deliveries: they are due now. Neither a start in the future nor a prerequisite can be pushed. */
export async function push(
  { sql, complete, wake }: Pick<RedeliverDeps, 'sql' | 'complete' | 'wake'>,
  { taskNo, downstream, who }: PushRequest,
  audit: WriteAudit
): Promise<TaskView | 'not_found' | 'nothing' | 'prepared' | 'blocked' | 'early'> {
  const task = await readTaskProgress(sql, taskNo)
  if (!task) return 'not_found'
  if (task.state === 'PREPARED') return 'prepared'
  const parts = scoped(task.deliveries, downstream)
  const waiting = parts.filter(one => one.phase === 'WAITING' && one.dueMs > 0)
  // A delivery that was never tried waits for the start time of its producer.
  const tried = waiting.filter(one => one.attempt > 0 && one.startMs === 0)
  if (tried.length === 0) {
    if (parts.some(one => one.phase === 'BLOCKED')) return 'blocked'
    return waiting.length > 0 ? 'early' : 'nothing'
  }
  const planned = tried.map(({ downstream: name, attempt, reason }): Move => {
    const move: Move = { taskId: task.id, downstream: name, attempt, name: 'push', by: who.name }
    // The reason stays: otherwise a PROCESSING could no longer extend a missing receipt.
    return reason === null ? move : { ...move, reason }
  })
  await auditMoves(audit, tried, planned)
  const done = await Promise.all(planned.map(move => complete({ move, task })))
  const isDone =
    done.some(isMoved) ||
    (await hasHappened(sql, { taskNo, who }, done, tried, (now, before) => now.attempt > before.attempt))
  if (!isDone) return 'nothing'
  wake()
  return readBrief(sql, taskNo)
}

interface SettleDeps {
  sql: Sql
  complete: Complete
  stoppedClaims: StoppedClaims
}

/** `from`: only these deliveries, by downstream, each only while it has this status. */
export interface SettleRequest {
  taskNo: string
  downstream?: string
  status: 'HANDLED' | 'DELETED'
  from?: Readonly<Record<string, 'SENDING' | 'FAILED'>>
  who: Actor
}

/** Records how open or FAILED deliveries ended, and resolves their alarms. A request in flight cannot be stopped. */
export const settle = (
  deps: SettleDeps,
  request: SettleRequest,
  audit: WriteAudit
): Promise<TaskView | 'not_found' | 'nothing' | 'prepared'> =>
  end(
    deps,
    request,
    audit,
    ({ downstream, status }) =>
      request.from ? request.from[downstream] === status : status === 'SENDING' || status === 'FAILED',
    key =>
      request.status === 'HANDLED'
        ? { ...key, name: 'settle', handledBy: 'operator' }
        : { ...key, name: 'delete', reason: 'DELETED' }
  )

/** Stops the SENDING deliveries of a task. */
export const remove = (
  deps: SettleDeps,
  taskNo: string,
  who: Actor,
  audit: WriteAudit
): Promise<TaskView | 'not_found' | 'nothing' | 'prepared'> =>
  end(
    deps,
    { taskNo, who },
    audit,
    ({ status }) => status === 'SENDING',
    key => ({ ...key, name: 'delete', reason: 'DELETED' })
  )

/** A request in flight cannot be stopped, but its outcome changes nothing. */
async function end(
  { sql, complete, stoppedClaims }: SettleDeps,
  request: { taskNo: string; downstream?: string; who: Actor },
  audit: WriteAudit,
  isWanted: (part: Parts[number]) => boolean,
  moveOf: (key: Pick<Move, 'taskId' | 'downstream' | 'attempt' | 'orderingKey' | 'by'>) => Move
): Promise<TaskView | 'not_found' | 'nothing' | 'prepared'> {
  const { taskNo, downstream, who } = request
  const audited = new Map<string, Status>()
  let ended = 0
  /** The answer of the write that ends them was lost. */
  const unknown = new Map<string, Status>()
  // A turn is too late if the delivery has changed once more.
  for (let turn = 0; turn < 10; turn++) {
    const task = await readTaskProgress(sql, taskNo)
    if (!task) return 'not_found'
    if (task.state === 'PREPARED') return 'prepared'
    const isOurs = (one: Parts[number]): boolean =>
      one.status === unknown.get(one.downstream) && one.updatedBy === who.name
    ended += task.deliveries.filter(isOurs).length
    unknown.clear()
    const parts = scoped(task.deliveries, downstream).filter(isWanted)
    const planned = parts.map(({ downstream: name, attempt, orderingKey, status }): Move => {
      const move = moveOf({ taskId: task.id, downstream: name, attempt, orderingKey, by: who.name })
      // If the delivery fails meanwhile, this statement would not see its alarm: the move must be stale, and the next turn ends it. One that
      // is redelivered meanwhile may not be wanted.
      return { ...move, ifStill: status === 'SENDING' ? 'SENDING' : 'FAILED' }
    })
    // In a later turn also one that has changed since, or is wanted only now.
    const isNew = parts.map(one => audited.get(one.downstream) !== one.status)
    if (isNew.includes(true))
      await auditMoves(
        audit,
        parts.filter((_, at) => isNew[at]),
        planned.filter((_, at) => isNew[at])
      )
    for (const one of parts) audited.set(one.downstream, one.status)
    const done = await Promise.all(
      planned.map(move => {
        stoppedClaims.add(task.id, move.downstream)
        return complete({ move, task })
      })
    )
    planned.forEach((move, at) => {
      if (done[at] === 'unknown') unknown.set(move.downstream, statusOf(moves[move.name].to))
    })
    const moved = done.filter(isMoved).length
    ended += moved
    if (moved === parts.length) break
  }
  if (ended === 0) return 'nothing'
  return readBrief(sql, taskNo)
}

interface ReleaseHeldKeyDeps {
  sql: Sql
  promote: (keys: readonly OrderingKey[]) => void
}

/** `taskNo`: the task that the caller saw at the head. Another one is not passed. */
export interface ReleaseRequest extends OrderingKey {
  taskNo?: string
}

/** Releases a key that a FAILED delivery holds. That delivery is then out of order. `audit` is called before a change, with its task. */
export async function releaseHeldKey(
  { sql, promote }: ReleaseHeldKeyDeps,
  { downstream, orderingKey, taskNo }: ReleaseRequest,
  audit: (taskNo: string) => Promise<void>
): Promise<Passed | 'not_held' | 'not_found'> {
  const key = { downstream, orderingKey }
  const holder = await readHolder(sql, key)
  if (!holder) return 'not_found'
  if (holder.taskNo === null || (taskNo !== undefined && taskNo !== holder.taskNo)) return 'not_held'
  await audit(holder.taskNo)
  // Another operator may have released it since. The next one that FAILED was not looked at.
  const passed = await releaseKey(sql, { ...key, taskNo: holder.taskNo })
  promote([key])
  return passed ?? 'not_held'
}
