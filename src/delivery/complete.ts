import { batcher, isAway, isTimeout, type Batcher, type Partly } from '../db/batch.ts'
import type { OrderingKey } from '../db/ordering.ts'
import { applyMoves, isMoved, type Applied, type Completion, type OnWritten } from '../db/transitions.ts'
import type { Sql } from '../db/pool.ts'
import { withPartitions } from '../db/partitions.ts'
import { isHandledReceipt, completeReceipts, type HandledReceipt } from '../db/receipts.ts'
import { isSuccessfulSend, completeSends, type SuccessfulSend } from '../db/successful-sends.ts'
import { failpoint } from '../runtime/failpoint.ts'
import type { Metrics } from '../runtime/metrics.ts'
import type { Statistics } from '../runtime/statistics.ts'
import { moves, statusOf, type Move } from '../domain/transitions.ts'
import type { Task } from '../domain/types.ts'

/** A completion with the facts for its counters. */
export type MeasuredCompletion = WithTask | BareRelease

interface WithTask extends Completion {
  /** Without the times of the task, the duration until HANDLED is not measured. */
  task: Pick<Task, 'messageCode'> & Partial<Pick<Task, 'createdAt' | 'deliverStartTime'>>
  /** Whether the first try led to it. Undefined: the number of the attempt decides. */
  isFirstTry?: boolean | undefined
  /** It is rejected if its row is locked: whoever decided on it finds the delivery again. */
  skipLocked?: true
}

/** A release without an attempt ends nothing. Only the move is counted. */
interface BareRelease extends Completion {
  move: Move & { name: 'release' }
  attempt?: never
  task?: never
  isFirstTry?: never
  skipLocked?: never
}

/**
 * `unknown`: the move of an operator was written again, since the connection broke, and came too late: after the move of somebody else,
 * or after its own first write.
 */
export type Completed = Applied | 'unknown'

export interface Complete {
  (completion: MeasuredCompletion): Promise<Completed>
  /** Resolves when nothing waits to be written. */
  idle(): Promise<void>
}

/** Called for ended deliveries after the commit. The deliveries that waited for them may start (successors.ts). */
interface EndListener {
  /** A delivery of each of these tasks has ended. */
  ended(taskIds: readonly string[]): void
  /** The next delivery of each of these keys may start. */
  promote(keys: readonly OrderingKey[]): void
}

/**
 * Group commit of moves, attempts and receipts. A received answer exists only here. So while PostgreSQL is away the write is
 * repeated until it succeeds or `giveUp` aborts. The guard decides whether it still counts. A delivery whose row somebody else
 * has locked is written when the lock ends, and the others meanwhile; with `skipLocked` it is rejected.
 */
export function completer({
  sql,
  metrics,
  giveUp,
  successors
}: {
  sql: Sql
  metrics: Pick<Metrics, 'moved' | 'ended'> & { statistics?: Statistics }
  giveUp: AbortSignal
  successors?: () => EndListener
}): Complete {
  /** The moves of operators whose statement may have been committed, though it has failed. */
  const unsure = new WeakSet<MeasuredCompletion>()
  const batch: Batcher<MeasuredCompletion, Completed> = batcher({
    max: 200,
    // One at a time, with a pause in which the next batch grows (docs/notes/performance-log.md).
    inFlight: 1,
    restMs: 8,
    isUrgent,
    retryUntilWritten: giveUp,
    skipsLocked: (item: MeasuredCompletion) => item.skipLocked === true,
    async write(items: MeasuredCompletion[], lockMs) {
      failpoint('complete.before_commit')
      const times: number[] = []
      const written = await writeFolded(sql, items, lockMs, times)
      const isWhole = Array.isArray(written)
      if (isWhole) failpoint('complete.after_commit')
      const applied = isWhole ? written : written.outs
      const isLost = !isWhole && isAway(written.err)
      const over: string[] = []
      const keys: OrderingKey[] = []
      for (const [index, item] of items.entries()) {
        const one = applied[index]
        const { move } = item
        if (!one && isLost && move?.by !== undefined) unsure.add(item)
        if (!move || !one) continue
        if (one === 'stale' && unsure.has(item)) applied[index] = 'unknown'
        metrics.moved(move.name, isMoved(one))
        if (item.task) {
          const isFirst = item.isFirstTry ?? move.attempt <= 1
          count(metrics, item, move, one, isFirst)
          if (metrics.statistics) measure(metrics.statistics, item, move, one, isFirst, times[index])
        }
        if (!isMoved(one)) continue
        const { downstream, orderingKey } = move
        const isOver = statusOf(moves[move.name].to) !== 'SENDING'
        if (isOver) over.push(move.taskId)
        if (orderingKey && (isOver || move.name === 'requeue')) keys.push({ downstream, orderingKey })
      }
      if (over.length > 0) successors?.().ended(over)
      if (keys.length > 0) successors?.().promote(keys)
      return written
    }
  })
  const complete = (completion: MeasuredCompletion): Promise<Completed> => batch.add(completion)
  return Object.assign(complete, { idle: () => batch.idle() })
}

/**
 * Completes a move that a later look can decide again. Returns 'skipped' if the row is locked, or if PostgreSQL refuses the change; then
 * `onRefused` is called. Rejects if PostgreSQL is away.
 */
export async function completeOrSkip(
  complete: Complete,
  completion: WithTask & { task: Pick<Task, 'taskNo'> },
  onRefused: (fields: { err: unknown; taskNo: string; downstream: string | undefined }) => void
): Promise<Completed | 'skipped'> {
  try {
    return await complete({ ...completion, skipLocked: true })
  } catch (err) {
    if (isAway(err)) throw err
    const { taskNo } = completion.task
    if (!isTimeout(err)) onRefused({ err, taskNo, downstream: completion.move?.downstream })
    return 'skipped'
  }
}

/** Whether a caller waits for it, or the next delivery of its orderingKey. Nothing waits for the record of any other attempt. */
const isUrgent = ({ attempt, move }: Completion): boolean => attempt === undefined || !!move?.orderingKey

function count(
  metrics: Pick<Metrics, 'ended'>,
  { task }: WithTask,
  move: NonNullable<Completion['move']>,
  applied: Completed,
  isFirstTry: boolean
): void {
  if (!isMoved(applied)) return
  const status = statusOf(moves[move.name].to)
  if (status === 'SENDING') return
  const delivery = {
    messageCode: task.messageCode,
    downstream: move.downstream,
    isFirstTry
  }
  metrics.ended(delivery, status, move.reason)
}

function measure(
  statistics: Statistics,
  { task, attempt }: WithTask,
  move: NonNullable<Completion['move']>,
  applied: Completed,
  isFirstTry: boolean,
  at: number | undefined
): void {
  const counts = statistics.at(move.downstream, task.messageCode, at)
  if (attempt && applied !== 'recorded') {
    const isDelivered = attempt.outcome === 'delivered' || attempt.outcome === 'probed'
    counts.attempted(isDelivered, isFirstTry && attempt.outcome !== 'probed')
  }
  if (!isMoved(applied)) return
  const status = statusOf(moves[move.name].to)
  if (status === 'FAILED') counts.failed(isFirstTry, exhausting.has(move.reason))
  if (status !== 'HANDLED') return
  // What an operator says is no latency of the downstream.
  const isSaid = move.name === 'settle'
  const since = isSaid ? undefined : (task.deliverStartTime ?? task.createdAt)
  counts.handled(isFirstTry && !isSaid, since?.getTime())
}

/** The reasons of a delivery that FAILED since its tries were used up. */
const exhausting: ReadonlySet<Move['reason']> = new Set(['SEND_EXHAUSTED', 'RECEIPT_TIMEOUT'])

/** The items of one statement, with their places in the batch. */
interface Part<T> {
  items: T[]
  from: number[]
}

/**
 * A statement may contain each delivery only once: in a batch the first item of a delivery is written first, the others later. Equal
 * receipts share one write: thousands of PROCESSING, with a statement for each, would hold up the outcomes of all downstreams.
 * Successful sends and plain receipts, the majority, use short statements; the rest uses the general one. The results of one statement
 * are reported even if another fails: a second write of them would be stale, and would store their receipts twice. `times` gets the time of
 * each write, by the database's clock.
 */
async function writeFolded(
  sql: Sql,
  items: Completion[],
  lockMs: number,
  times: number[]
): Promise<Completed[] | Partly<Completed>> {
  const applied = new Array<Completed>(items.length)
  type Write<T> = (sql: Sql, items: readonly T[], lockMs: number, onWritten: OnWritten) => Promise<Applied[]>
  const write = async <T>(part: Part<T>, by: Write<T>) => {
    if (part.items.length === 0) return
    const ids = () => part.from.flatMap(index => taskIdOf(items[index] as Completion) ?? [])
    const told: OnWritten = at => {
      for (const index of part.from) times[index] = at
    }
    const written = await withPartitions(sql, ids, () => by(sql, part.items, lockMs, told))
    for (const [at, index] of part.from.entries()) applied[index] = written[at] as Applied
  }
  let rest = [...items.keys()]
  while (rest.length > 0) {
    const seen = new Map<string, number>()
    const repeats: [index: number, first: number][] = []
    const sends: Part<SuccessfulSend> = { items: [], from: [] }
    const receipts: Part<HandledReceipt> = { items: [], from: [] }
    const others: Part<Completion> = { items: [], from: [] }
    const later: number[] = []
    for (const index of rest) {
      const completion = items[index] as Completion
      const key = completion.move && completion.move.taskId + completion.move.downstream
      const first = key === null ? undefined : seen.get(key)
      if (first !== undefined) {
        if (isRepeat(completion, items[first])) repeats.push([index, first])
        else later.push(index)
        continue
      }
      if (key !== null) seen.set(key, index)
      if (isSuccessfulSend(completion)) sends.from[sends.items.push(completion) - 1] = index
      else if (isHandledReceipt(completion)) receipts.from[receipts.items.push(completion) - 1] = index
      else others.from[others.items.push(completion) - 1] = index
    }
    const ended = await Promise.allSettled([
      write(sends, completeSends),
      write(receipts, completeReceipts),
      write(others, applyMoves)
    ])
    for (const [index, first] of repeats) {
      const written = applied[first]
      if (written) applied[index] = items[index]?.move?.name === 'extend' ? written : 'stale'
    }
    const failed = ended.find(one => one.status === 'rejected')
    if (failed) return { outs: applied, err: failed.reason }
    rest = later
  }
  return applied
}

/** After the first one an equal PROCESSING changes nothing, and any other equal receipt comes too late. */
const isRepeat = (one: Completion, first: Completion | undefined): boolean =>
  one.receipt !== undefined &&
  first?.receipt !== undefined &&
  one.move?.name === first.move?.name &&
  one.move?.attempt === first.move?.attempt

const taskIdOf = ({ move, receipt }: Completion) => move?.taskId ?? receipt?.taskId
