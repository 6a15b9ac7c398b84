import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises'

/** Lets those who post go first while a backlog is worked off in the same process. */
export interface Pace {
  /** Somebody posts here. */
  posted(): void
  /** undefined: one more of a backlog may leave; else when it resolves, in the order of asking. */
  next(): Promise<void> | undefined
}

/** Who has not posted for so long is not waiting for us. */
const recentMs = 1_000
/** Deliveries that leave in one turn of the event loop. */
const atOnce = 25
/** The part of its time that the loop may be busy before a backlog waits. */
const busiest = 0.7
const lookMs = 1
/** Then it goes on all the same: a loop that posts alone keep busy must not starve what they have left behind. */
const mostLooks = 4

/**
 * At full speed a drain keeps both the event loop and PostgreSQL busy, and an accept waits for its turn at either. With some
 * of the loop left free it waits a third as long, and the drain takes as long again (docs/performance.md).
 * `busy`: the part of its time that the loop was busy since the last call, 0 to 1.
 */
export function pace(busy = sinceLast()): Pace {
  let postedAt = -Infinity
  let asked = 0
  let last = Promise.resolve()
  const look = async (): Promise<void> => {
    for (let looks = 0; looks < mostLooks; looks++) {
      await sleep(lookMs)
      if (busy() < busiest) return
    }
  }
  return {
    posted() {
      postedAt = performance.now()
    },
    next() {
      if (asked++ % atOnce > 0) return undefined
      if (performance.now() - postedAt > recentMs) return turn()
      last = last.then(look)
      return last
    }
  }
}

function sinceLast(): () => number {
  let before = performance.eventLoopUtilization()
  return () => {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, before)
    before = now
    return utilization
  }
}
