/** Jobs waiting, and deliveries so far, at one moment. */
interface Look {
  at: number
  jobs: number
  added: number
  addedJobs: number
  taken: number
  started: number
  /** Added to the queue itself. */
  queued: number
  /** Gone from the queue in time to start, as the counts tell. */
  left: number
}

export interface Limits {
  concurrency: number
  perSecond?: number | undefined
  leaseMs: number
}

/**
 * As many as a group commit accepts at most. A worker takes one hint in a turn of its event loop: smaller ones came in faster
 * than they were taken, and what waited for a second filled the memory (docs/notes/performance-log.md).
 */
const largestJob = 200
const largestWindow = 10_000
/** A pace that nothing has contradicted since is believed so long. */
const rememberMs = 60_000

/** How many deliveries one hint may hold. */
export function jobSize({ concurrency, perSecond }: Limits): number {
  return Math.max(1, Math.floor(Math.min(concurrency, (perSecond ?? Infinity) / 4, largestJob)))
}

/**
 * How many deliveries of one downstream may wait in BullMQ, so that they start well within their lease; the rest
 * waits in PostgreSQL. Pure arithmetic: others tell it what was added, started and counted.
 */
export function prefetchWindow(limits: Limits, now: () => number) {
  const quarterLease = limits.leaseMs / 4000
  // A rate limit below what the concurrency suggests is what empties the queue.
  const smallest = Math.max(
    1,
    Math.min(2 * limits.concurrency, (limits.perSecond ?? Infinity) * quarterLease)
  )
  let added = 0
  let addedJobs = 0
  let taken = 0
  let started = 0
  let queued = 0
  let last: Look = { at: now(), jobs: 0, added: 0, addedJobs: 0, taken: 0, started: 0, queued: 0, left: 0 }
  let looks: Look[] = [last]
  /** What waits in the queue by our own adding, the oldest first. */
  const ages = queueOfAges(limits.leaseMs / 32, now)
  /** Deliveries in a hint, lately. Until we made some, others' hints count as full: the window errs to the small. */
  let mean = jobSize(limits)
  let meanKnown = false

  const perSecond = () => {
    const t = now()
    const first = looks[0] ?? last
    const seconds = Math.max(1, (t - first.at) / 1000)
    // Where no worker runs nobody tells of starts: what was added and did not stay must have been started.
    return Math.max(started - first.started, last.left - first.left) / seconds
  }

  /** Of a queue that runs dry the pace is that of whoever fills it: what its workers can do was seen before. */
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
    /** They wait here no longer; whether they start is told apart, for one whose lease is over does not. */
    taken(deliveries: number) {
      taken += deliveries
    },
    started() {
      started++
    },
    /** They never wait here. */
    spared(deliveries: number) {
      added += deliveries
      taken += deliveries
    },
    /** To be taken before the count is asked for: what is added while the question is under way counts twice, not never. */
    look: () => ({ at: now(), added, addedJobs, taken, started, queued }),
    counted(look: Omit<Look, 'jobs' | 'left'>, jobs: number) {
      // Where the oldest have waited too long to start, a queue that empties says nothing: taken for a pace, it
      // would bring in thousands that cannot start either, and so again with every lease.
      const isLate = ages.oldestMs() > limits.leaseMs / 2
      const left = isLate ? 0 : look.added - last.added - (jobs - last.jobs) * mean
      last = { ...look, jobs, left: last.left + left }
      ages.left(look.queued - jobs * mean)
      looks.push(last)
      // Keep one look that is at least a second old: it is where the last second began.
      while (looks.length > 2 && last.at - (looks[1]?.at ?? last.at) >= 1000) looks.shift()
      if (looks.length > 64) looks = looks.slice(-32)
      remember()
    },
    /** Nothing was added since the last count, and that was 0. */
    quiet: () => last.jobs === 0 && addedJobs === last.addedJobs,
    countedAt: () => last.at,
    waiting,
    perSecond,
    size: () =>
      Math.min(largestWindow, Math.max(smallest, Math.max(known.perSecond, perSecond()) * quarterLease))
  }
}

/** How long the oldest of a queue has waited, to `grainMs`, told how many were added and how many have left so far. */
function queueOfAges(grainMs: number, now: () => number) {
  const grains: { from: number; upTo: number }[] = []
  return {
    added(upTo: number) {
      const grain = grains.at(-1)
      if (grain && now() - grain.from < grainMs) grain.upTo = upTo
      else grains.push({ from: now(), upTo })
      // Others' hints count as ours that have not left: what is this old is old enough.
      if (grains.length > 64) grains.shift()
    },
    left(upTo: number) {
      while (grains[0] && grains[0].upTo <= upTo) grains.shift()
    },
    oldestMs: () => (grains[0] ? now() - grains[0].from : 0)
  }
}
