import { batcher, type Batcher } from '../db/batch.ts'
import { applyMoves, type Applied, type Asked } from '../db/moves.ts'
import type { Sql } from '../db/open.ts'
import type { Metrics } from '../metrics.ts'

export interface Record {
  (asked: Asked): Promise<Applied>
  /** Resolves when nothing waits to be written. */
  idle(): Promise<void>
}

/**
 * Group commit of moves, attempts and receipts. An answer in hand exists nowhere else, so while PostgreSQL is away it is
 * written again and again until it is back, or `giveUp` aborts; whether it still counts is for the guard to say.
 */
export function recorder({
  sql,
  metrics,
  giveUp
}: {
  sql: Sql
  metrics: Pick<Metrics, 'moved' | 'ended'>
  giveUp: AbortSignal
}): Record {
  const batch: Batcher<Asked, Applied> = batcher({
    max: 200,
    retryUntilWritten: giveUp,
    write: items => writeFolded(sql, items)
  })
  const record = async (asked: Asked): Promise<Applied> => {
    const applied = await batch.add(asked)
    if (asked.move) count(metrics, asked.move, applied)
    return applied
  }
  return Object.assign(record, { idle: () => batch.idle() })
}

function count(
  metrics: Pick<Metrics, 'moved' | 'ended'>,
  move: NonNullable<Asked['move']>,
  applied: Applied
): void {
  const written = applied === 'moved' || applied === 'late'
  metrics.moved(move.name, written)
  if (!written) return
  if (move.name === 'handled' || move.name === 'receive')
    metrics.ended(move.downstream, 'HANDLED', move.attempt)
  if (move.name === 'fail') metrics.ended(move.downstream, 'FAILED', move.attempt, move.reason)
  if (move.name === 'delete' || move.name === 'skip')
    metrics.ended(move.downstream, 'DELETED', move.attempt, move.reason)
}

/** A statement sees each delivery once: of 50 equal receipts in one batch the first goes first, the others after it. */
async function writeFolded(sql: Sql, items: Asked[]): Promise<Applied[]> {
  const applied = new Array<Applied>(items.length)
  let rest = items.map((_, index) => index)
  while (rest.length > 0) {
    const seen = new Set<string>()
    const now: number[] = []
    const later: number[] = []
    for (const index of rest) {
      const asked = items[index] as Asked
      const key = asked.move && `${asked.move.taskId}${asked.move.downstream}`
      if (key !== null && seen.has(key)) later.push(index)
      else now.push(index)
      if (key !== null) seen.add(key)
    }
    const done = await applyMoves(
      sql,
      now.map(index => items[index] as Asked)
    )
    now.forEach((index, at) => {
      applied[index] = done[at] as Applied
    })
    rest = later
  }
  return applied
}
