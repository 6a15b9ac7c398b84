// Posts each row until it gets a final answer. The rows stay in their table. The taskNo makes a repeated post harmless.
import { postRows, TargetAway, TargetRefuses, type PostTarget } from './post.ts'
import type { RelayRow } from './source.ts'
import { sleep } from '../runtime/repeat.ts'

/** The number of rows so far, by result. */
export interface Imported {
  created: number
  /** Ackbox already had the same task. */
  known: number
  rejected: number
}

interface ImportDeps {
  target: PostTarget
  /** Called for each row that is permanently refused, or that Ackbox cannot store for `patienceMs`, with its problem (JSON). */
  reject(row: RelayRow, problem: string): void
  onBatch(sum: Imported): void
  /** Called when a batch has to wait, with the reason. */
  onAway(reason: string): void
  /** The import ends after this time without any final answer. */
  patienceMs: number
}

const backoffMs = { first: 200, most: 5_000 }

/** Posts one batch at a time, in order, until the signal aborts. Throws TargetAway if Ackbox accepts nothing for too long. */
export async function importRows(
  deps: ImportDeps,
  batches: AsyncIterable<RelayRow[]>,
  signal: AbortSignal
): Promise<Imported> {
  const sum: Imported = { created: 0, known: 0, rejected: 0 }
  for await (const rows of batches) {
    if (signal.aborted) break
    await importBatch(deps, rows, sum, signal)
    deps.onBatch(sum)
  }
  return sum
}

async function importBatch(
  deps: ImportDeps,
  rows: RelayRow[],
  sum: Imported,
  signal: AbortSignal
): Promise<void> {
  let silentSince = performance.now()
  let failures = 0
  let rest: Unanswered[] = rows.map(row => ({ row }))
  while (rest.length > 0) {
    const posted = await posting(deps, rest, sum)
    if (posted.rest.length < rest.length) silentSince = performance.now()
    rest = posted.rest
    if (posted.away === undefined) return
    const leftMs = deps.patienceMs - (performance.now() - silentSince)
    if (leftMs < 0) {
      // If the tasks of a whole batch get no other answer, Ackbox is at fault.
      const isWhole = rows.length > 1 && rest.length === rows.length
      const failing = rest.filter(one => one.problem !== undefined)
      if (failing.length === 0 || isWhole) throw posted.away
      for (const { row, problem = '' } of failing) reject(deps, sum, row, problem)
      // Those behind them in their keys.
      rest = rest.filter(one => one.problem === undefined)
      silentSince = performance.now()
      continue
    }
    deps.onAway(posted.away.message)
    const waitMs = Math.max(
      posted.away.retryAfterMs ?? 0,
      Math.min(backoffMs.first * 2 ** failures++, backoffMs.most)
    )
    // One more try at the end of the patience: Ackbox may have asked for an hour.
    await sleep(Math.min(waitMs, Math.ceil(leftMs)), signal)
    if (signal.aborted) return
  }
}

/** A row without a final answer. The problem: why Ackbox cannot store this task alone. */
interface Unanswered {
  row: RelayRow
  problem?: string | undefined
}

function reject(deps: ImportDeps, sum: Imported, row: RelayRow, problem: string): void {
  sum.rejected++
  deps.reject(row, problem)
}

/** Posts the rows once. Returns the rows without a final answer, and the reason. */
async function posting(
  deps: ImportDeps,
  rows: readonly Unanswered[],
  sum: Imported
): Promise<{ rest: Unanswered[]; away: TargetAway | undefined }> {
  try {
    const verdicts = await postRows(
      deps.target,
      rows.map(one => one.row)
    )
    const rest: Unanswered[] = []
    rows.forEach(({ row }, index) => {
      const verdict = verdicts[index]
      if (verdict?.kind === 'accepted') sum[verdict.isNew ? 'created' : 'known']++
      else if (verdict?.kind === 'rejected') reject(deps, sum, row, verdict.problem)
      else rest.push({ row, problem: verdict?.problem })
    })
    return {
      rest,
      away: rest.length > 0 ? new TargetAway(`${rest.length} tasks got no final answer`) : undefined
    }
  } catch (err) {
    if (!(err instanceof TargetAway) || err instanceof TargetRefuses) throw err
    return { rest: [...rows], away: err }
  }
}
