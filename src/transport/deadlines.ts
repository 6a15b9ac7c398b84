/** Something in flight that must end. `due` is by `performance.now()` and may be brought forward at any time. */
export interface Due {
  due: number
  signal: AbortSignal
  /** Its index in the list. The owner sets it to -1 once and never again. */
  index: number
  /** Called once past due, or when the signal is aborted; it must lead to `delete`. */
  expire(now: number): void
}

interface Deadlines<T extends Due> {
  add(item: T): void
  delete(item: T): void
  /** Those in flight now. */
  all(): T[]
}

/** How late things end at most. */
const everyMs = 25

/**
 * One coarse timer for all that is in flight: at thousands of sends a second a timer and a listener for each would cost more
 * than the reading of its answer.
 */
export function deadlines<T extends Due = Due>(): Deadlines<T> {
  // No Set, so that what has ended leaves the memory at once (docs/decisions.md).
  const items: T[] = []
  let armed = false

  function look(): void {
    armed = false
    const now = performance.now()
    // Backwards: `delete` moves the last item, which was checked already, to the free place.
    for (let at = items.length - 1; at >= 0; at--) {
      const item = items[at]
      if (item && (now >= item.due || item.signal.aborted)) item.expire(now)
    }
    arm()
  }

  function arm(): void {
    if (armed || items.length === 0) return
    armed = true
    // Behind the poll phase: after a stall of our own, answers that have long arrived are read before anything is late.
    setTimeout(() => setImmediate(look), everyMs)
  }

  return {
    add(item) {
      item.index = items.push(item) - 1
      arm()
    },
    delete(item) {
      if (item.index < 0) return
      const last = items.pop()
      if (last && last !== item) {
        items[item.index] = last
        last.index = item.index
      }
      item.index = -1
    },
    all: () => [...items]
  }
}
