import { loadHinted, type Loaded } from '../db/load.ts'
import type { Sql } from '../db/open.ts'
import type { Pace } from './pace.ts'
import type { Room } from './room.ts'

/** A delivery as this process has just committed it, claimed: what a worker's SELECT would find. */
export interface FreshOne {
  delivery: Loaded
  /** From when its lease counts: before the statement that began it, by our monotonic clock. */
  askedAt: number
}

/**
 * Deliveries that this very process accepted and claimed a moment ago, so that its own worker need not read them back.
 * Only a short cut: what is not here is read, and every record is guarded all the same.
 */
export interface Fresh {
  keep(one: FreshOne): void
  /** Gives it once, and only for a moment: whoever else stops it tells PostgreSQL, not us. */
  take(taskId: string, downstream: string, attempt: number): FreshOne | undefined
  /** It was stopped before it was sent. */
  forget(taskId: string, downstream: string): void
}

/** Hints that get lost leave theirs behind: the oldest go first. Characters of bodies, and deliveries. */
const mostText = 16_777_216
const most = 10_000
/** What has waited longer in the queue is read. At full load nearly all start within 0.2 s. */
const mostAgeMs = 1_000

/** `now` is for tests: ms of a monotonic clock. */
export function fresh(now = (): number => performance.now()): Fresh {
  // Each in a box that is emptied when it goes, so that what has ended leaves the memory at once (docs/decisions.md).
  const kept = new Map<string, { one: FreshOne | undefined }>()
  let text = 0
  const remove = (key: string): FreshOne | undefined => {
    const box = kept.get(key)
    const one = box?.one
    if (!box || !one) return undefined
    box.one = undefined
    kept.delete(key)
    text -= one.delivery.task.messageBody.length
    return one
  }
  return {
    keep(one) {
      const { task, downstream } = one.delivery
      kept.set(task.id + downstream, { one })
      text += task.messageBody.length
      while (kept.size > most || text > mostText) {
        const [oldest] = kept.keys()
        if (oldest === undefined) break
        remove(oldest)
      }
    },
    take(taskId, downstream, attempt) {
      const one = remove(taskId + downstream)
      const isOurs = one?.delivery.attempt === attempt && now() - one.askedAt <= mostAgeMs
      return isOurs ? one : undefined
    },
    forget(taskId, downstream) {
      remove(taskId + downstream)
    }
  }
}

/** Ids and attempt numbers, nothing else. */
export interface Hint {
  downstream: string
  deliveries: readonly (readonly [taskId: string, attempt: number])[]
}

/**
 * What of a hint is still ours: remembered where this process has just accepted it, read where not. That was a backlog: it waits
 * for its place `ahead`, which the caller gives back.
 */
export async function load(
  sql: Sql,
  fresh: Fresh | undefined,
  pace: Pick<Pace, 'ask'>,
  ahead: Room | undefined,
  { downstream, deliveries }: Hint
): Promise<{ ones: FreshOne[]; isBacklog: boolean }> {
  const known: FreshOne[] = []
  const unknown: Hint['deliveries'][number][] = []
  for (const one of deliveries) {
    const found = fresh?.take(one[0], downstream, one[1])
    if (found) known.push(found)
    else unknown.push(one)
  }
  if (unknown.length === 0) return { ones: known, isBacklog: false }
  for (let full = ahead?.full(); full; full = ahead?.full()) await full
  ahead?.enter()
  // From before the SELECT, or the time it took would be missing from every lease.
  const askedAt = performance.now()
  try {
    const read = await pace.ask(() => loadHinted(sql, downstream, unknown))
    return { ones: [...known, ...read.map(delivery => ({ delivery, askedAt }))], isBacklog: true }
  } catch (err) {
    // PostgreSQL is away: then the leases run out and are found by the dispatcher.
    ahead?.leave()
    throw err
  }
}
