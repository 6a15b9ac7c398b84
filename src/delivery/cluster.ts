import { readCluster, type SetLimits } from '../db/cluster.ts'
import type { Sql } from '../db/pool.ts'
import { lowWater } from './low-water.ts'

/** The state of the other processes and of the database, at most about a second old. */
export interface Cluster {
  isPaused(downstream: string): boolean
  /** Due deliveries had no room: new ones must wait behind them. */
  hasBacklog(downstream: string): boolean
  /** The last result of this process's own dispatcher. It is newer than the look once a second. */
  setBacklog(downstream: string, has: boolean): void
  /** A due delivery had no room just now. Without a dispatcher here, the next look shows when this ends. */
  addBacklog(downstream: string): void
  workers(): number
  /** PostgreSQL was away until just now: other processes may live, and have not said so again. */
  isRejoining(): boolean
  dispatchers(): number
  /** When another worker reached this downstream last, ms since 1970 by the database's clock. */
  reachedByOthersAt(downstream: string): number
  /** Downstreams that another worker doubts: it starts nothing there until it knows whether others reach them. */
  doubtedByOthers(): readonly string[]
  /** The database cannot be written: no new sends, accepts or receipts. */
  isDatabaseAway(): boolean
  setDatabaseAway(): void
  /** The database could not be reached at the last look: it cannot be read either. */
  isDatabaseUnreachable(): boolean
  setDatabaseUnreachable(): void
  /** The time of the last successful `refresh`, by `performance.now()`. */
  seenAt(): number
  /** A task may wait for another: after the end of a task, its dependents must be looked up. */
  hasDependents(): boolean
  /** A dependent was accepted in this process just now. */
  setDependents(): void
  /** The next delivery of some orderingKey may start, and no process has looked at the key yet. */
  hasPromotions(): boolean
  /** The database's time, as far as this process knows it without a query. */
  now(): Date
  refresh(): Promise<void>
}

/** A downstream whose oldest due delivery is younger than this has no backlog. */
const backlogMs = 2_500

export interface ClusterOptions {
  /** The id of this process. */
  node?: string
  /** Called at each look with the limits that operators have set. */
  onLimits?: (limits: ReadonlyMap<string, SetLimits>) => void
  /** Called at each look with the numbers of live workers and dispatchers. */
  onNodes?: (live: { workers: number; dispatchers: number }) => void
  /** Milliseconds of a monotonic clock. */
  monotonicMs?: () => number
}

/** After a longer outage the rows of processes that live are too old: they count as gone 15 s after their last writing. */
const outageMs = 8_000
/** In this time each process has written its row again: all write it every 5 s. */
const rejoinMs = 7_000

/** `onOldest` gets the age of the oldest due delivery of every downstream, claimed or not. 0: none. */
export function openCluster(
  sql: Sql,
  downstreams: readonly string[],
  onHeldKeys: (keys: number) => void,
  onOldest: (downstream: string, ageMs: number) => void,
  { node, onLimits, onNodes, monotonicMs = () => performance.now() }: ClusterOptions = {}
): Cluster {
  const marks = lowWater(downstreams)
  let reached: ReadonlyMap<string, number> = new Map()
  let doubted: readonly string[] = []
  let paused = new Set<string>()
  const backlogs = new Set<string>()
  const reported = new Set<string>()
  let workers = 0
  let dispatchers = 0
  let away = false
  let unreachable = false
  let seenAt = -Infinity
  /** When the newest look began whose result is used. */
  let newestAt = -Infinity
  let rejoiningUntil = -Infinity
  /** The database's time minus that of the monotonic clock, ms: a step of this machine's clock changes nothing. */
  let offsetMs = Date.now() - monotonicMs()
  let dependents = false
  let dependentsAt = -Infinity
  let promotions = false

  return {
    isPaused: name => paused.has(name),
    hasBacklog: name => backlogs.has(name),
    setBacklog(name, has) {
      reported.add(name)
      if (has) backlogs.add(name)
      else backlogs.delete(name)
    },
    addBacklog(name) {
      backlogs.add(name)
    },
    workers: () => workers,
    isRejoining: () => monotonicMs() < rejoiningUntil,
    dispatchers: () => dispatchers,
    reachedByOthersAt: name => reached.get(name) ?? 0,
    doubtedByOthers: () => doubted,
    isDatabaseAway: () => away,
    setDatabaseAway() {
      away = true
    },
    isDatabaseUnreachable: () => unreachable,
    setDatabaseUnreachable() {
      away = true
      unreachable = true
    },
    seenAt: () => seenAt,
    hasDependents: () => dependents,
    setDependents() {
      dependents = true
      dependentsAt = monotonicMs()
    },
    hasPromotions: () => promotions,
    now: () => new Date(offsetMs + monotonicMs()),
    async refresh() {
      const beganAt = monotonicMs()
      const seen = await marks.look(from => readCluster(sql, downstreams, node, from))
      // A later look has ended before this one, for example that of a pause.
      if (beganAt < newestAt) return
      newestAt = beganAt
      // A read-only database accepts no task and no receipt.
      away = seen.readOnly
      unreachable = false
      const isAfterOutage = seenAt > -Infinity && monotonicMs() - seenAt > outageMs
      seenAt = monotonicMs()
      if (isAfterOutage) rejoiningUntil = seenAt + rejoinMs
      offsetMs = seen.now.getTime() - seenAt
      paused = seen.paused
      // Each worker would take the whole of every limit if it counted only those that have rejoined.
      workers = seenAt < rejoiningUntil ? Math.max(workers, seen.workers) : seen.workers
      dispatchers = seen.dispatchers
      reached = seen.reachedByOthers
      doubted = seen.doubtedByOthers
      onLimits?.(seen.limits)
      onNodes?.(seen)
      // The look may have missed a task that was accepted meanwhile.
      dependents = seen.dependents || dependentsAt > beganAt
      promotions = seen.promotions
      onHeldKeys(seen.heldKeys)
      for (const name of downstreams) {
        const dueAt = seen.oldest.get(name)
        onOldest(name, dueAt === undefined ? 0 : Math.max(0, seen.now.getTime() - dueAt))
        // The result of this process's own dispatcher is newer.
        if (reported.has(name)) continue
        if ((seen.oldestDueMs.get(name) ?? 0) > backlogMs && !paused.has(name)) backlogs.add(name)
        else backlogs.delete(name)
      }
    }
  }
}
