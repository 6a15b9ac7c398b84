import type { SlotLimiter } from '../delivery/execute.ts'
import { isError, textOf } from '../runtime/text-of.ts'

/** The limits of one downstream in this process. All numbers count deliveries. */
export interface Limiter extends SlotLimiter {
  /** How many more deliveries could start at once, or within 150 ms at the recent pace. */
  open(): number
  readonly inUse: number
  readonly waiting: number
}

interface LimiterOptions {
  /** Both are read at every start: an operator may change them. */
  concurrency: number
  perSecond?: number | undefined
  /** This process's share of the limits: 1 / number of running workers. Read at every start. */
  share: () => number
  /** Milliseconds of a monotonic clock. */
  now?: () => number
}

interface Waiter {
  resolve: () => void
  reject: (reason: Error) => void
  signal: AbortSignal
  gone: boolean
}

/** With a shorter time, deliveries that could start here a moment later are sent to other processes (docs/notes/performance-log.md). */
const soonMs = 150
/** A rate or a share that changes counts after this time at the latest. */
const mostWaitMs = 1_000
/** The pace is measured over this time. */
const paceMs = 100

/** A first-come semaphore with a token bucket, so that no delivery holds a slot while it waits for a token. */
export function limiter(options: LimiterOptions): Limiter {
  const now = options.now ?? (() => performance.now())
  let bucket: ReturnType<typeof tokens> | undefined
  let bucketOf: number | undefined
  const heard = new WeakSet<AbortSignal>()
  /** Deliveries with a slot that wait only for a token. They have begun, so they go first. */
  let begun: Waiter[] = []
  let queue: (Waiter | undefined)[] = []
  let head = 0
  let waiting = 0
  let inUse = 0
  let timer: NodeJS.Timeout | undefined
  let slotTimer: NodeJS.Timeout | undefined
  let pace = { since: now(), freed: 0, perMs: 0 }

  // At least 1 for each worker: a concurrency below the number of workers cannot be divided.
  const limit = () => Math.max(1, Math.floor(options.concurrency * options.share() + 1e-9))

  function rated() {
    const { perSecond } = options
    if (perSecond === bucketOf) return bucket
    bucketOf = perSecond
    bucket = perSecond === undefined ? undefined : tokens(perSecond, options.share, now)
    return bucket
  }
  rated()

  /** Whether the rate allows a request now. If not, `grant` runs when it may. */
  function hasToken(): boolean {
    const wait = rated()?.wait() ?? 0
    if (wait > 0)
      timer ??= setTimeout(
        () => {
          timer = undefined
          grant()
        },
        Math.min(Math.ceil(wait), mostWaitMs)
      )
    return wait === 0
  }

  function grant() {
    for (let next = begun[0]; next; next = begun[0]) {
      if (!hasToken()) return
      bucket?.spend()
      begun.shift()
      next.resolve()
    }
    while (waiting > 0 && inUse < limit()) {
      if (!hasToken()) return
      const next = shift()
      if (!next) return
      bucket?.spend()
      inUse++
      waiting--
      next.resolve()
    }
    if (waiting === 0) settleDown()
    // A limit that is raised frees no slot, and the sends that hold the slots may take minutes.
    else
      slotTimer ??= setTimeout(() => {
        slotTimer = undefined
        grant()
      }, mostWaitMs).unref()
  }

  function shift(): Waiter | undefined {
    for (;;) {
      const next = queue[head]
      queue[head++] = undefined
      if (head > 1024 && head * 2 > queue.length) {
        queue = queue.slice(head)
        head = 0
      }
      if (!next || !next.gone) return next
    }
  }

  function settleDown() {
    queue = []
    head = 0
    clearTimeout(timer)
    clearTimeout(slotTimer)
    timer = slotTimer = undefined
  }

  // One listener for each signal, not for each waiter: thousands of waiters share the signal of the shutdown.
  function listen(signal: AbortSignal) {
    if (heard.has(signal)) return
    heard.add(signal)
    const listener = () => {
      for (const waiter of begun) if (waiter.signal === signal) waiter.reject(asError(signal.reason))
      begun = begun.filter(waiter => waiter.signal !== signal)
      for (let i = head; i < queue.length; i++) {
        const waiter = queue[i]
        if (!waiter || waiter.gone || waiter.signal !== signal) continue
        waiter.gone = true
        waiting--
        waiter.reject(asError(signal.reason))
      }
      grant()
    }
    signal.addEventListener('abort', listener, { once: true })
  }

  function tryTake(): boolean {
    if (waiting > 0 || begun.length > 0 || inUse >= limit() || (rated()?.wait() ?? 0) > 0) return false
    bucket?.spend()
    inUse++
    return true
  }

  return {
    tryTake,
    async take(signal) {
      if (signal.aborted) throw asError(signal.reason)
      if (tryTake()) return
      await new Promise<void>((resolve, reject) => {
        queue.push({ resolve, reject, signal, gone: false })
        waiting++
        listen(signal)
        grant()
      })
    },
    async takeToken(signal) {
      if (signal.aborted) throw asError(signal.reason)
      if (begun.length === 0 && (rated()?.wait() ?? 0) === 0) return bucket?.spend()
      await new Promise<void>((resolve, reject) => {
        begun.push({ resolve, reject, signal, gone: false })
        listen(signal)
        grant()
      })
    },
    borrowToken() {
      rated()?.spend()
    },
    free(isUnused) {
      if (inUse === 0) throw new Error('free() without take()')
      inUse--
      if (isUnused) bucket?.giveBack()
      pace.freed++
      if (waiting > 0 || begun.length > 0) grant()
    },
    open() {
      const at = now()
      const ms = at - pace.since
      if (ms >= paceMs) pace = { since: at, freed: 0, perMs: pace.freed / ms }
      const soon = limit() - inUse - waiting + pace.perMs * soonMs
      return Math.max(0, Math.floor(Math.min(soon, (rated()?.left() ?? Infinity) - waiting)))
    },
    get inUse() {
      return inUse
    },
    get waiting() {
      return waiting
    }
  }
}

const asError = (reason: unknown) => (isError(reason) ? reason : new Error(textOf(reason)))

/**
 * The tokens saved for a burst are subtracted from the rate, so that no second exceeds `perSecond`:
 * burst + rate = perSecond + 1, and the last token falls into the next second.
 */
function tokens(perSecond: number, share: () => number, now: () => number) {
  let saved = 1
  let at = now()
  const refill = () => {
    const mine = perSecond * share()
    const burst = 1 + Math.floor(mine / 20)
    const rate = mine - (burst - 1)
    const t = now()
    saved = Math.min(burst, saved + ((t - at) * rate) / 1000)
    at = t
    return rate
  }
  return {
    /** Milliseconds until the next token. 0: now. */
    wait() {
      const rate = refill()
      return saved >= 1 - 1e-9 ? 0 : ((1 - saved) * 1000) / rate
    },
    left() {
      refill()
      return Math.floor(saved + 1e-9)
    },
    spend() {
      saved -= 1
    },
    giveBack() {
      saved += 1
    }
  }
}
