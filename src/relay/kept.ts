// The rows that Ackbox answers 500 or 503 for. Each rests before it is posted again.
import type { RelayRow, Share } from './source.ts'

/** A row of these. */
interface Kept {
  share: Share
  taskNo: string
  orderingKey: string | null
  tries: number
  restsUntil: number
}

export interface KeptRows {
  /** What the next read of a share leaves out: ids of rows without a key, or keys, since a row behind one that rests must wait for it. */
  resting(share: Share): string[]
  /** Lets the row rest. Returns the number of its tries; undefined if too many rows rest. */
  add(share: Share, row: RelayRow): number | undefined
  remove(row: RelayRow): void
}

const rest = { firstMs: 1_000, mostMs: 10_000 }
/** For one pass over all rows. */
export const noRest: typeof rest = { firstMs: 0, mostMs: 0 }

/** More are not remembered, so they do not rest. */
const mostRows = 1_000
/** A row that has not been posted for this time after its rest has probably left the outbox. */
const goneMs = 60_000

export function keptRows({ firstMs, mostMs } = rest, now = () => performance.now()): KeptRows {
  /** By id; the one that was posted last is the last. */
  const rows = new Map<string, Kept>()
  return {
    resting(share) {
      const found = new Set<string>()
      for (const [id, row] of rows)
        if (row.share === share && row.restsUntil > now()) found.add(row.orderingKey ?? id)
      return [...found]
    },
    add(share, { id, taskNo, orderingKey }) {
      const known = rows.get(id)
      rows.delete(id)
      const [oldest] = rows
      if (oldest && oldest[1].restsUntil + goneMs < now()) rows.delete(oldest[0])
      if (rows.size >= mostRows) return undefined
      // An outbox that was truncated or restored gives ids again.
      const tries = known?.taskNo === taskNo ? known.tries + 1 : 1
      const restsUntil = now() + Math.min(firstMs * 2 ** Math.min(tries - 1, 10), mostMs)
      rows.set(id, { share, taskNo, orderingKey, tries, restsUntil })
      return tries
    },
    remove({ id }) {
      rows.delete(id)
    }
  }
}
