import {
  claimOperations,
  findBusy,
  findFailed,
  findStillBusy,
  findTaken,
  finishOperation,
  recordStopped,
  recordTaken,
  takeDeliveries,
  type FailedDelivery,
  type RunningOperation
} from '../db/running-operations.ts'
import { failedDownstreams } from '../db/operations.ts'
import { findUnlocked } from '../db/overdue.ts'
import type { Sql } from '../db/pool.ts'
import { retryTimesOf, type LoadedHandler } from '../handler/loaded.ts'
import { failpoint } from '../runtime/failpoint.ts'
import type { Logger } from '../runtime/logger.ts'
import { completeOrSkip, type Complete } from './complete.ts'

export interface BulkOperationDeps {
  sql: Sql
  /** The node id of this process. */
  node: string
  handlers: ReadonlyMap<string, LoadedHandler>
  complete: Complete
  isPaused: (downstream: string) => boolean
  /** The current limits of a downstream. */
  limits: (downstream: string) => { concurrency: number; perSecond?: number | undefined } | undefined
  /** Called when a delivery became due. */
  wake: () => void
  log: Logger
}

interface Bulk {
  /** One look at all running operations. Returns the ms until the next look. */
  look(): Promise<number>
}

/** Bulk work may take 1 / `part` of a downstream's limit. */
const part = 5
/** For a downstream that no handler of this process names. */
const unknown = { concurrency: 50, perSecond: undefined }
const idleMs = 1_000
const busyMs = 50
/** Between two looks for stopped operations without all of their results: no index finds them. */
const stoppedMs = 60_000
/** The most deliveries of one downstream in one look. */
const atOnce = 500
const mostRemembered = 10_000

/**
 * Redelivers in the background. All operations together use at most a fifth of each downstream's limits: of the concurrency
 * for deliveries that are due or in flight, and of the starts a second. One process runs it; another takes over within 10 s.
 */
export function bulkOperations(deps: BulkOperationDeps): Bulk {
  const { sql } = deps
  const known = [...deps.handlers.values()].flatMap(({ downstreams }) => downstreams.map(({ name }) => name))
  /** By downstream: redelivered deliveries that may still be due or in flight. */
  const busy = new Map<string, Map<string, { taskId: string; downstream: string }>>()
  /** By operation: how many of the taken deliveries somebody has locked. */
  const locked = new Map<string, number>()
  const buckets = new Map<string, { tokens: number; at: number }>()
  /** A look failed half-way: the deliveries that it had recorded are looked at again. */
  let halfDone = false
  let stoppedAt = -Infinity

  function remember(one: { taskId: string; downstream: string }): void {
    const deliveries = busy.get(one.downstream) ?? new Map()
    deliveries.set(one.taskId + one.downstream, one)
    busy.set(one.downstream, deliveries)
  }

  async function refresh(): Promise<void> {
    const remembered = [...busy.values()].flatMap(deliveries => [...deliveries.values()])
    const still = await findBusy(sql, remembered, known)
    for (const deliveries of busy.values())
      for (const key of deliveries.keys()) if (!still.has(key)) deliveries.delete(key)
  }

  /** The number of deliveries that may be redelivered to it now. */
  function room(downstream: string): number {
    if (deps.isPaused(downstream)) return 0
    const { concurrency, perSecond } = deps.limits(downstream) ?? unknown
    const free = Math.max(1, Math.floor(concurrency / part)) - (busy.get(downstream)?.size ?? 0)
    if (perSecond === undefined) return Math.min(free, atOnce)
    const bucket = buckets.get(downstream) ?? { tokens: 1, at: performance.now() }
    const now = performance.now()
    const rate = perSecond / part
    bucket.tokens = Math.min(Math.max(1, rate), bucket.tokens + ((now - bucket.at) * rate) / 1000)
    bucket.at = now
    buckets.set(downstream, bucket)
    return Math.min(free, Math.floor(bucket.tokens), atOnce)
  }

  /** Those with a locked row are left for a later look. */
  async function redeliver(operation: RunningOperation, found: readonly FailedDelivery[]): Promise<void> {
    const wanted = found.filter(one => !one.isSkipped)
    const unlocked = new Set(await findUnlocked(sql, wanted))
    const left = wanted.filter(one => !unlocked.has(one))
    const redelivered = async (one: FailedDelivery): Promise<void> => {
      let isRefused = false
      const completion = {
        move: {
          taskId: one.taskId,
          downstream: one.downstream,
          attempt: one.attempt,
          // As for an operator's redelivery of one task: `promote` decides whether it is the head.
          name: one.inOrder ? 'requeue' : 'redeliver',
          afterMs: one.startMs,
          orderingKey: one.orderingKey,
          timely: true,
          retryTimes: retryTimesOf(deps.handlers, one, one.downstream),
          by: operation.created_by
        },
        task: one
      } as const
      const completed = await completeOrSkip(deps.complete, completion, fields => {
        isRefused = true
        deps.log.error({ ...fields, operation: operation.id }, 'redelivery.failed')
      })
      if (completed === 'skipped' && !isRefused) left.push(one)
    }
    await Promise.all([...unlocked].map(redelivered))
    if (left.length > 0) locked.set(operation.id, (locked.get(operation.id) ?? 0) + left.length)
    const later = new Set(left)
    const done = found.filter(one => !later.has(one))
    if (done.length === 0) return
    await recordTaken(sql, { id: operation.id, node: deps.node }, done)
    for (const one of done) if (!one.isSkipped) remember(one)
    deps.wake()
  }

  async function turn(operation: RunningOperation): Promise<void> {
    const { id, filter, cursors } = operation
    const { node } = deps
    if ((locked.get(id) ?? 0) >= mostRemembered) return
    const names = filter.downstream === undefined ? await failedDownstreams(sql) : [filter.downstream]
    const open = names.filter(name => cursors[name] !== 'end')
    const found: FailedDelivery[] = []
    const next: Record<string, string> = {}
    for (const name of open) {
      const most = room(name)
      if (most < 1) continue
      const page = await findFailed(sql, operation, name, cursors[name], most)
      found.push(...page.found)
      next[name] = page.next
      const bucket = buckets.get(name)
      if (bucket) bucket.tokens -= page.found.length
    }
    if (Object.keys(next).length > 0) {
      if (!(await takeDeliveries(sql, { id, node }, found, next))) return
      failpoint('bulk.after_take')
      if (found.length > 0) await redeliver(operation, found)
    }
    if (open.every(name => next[name] === 'end') && !locked.has(id)) {
      await finishOperation(sql, { id, node })
      deps.log.info({ operation: id }, 'operation.done')
    }
  }

  return {
    async look() {
      if (performance.now() - stoppedAt >= stoppedMs) {
        await recordStopped(sql)
        stoppedAt = performance.now()
      }
      const operations = await claimOperations(sql, deps.node)
      for (const id of locked.keys()) if (!operations.some(one => one.id === id)) locked.delete(id)
      if (operations.length === 0) {
        busy.clear()
        return idleMs
      }
      const isAgain = halfDone
      halfDone = true
      if (operations.some(one => one.taken_over) && busy.size === 0)
        for (const one of await findStillBusy(sql, known, mostRemembered)) remember(one)
      await refresh()
      for (const operation of operations) {
        const { id, taken_over } = operation
        const taken = taken_over || isAgain || locked.has(id) ? await findTaken(sql, id) : []
        locked.delete(id)
        if (taken.length > 0) await redeliver(operation, taken)
        await turn(operation)
      }
      halfDone = false
      return busyMs
    }
  }
}
