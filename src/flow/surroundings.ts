import { look } from '../db/nodes.ts'
import type { Sql } from '../db/open.ts'

/** What this process knows of the others and of the database, at most about a second old. */
export interface Surroundings {
  isPaused(downstream: string): boolean
  /** Due deliveries had to be left behind: new ones must queue up behind them. */
  isBehind(downstream: string): boolean
  /** What the dispatcher of this process saw last; nearer than a look once a second. */
  setBehind(downstream: string, behind: boolean): void
  /** Something due had to be left behind just now. Without a dispatcher here the next looks tell when that is over. */
  leaveBehind(downstream: string): void
  workers(): number
  dispatchers(): number
  /** The database cannot be written: no new sends, accepts or receipts. */
  isAway(): boolean
  setAway(): void
  /** When the database last told us how things are, by `performance.now()`. */
  seenAt(): number
  /** The database's time, as well as this process can tell it without asking. */
  now(): Date
  refresh(): Promise<void>
}

/** A queue that is served within this time is not behind. */
const behindMs = 2_500

/** `onOldest` hears of every downstream: the age of its oldest due and unclaimed delivery, 0 for none. */
export function surroundings(
  sql: Sql,
  downstreams: readonly string[],
  onOldest: (downstream: string, ageMs: number) => void
): Surroundings {
  let paused = new Set<string>()
  const behind = new Set<string>()
  const told = new Set<string>()
  let workers = 0
  let dispatchers = 0
  let away = false
  let seenAt = -Infinity
  let aheadMs = 0

  return {
    isPaused: name => paused.has(name),
    isBehind: name => behind.has(name),
    setBehind(name, is) {
      told.add(name)
      if (is) behind.add(name)
      else behind.delete(name)
    },
    leaveBehind(name) {
      behind.add(name)
    },
    workers: () => workers,
    dispatchers: () => dispatchers,
    isAway: () => away,
    setAway() {
      away = true
    },
    seenAt: () => seenAt,
    now: () => new Date(Date.now() + aheadMs),
    async refresh() {
      const seen = await look(sql, downstreams)
      // What can only be read takes no task and no receipt.
      away = seen.readOnly
      seenAt = performance.now()
      aheadMs = seen.now.getTime() - Date.now()
      paused = seen.paused
      workers = seen.workers
      dispatchers = seen.dispatchers
      for (const name of downstreams) {
        const ageMs = seen.oldestDueMs.get(name) ?? 0
        onOldest(name, ageMs)
        // Where a dispatcher of our own tells, its word is newer.
        if (told.has(name)) continue
        if (ageMs > behindMs && !paused.has(name)) behind.add(name)
        else behind.delete(name)
      }
    }
  }
}
