import { readCluster } from '../db/cluster.ts'
import { type Sql, isInfrastructure } from '../db/pool.ts'
import { Unavailable } from '../runtime/errors.ts'
import { withTimeout } from '../runtime/with-timeout.ts'

/** What this process knows of the others and of the database, at most about a second old. */
export interface Cluster {
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
  isDatabaseAway(): boolean
  setDatabaseAway(): void
  /** When the database last told us how things are, by `performance.now()`. */
  seenAt(): number
  /** The database's time, as well as this process can tell it without asking. */
  now(): Date
  refresh(): Promise<void>
}

/** A queue that is served within this time is not behind. */
const behindMs = 2_500

/** `onOldest` hears of every downstream: the age of its oldest due and unclaimed delivery, 0 for none. */
export function openCluster(
  sql: Sql,
  downstreams: readonly string[],
  onOldest: (downstream: string, ageMs: number) => void
): Cluster {
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
    isDatabaseAway: () => away,
    setDatabaseAway() {
      away = true
    },
    seenAt: () => seenAt,
    now: () => new Date(Date.now() + aheadMs),
    async refresh() {
      const seen = await readCluster(sql, downstreams)
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

/** The longest that a caller waits for the database before it gets a 503. Its statement may still be written. */
const unavailableAfterMs = 2_000

/** The answer of PostgreSQL, or Unavailable: at once when it is away, after 2 s when it does not answer. */
export async function orUnavailable<T>(
  cluster: Pick<Cluster, 'setDatabaseAway'>,
  statement: Promise<T>
): Promise<T> {
  try {
    return await withTimeout(statement, unavailableAfterMs, () => {
      cluster.setDatabaseAway()
      throw new Unavailable('the database takes too long')
    })
  } catch (err) {
    if (!isInfrastructure(err)) throw err
    cluster.setDatabaseAway()
    throw new Unavailable('the database cannot be reached', 1, { cause: err })
  }
}
