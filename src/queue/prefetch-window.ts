/** The waiting jobs at one moment, and the totals of deliveries so far. */
interface Look {
  at: number
  jobs: number
  added: number
  addedJobs: number
  taken: number
  started: number
  /** Added to the queue, without bypassed deliveries. */
  queued: number
  /** Left the queue in time to start, according to the counts. */
  left: number
}

export interface Limits {
  concurrency: number
  perSecond?: number | undefined
  leaseMs: number
}

/**
 * The most tasks that a group commit accepts. A worker takes one job per turn of its event loop. Smaller jobs arrived faster than they
 * were taken, and waited in memory for a second (docs/notes/performance-log.md).
 */
const largestJob = 200
const largestWindow = 10_000
/** A pace is trusted this long if nothing has contradicted it. */
const rememberMs = 60_000

/** The most deliveries in one job. */
export function jobSize({ concurrency, perSecond }: Limits): number {
  return Math.max(1, Math.floor(Math.min(concurrency, (perSecond ?? Infinity) / 4, largestJob)))
}

/**
 * The number of deliveries of one downstream that may wait in BullMQ and still start well within their lease. The rest
 * waits in PostgreSQL. Pure arithmetic: callers report all additions, starts and counts.
 */
export function prefetchWindow(limits: Limits, now: () => number) {
  const quarterLease = limits.leaseMs / 4000
  // A rate limit below the concurrency determines how fast the queue empties.
  const smallest = () =>
    Math.max(1, Math.min(2 * limits.concurrency, (limits.perSecond ?? Infinity) * quarterLease))
  let added = 0
  let addedJobs = 0
  let taken = 0
  let started = 0
  let queued = 0
  let last: Look = { at: now(), jobs: 0, added: 0, addedJobs: 0, taken: 0, started: 0, queued: 0, left: 0 }
  let looks: Look[] = [last]
  /** Deliveries that this process added and that still wait, the oldest first. */
  const ages = queueOfAges(limits.leaseMs / 32, now)
  /** Recent size of a job. Before the first own job, jobs of other processes count as full: the window tends to be too small. */
  let mean = jobSize(limits)
  let meanKnown = false

  const perSecond = () => {
    const t = now()
    const first = looks[0] ?? last
    const seconds = Math.max(1, (t - first.at) / 1000)
    // Without a worker in this process no start is reported: deliveries that have left the queue count as started.
    return Math.max(started - first.started, last.left - first.left) / seconds
  }

  /** The pace of an empty queue is the pace of its producers. The possible pace of the workers shows in an earlier one. */
  let known = { perSecond: 0, at: -Infinity }
  let waitsSince: number | undefined
  function remember() {
    waitsSince = last.jobs > 0 ? (waitsSince ?? last.at) : undefined
    const seen = perSecond()
    const isSlow = waitsSince !== undefined && last.at - waitsSince >= 1000
    if (isSlow || seen >= known.perSecond || last.at - known.at > rememberMs)
      known = { perSecond: seen, at: last.at }
  }

  const waiting = () => Math.max(0, last.jobs * mean + (added - last.added) - (taken - last.taken))

  return {
    added(deliveries: number, jobs: number) {
      added += deliveries
      addedJobs += jobs
      queued += deliveries
      ages.added(queued)
      const weight = meanKnown ? 1 - 0.9 ** jobs : 1
      mean += (deliveries / jobs - mean) * weight
      meanKnown = true
    },
    /** They have left the queue. Whether they start is reported separately: a delivery with an ended lease does not. */
    taken(deliveries: number) {
      taken += deliveries
    },
    started() {
      started++
    },
    /** They never enter the queue. */
    bypassed(deliveries: number) {
      added += deliveries
      taken += deliveries
    },
    /** Read before the count is requested: additions during the request may then count twice, but are never missed. */
    look: () => ({ at: now(), added, addedJobs, taken, started, queued }),
    counted(look: Omit<Look, 'jobs' | 'left'>, jobs: number) {
      // If the oldest jobs have waited too long to start, an emptying queue shows no pace. Else the window would admit
      // thousands of deliveries that cannot start either, again with every lease.
      const isLate = ages.oldestMs() > limits.leaseMs / 2
      const left = isLate ? 0 : look.added - last.added - (jobs - last.jobs) * mean
      last = { ...look, jobs, left: last.left + left }
      ages.left(look.queued - jobs * mean)
      looks.push(last)
      // Keep one count that is at least a second old, as the start of the last second.
      while (looks.length > 2 && last.at - (looks[1]?.at ?? last.at) >= 1000) looks.shift()
      if (looks.length > 64) looks = looks.slice(-32)
      remember()
    },
    /** Nothing was added since the last count, which was 0. */
    quiet: () => last.jobs === 0 && addedJobs === last.addedJobs,
    countedAt: () => last.at,
    waiting,
    perSecond,
    size: () =>
      Math.min(largestWindow, Math.max(smallest(), Math.max(known.perSecond, perSecond()) * quarterLease))
  }
}

/** The age of the oldest delivery of a queue, accurate to `grainMs`, from the numbers of added and removed deliveries. */
function queueOfAges(grainMs: number, now: () => number) {
  const grains: { from: number; upTo: number }[] = []
  return {
    added(upTo: number) {
      const grain = grains.at(-1)
      if (grain && now() - grain.from < grainMs) grain.upTo = upTo
      else grains.push({ from: now(), upTo })
      // Jobs of other processes count like our own. 64 grains span two leases: the oldest that stays is old enough.
      if (grains.length > 64) grains.shift()
    },
    left(upTo: number) {
      while (grains[0] && grains[0].upTo <= upTo) grains.shift()
    },
    oldestMs: () => (grains[0] ? now() - grains[0].from : 0)
  }
}
