// Moves rows from a producer's `ackbox_outbox` into Ackbox: post, then remove, in one transaction of the producer's database.
import { failpoint } from '../runtime/failpoint.ts'
import { repeat } from '../runtime/repeat.ts'
import { isPowerOfTen, type Logger } from '../runtime/logger.ts'
import { keptRows, noRest, type KeptRows } from './kept.ts'
import { postRows, TargetAway, type PostTarget } from './post.ts'
import type { RelayRow, Share, Source, RowVerdict } from './source.ts'
import { messageOf } from '../runtime/errors.ts'

export interface RelayDeps {
  source: Source
  target: PostTarget
  log: Logger
  /** The most rows in one batch. */
  batch: number
  /** The number of batches of rows without a key that run at the same time. */
  concurrency: number
  onBatch: (done: { accepted: number; rejected: number; kept: number; ms: number }) => void
  /** Called when the database or Ackbox is unreachable, and with null when both are reachable again. */
  onHealth: (fault: string | null) => void
}

/** The wait before an empty outbox is read again. It grows while the outbox stays empty. After rows that left it there is no wait. */
const idleMs = { first: 100, most: 1_000 }
const backoffMs = { first: 200, most: 30_000 }

/** What a turn did with its rows. */
interface Turn {
  removed: number
  /** Rows that Ackbox answered 500 or 503 for. */
  failed: number
  /** Rows that will be in the next read too, since too many others rest. */
  unrested: number
}

/** Relays until the signal aborts. Returns when the running batches have ended. */
export async function relay(deps: RelayDeps, signal: AbortSignal, kept = keptRows()): Promise<void> {
  /** By worker. One that works must not hide that another one is stuck. */
  const faults = new Map<number, string>()
  const healthOf = (index: number) => (fault: string | null) => {
    if (fault === null) faults.delete(index)
    else faults.set(index, fault)
    const [first = null] = faults.values()
    deps.onHealth(first)
  }
  const workers = Array.from({ length: deps.concurrency }, (_, index) =>
    worker({ ...deps, onHealth: healthOf(index) }, signal, () => postShare(deps, kept, 'unkeyed'))
  )
  const keyed = worker({ ...deps, onHealth: healthOf(deps.concurrency) }, signal, async () =>
    sumOfAll((await deps.source.shards()).map(shard => postShare(deps, kept, shard)))
  )
  await Promise.all([...workers, keyed])
}

/**
 * Relays the rows that exist now, and not those that are inserted meanwhile: they could be without end. Throws the first error. `removed`: the
 * rows that left the outbox. `kept`: those that Ackbox answered 500 or 503 for at the last try.
 */
export async function relayOnce(
  deps: RelayDeps,
  signal: AbortSignal
): Promise<{ removed: number; kept: number }> {
  const kept = keptRows(noRest)
  const upTo = await deps.source.lastId()
  if (upTo === undefined) return { removed: 0, kept: 0 }
  let removed = 0
  for (;;) {
    const shards = await deps.source.shards()
    const shares: Share[] = ['unkeyed', ...shards]
    const now = await sumOfAll(
      shares.map(async share => (signal.aborted ? noRows : await postShare(deps, kept, share, upTo)))
    )
    removed += now.removed
    if (now.removed === 0 || signal.aborted) return { removed, kept: now.failed }
  }
}

/** Throws the first error when all have ended: the caller closes the database after it. */
async function sumOfAll(turns: Promise<Turn>[]): Promise<Turn> {
  const settled = await Promise.allSettled(turns)
  return settled.reduce((sum, result) => {
    if (result.status === 'rejected') throw result.reason
    const { removed, failed, unrested } = result.value
    return { removed: sum.removed + removed, failed: sum.failed + failed, unrested: sum.unrested + unrested }
  }, noRows)
}
const noRows: Turn = { removed: 0, failed: 0, unrested: 0 }

/**
 * Posts the rows of a share that do not rest. Throws if no row got an answer. A row that stays because of its task is no reason to wait for
 * Ackbox: others may come.
 */
async function postShare(deps: RelayDeps, kept: KeptRows, share: Share, upTo?: string): Promise<Turn> {
  let failed = 0
  let unrested = 0
  const { seen, removed } = await deps.source.postShare(
    share,
    deps.batch,
    async rows => {
      const verdicts = await post(deps, rows)
      for (const [index, row] of rows.entries()) {
        const verdict = verdicts[index]
        if (verdict?.kind !== 'kept') kept.remove(row)
        else if (verdict.problem !== undefined) {
          failed++
          const tries = kept.add(share, row)
          if (tries === undefined) unrested++
          else if (isPowerOfTen(tries))
            deps.log.warn({ taskNo: row.taskNo, tries, problem: verdict.problem.slice(0, 500) }, 'relay.kept')
        }
      }
      return verdicts
    },
    { resting: kept.resting(share), upTo }
  )
  if (removed === 0 && failed < seen) throw new TargetAway(`${seen} tasks got no final answer`)
  return { removed, failed, unrested }
}

async function post(deps: RelayDeps, rows: RelayRow[]): Promise<RowVerdict[]> {
  const from = performance.now()
  failpoint('relay.after_read')
  const verdicts = await postRows(deps.target, rows)
  failpoint('relay.after_post')
  const count = (kind: RowVerdict['kind']): number => verdicts.filter(one => one.kind === kind).length
  const done = { accepted: count('accepted'), rejected: count('rejected'), kept: count('kept') }
  verdicts.forEach((verdict, index) => {
    if (verdict.kind === 'rejected')
      deps.log.warn({ taskNo: rows[index]?.taskNo, problem: verdict.problem.slice(0, 500) }, 'relay.rejected')
  })
  deps.log.debug({ rows: rows.length, ...done }, 'relay.batch')
  deps.onBatch({ ...done, ms: performance.now() - from })
  return verdicts
}

/** One loop. It runs turns without a wait while there are rows, polls less often without rows, and backs off after an error. */
async function worker(deps: RelayDeps, signal: AbortSignal, turn: () => Promise<Turn>): Promise<void> {
  let idle = idleMs.first
  let failures = 0
  await repeat(
    0,
    async () => {
      try {
        const { removed, unrested } = await turn()
        if (failures > 0) deps.log.info({}, 'relay.recovered')
        failures = 0
        deps.onHealth(null)
        const isBusy = removed > 0 && unrested === 0
        idle = isBusy ? idleMs.first : Math.min(idle * 1.5, idleMs.most)
        return isBusy ? 0 : idle
      } catch (err) {
        failures++
        const message = messageOf(err)
        deps.onHealth(message)
        const waitMs = Math.max(
          err instanceof TargetAway ? (err.retryAfterMs ?? 0) : 0,
          Math.min(backoffMs.first * 2 ** (failures - 1), backoffMs.most) * (0.5 + Math.random() / 2)
        )
        deps.log.warn({ failures, waitMs: Math.round(waitMs), reason: message }, 'relay.waiting')
        return waitMs
      }
    },
    () => {},
    signal
  )
}
