import type { YieldedDownstream } from '../db/cluster-tables.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Metrics } from '../runtime/metrics.ts'
import { sleep } from '../runtime/repeat.ts'
import type { Outcome } from '../domain/types.ts'
import type { Cluster } from './cluster.ts'

/** How the worker of this process reaches its downstreams. */
export interface Reach {
  /**
   * Reports the outcome of an attempt that began at `beganAt` (performance.now). True: it failed on the way to a downstream that is,
   * or may be, left to other workers. Nothing was sent, and the delivery is released uncounted.
   */
  recordAttempt(downstream: string, outcome: Outcome, beganAt: number): boolean
  /** No attempt starts at this downstream now. */
  isSuspended(downstream: string): boolean
  /** Resolves when an attempt may start there, or when the signal aborts. */
  resumed(downstream: string, signal: AbortSignal): Promise<void>
  /** The time when this process last reached each downstream, ms by the database's clock. */
  reached(): Record<string, number>
  /** Downstreams that it yields to others, or doubts: it starts nothing there until it knows whether others reach them. */
  yielded(): YieldedDownstream[]
  /** Another process doubts a downstream, and this process has reached it since the last call of `reached`. */
  hasNews(): boolean
}

export interface ReachDeps {
  /** The number of consecutive failures before a doubt. 0: never. */
  yieldAfter: number
  cluster: Pick<Cluster, 'reachedByOthersAt' | 'doubtedByOthers' | 'workers' | 'now'>
  /** Called when a doubt, or its end, must be published at once. */
  tell: () => void
  metrics: Pick<Metrics, 'yielded'>
  log: Logger
  /** ms of a monotonic clock. */
  now?: () => number
}

const yieldMs = 60_000
/** Other processes report within this time: each looks once a second, and answers a doubt at once. */
const doubtMs = 5_000
/** A downstream that no worker reaches is not doubted again before this time. */
const certainMs = 30_000
const pollMs = 250
const readableMs = 100

/** No route, no name, no TLS, a closed port: another worker may still reach the downstream. */
const onTheWay = /^(?:unreachable|connect_timeout|connection_refused|dns: |tls: )/

interface Way {
  /** Failures on the way since it was reached last. */
  failures: number
  reachedAt: number
  reason: string
  state: 'normal' | 'doubted' | 'trial' | 'yielded'
  /** The start of the state; and the same by the database's clock. */
  since: number
  sinceByDatabase: number
  /** The end of the doubt or of the yield. */
  until: number
  certainUntil: number
}

/**
 * A worker whose own way to a downstream is broken would fail every attempt that it takes while others succeed. After
 * `yieldAfter` consecutive failures it starts nothing there until it knows whether another worker has reached the downstream
 * since then. If one has, and the next attempt from here fails on the way again, it yields the downstream for a minute. If
 * none has, the downstream itself is away, and failures count as usual.
 */
export function reach(deps: ReachDeps): Reach {
  const { cluster } = deps
  const now = deps.now ?? (() => performance.now())
  const ways = new Map<string, Way>()
  let newsAt = -Infinity

  function wayOf(name: string): Way {
    const known = ways.get(name)
    if (known) return known
    const way: Way = {
      failures: 0,
      reachedAt: -Infinity,
      reason: '',
      state: 'normal',
      since: -Infinity,
      sinceByDatabase: 0,
      until: -Infinity,
      certainUntil: -Infinity
    }
    ways.set(name, way)
    return way
  }

  function enter(way: Way, state: Way['state'], forMs = 0): void {
    way.state = state
    way.since = now()
    way.sinceByDatabase = cluster.now().getTime()
    way.until = way.since + forMs
    if (state !== 'trial') deps.tell()
  }

  function isSuspended(name: string): boolean {
    const way = ways.get(name)
    if (!way || way.state === 'normal' || way.state === 'trial') return false
    // No other worker is alive: a bad way is better than none.
    if (cluster.workers() < 2) enter(way, 'normal')
    else if (way.state === 'doubted' && cluster.reachedByOthersAt(name) > way.sinceByDatabase)
      enter(way, 'trial')
    else if (now() < way.until) return true
    else if (way.state === 'yielded') enter(way, 'trial')
    else {
      way.certainUntil = now() + certainMs
      enter(way, 'normal')
    }
    return false
  }

  function yields(name: string, way: Way): void {
    enter(way, 'yielded', yieldMs)
    deps.metrics.yielded(name)
    deps.log.warn(
      { downstream: name, reason: way.reason, failures: way.failures, forMs: yieldMs },
      'worker.yielded'
    )
  }

  return {
    recordAttempt(name, outcome, beganAt) {
      if (deps.yieldAfter === 0) return false
      if (outcome.kind !== 'failed' || outcome.status !== undefined) {
        const way = wayOf(name)
        way.failures = 0
        way.reachedAt = now()
        if (way.state !== 'normal') enter(way, 'normal')
        return false
      }
      // Timeouts and errors of this process prove nothing about the way.
      if (!onTheWay.test(outcome.reason)) return false
      const way = wayOf(name)
      way.failures++
      way.reason = outcome.reason
      if (isSuspended(name)) return true
      if (way.state === 'trial') {
        // An attempt that began earlier proves nothing about the present way.
        if (beganAt >= way.since) yields(name, way)
        return true
      }
      if (way.failures < deps.yieldAfter || cluster.workers() < 2 || now() < way.certainUntil) return false
      enter(way, 'doubted', doubtMs)
      return true
    },
    isSuspended,
    async resumed(name, signal) {
      while (!signal.aborted && isSuspended(name)) await sleep(pollMs, signal)
    },
    reached() {
      newsAt = now()
      const ahead = cluster.now().getTime() - newsAt
      return Object.fromEntries(
        [...ways].flatMap(([name, { reachedAt }]) =>
          reachedAt === -Infinity ? [] : [[name, Math.floor(reachedAt + ahead)]]
        )
      )
    },
    yielded: () =>
      [...ways].flatMap(([downstream, way]) =>
        way.state === 'yielded' || way.state === 'doubted'
          ? {
              downstream,
              until: new Date(cluster.now().getTime() + way.until - now()).toISOString(),
              reason: way.reason,
              ...(way.state === 'doubted' ? { isDoubt: true } : {})
            }
          : []
      ),
    hasNews: () => cluster.doubtedByOthers().some(name => (ways.get(name)?.reachedAt ?? -Infinity) > newsAt)
  }
}

/**
 * Resolves when this process may take a job of the downstream from the queue, or when the signal aborts. A process that cannot read from
 * PostgreSQL would take jobs from those that can: it leaves them where they are.
 */
export async function untilItMayTake(
  deps: {
    reach: Pick<Reach, 'resumed'>
    cluster: Pick<Cluster, 'isDatabaseAway'>
    owner: { isSilent(): boolean }
  },
  downstream: string,
  signal: AbortSignal
): Promise<void> {
  await deps.reach.resumed(downstream, signal)
  while (!signal.aborted && (deps.owner.isSilent() || deps.cluster.isDatabaseAway()))
    await sleep(readableMs, signal)
}
