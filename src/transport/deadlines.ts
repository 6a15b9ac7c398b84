/** An item in flight that must end. `due` is a time of `performance.now()` and may be moved to an earlier time. */
export interface Due {
  due: number
  signal: AbortSignal
  /** Its index in the list. The owner sets it to -1 once and never again. */
  index: number
  /** Called once the item is past due, or its signal is aborted. It must lead to `delete`. */
  expire(now: number): void
}

interface Deadlines<T extends Due> {
  add(item: T): void
  delete(item: T): void
  /** The items in flight now. */
  all(): T[]
}

/** An item ends at most this late. */
const everyMs = 25

/**
 * One coarse timer for all items in flight. At thousands of sends a second, a timer and a listener for each would cost more
 * than reading its answer.
 */
export function deadlines<T extends Due = Due>(): Deadlines<T> {
  // Not a Set, so that the memory of an ended item is freed at once (docs/decisions.md).
  const items: T[] = []
  let armed = false

  function look(): void {
    armed = false
    const now = performance.now()
    // Backwards: `delete` moves the last item, which is already checked, to the free place.
    for (let at = items.length - 1; at >= 0; at--) {
      const item = items[at]
      if (item && (now >= item.due || item.signal.aborted)) item.expire(now)
    }
    arm()
  }

  function arm(): void {
    if (armed || items.length === 0) return
    armed = true
    // Runs after the poll phase: when this process stalled, answers that have arrived are read before any item counts as late.
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
