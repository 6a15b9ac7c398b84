/** Something in flight that must end. `due` is by `performance.now()` and may be brought forward at any time. */
export interface Due {
  due: number
  signal: AbortSignal
  /** Called once past due, or when the signal is aborted; it must lead to `delete`. */
  expire(now: number): void
}

export interface Deadlines {
  add(item: Due): void
  delete(item: Due): void
}

/**
 * One coarse timer for all that is in flight: at thousands of sends a second a timer and a listener for each would cost more
 * than the reading of its answer. Ends things at most `everyMs` late.
 */
export function deadlines(everyMs = 25): Deadlines {
  const items = new Set<Due>()
  let armed = false

  function look(): void {
    armed = false
    const now = performance.now()
    for (const item of items) {
      if (now >= item.due || item.signal.aborted) item.expire(now)
    }
    arm()
  }

  function arm(): void {
    if (armed || items.size === 0) return
    armed = true
    // Behind the poll phase: after a stall of our own, answers that have long arrived are read before anything is late.
    setTimeout(() => setImmediate(look), everyMs)
  }

  return {
    add(item) {
      items.add(item)
      arm()
    },
    delete: item => {
      items.delete(item)
    }
  }
}
