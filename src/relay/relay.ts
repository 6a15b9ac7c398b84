// Moves rows from a producer's `ackbox_outbox` into Ackbox: post, then remove, in one transaction of the producer's database.
import { failpoint } from '../runtime/failpoint.ts'
import { repeat } from '../runtime/repeat.ts'
import type { Logger } from '../runtime/logger.ts'
import { postRows, TargetAway, type Target } from './post.ts'
import type { RelayRow, Share, Source, RowVerdict } from './source.ts'

export interface RelayDeps {
  source: Source
  target: Target
  log: Logger
  /** The most rows in one batch. */
  batch: number
  /** The number of batches of rows without a key that run at the same time. */
  concurrency: number
  onBatch: (done: { accepted: number; rejected: number; kept: number; ms: number }) => void
  /** Called when the database or Ackbox is unreachable, and with null when both are reachable again. */
  onHealth: (fault: string | null) => void
}

/** The wait before an empty outbox is read again. It grows while the outbox stays empty. After rows there is no wait. */
const idleMs = { first: 100, most: 1_000 }
const backoffMs = { first: 200, most: 30_000 }

/** Relays until the signal aborts. Returns when the running batches have ended. */
export async function relay(deps: RelayDeps, signal: AbortSignal): Promise<void> {
  /** By worker. One that works must not hide that another one is stuck. */
  const faults = new Map<number, string>()
  const healthOf = (index: number) => (fault: string | null) => {
    if (fault === null) faults.delete(index)
    else faults.set(index, fault)
    const [first = null] = faults.values()
    deps.onHealth(first)
  }
  const workers = Array.from({ length: deps.concurrency }, (_, index) =>
    worker({ ...deps, onHealth: healthOf(index) }, signal, () => postShare(deps, 'unkeyed'))
  )
  const keyed = worker({ ...deps, onHealth: healthOf(deps.concurrency) }, signal, async () =>
    sumOfAll((await deps.source.shards()).map(shard => postShare(deps, shard)))
  )
  await Promise.all([...workers, keyed])
}

/** Relays all rows that exist now. Throws the first error. Returns the number of rows that left the outbox. */
export async function relayOnce(deps: RelayDeps, signal: AbortSignal): Promise<number> {
  let removed = 0
  for (;;) {
    const shards = await deps.source.shards()
    const shares: Share[] = ['unkeyed', ...shards]
    const now = await sumOfAll(shares.map(async share => (signal.aborted ? 0 : await postShare(deps, share))))
    removed += now
    if (now === 0 || signal.aborted) return removed
  }
}

/** Throws the first error when all have ended: the caller closes the database after it. */
async function sumOfAll(counts: Promise<number>[]): Promise<number> {
  const settled = await Promise.allSettled(counts)
  return settled.reduce((sum, result) => {
    if (result.status === 'rejected') throw result.reason
    return sum + result.value
  }, 0)
}

/**
 * Posts the rows of a share once. Returns the number of removed rows. Throws if no row got an answer. A row that stays because of its task is
 * no reason to wait for Ackbox: others may come.
 */
async function postShare(deps: RelayDeps, share: Share): Promise<number> {
  let failed = 0
  const { seen, removed } = await deps.source.postShare(share, deps.batch, async rows => {
    const verdicts = await post(deps, rows)
    failed = verdicts.filter(one => one.kind === 'kept' && one.problem !== undefined).length
    return verdicts
  })
  if (removed === 0 && failed < seen) throw new TargetAway(`${seen} tasks got no final answer`)
  return removed
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
    if (verdict.kind === 'kept' && verdict.problem !== undefined)
      deps.log.warn({ taskNo: rows[index]?.taskNo, problem: verdict.problem.slice(0, 500) }, 'relay.kept')
  })
  deps.log.debug({ rows: rows.length, ...done }, 'relay.batch')
  deps.onBatch({ ...done, ms: performance.now() - from })
  return verdicts
}

/** One loop. It runs turns without a wait while there are rows, polls less often without rows, and backs off after an error. */
async function worker(deps: RelayDeps, signal: AbortSignal, turn: () => Promise<number>): Promise<void> {
  let idle = idleMs.first
  let failures = 0
  await repeat(
    0,
    async () => {
      try {
        const removed = await turn()
        if (failures > 0) deps.log.info({}, 'relay.recovered')
        failures = 0
        deps.onHealth(null)
        idle = removed > 0 ? idleMs.first : Math.min(idle * 1.5, idleMs.most)
        return removed > 0 ? 0 : idle
      } catch (err) {
        failures++
        const { message } = err as Error
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
