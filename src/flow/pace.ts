import { setImmediate as turn } from 'node:timers/promises'

/** Lets those who post go first while a backlog is worked off in the same process (docs/performance.md). */
export interface Pace {
  /** Somebody waits for so many deliveries to be written. */
  posting(written: Promise<unknown>, deliveries: number): void
  /** undefined: one more of a backlog may leave; else when it resolves, in the order of asking. */
  next(): Promise<void> | undefined
  /** A backlog is worked off beside somebody who posts, and fast enough to let them go first. */
  isYielding(): boolean
  /** A statement for which nobody waits: while we yield one at a time, or PostgreSQL would have every processor. */
  ask<T>(statement: () => Promise<T>): Promise<T>
}

/** What has not been for so long is over. */
const recentMs = 1_000
/** Deliveries that leave in one turn of the event loop: while somebody posts, and else. */
const [fewAtOnce, manyAtOnce] = [2, 25]
/** The longest that a backlog waits for who posts, and how long for each ms that it went on: or it would starve. */
const [mostWaitMs, waitPerMs] = [10, 3]
/** It yields while it shrinks: in so long so many times as much left as was posted. */
const [tallyMs, leadOver] = [200, 2]

/** `now` and `after` are for tests: ms of a monotonic clock, and a timer by it. */
export function pace(
  now = (): number => performance.now(),
  after: (done: () => void, ms: number) => NodeJS.Timeout = setTimeout
): Pace {
  let postedAt = -Infinity
  let posted = 0
  let backlogAt = -Infinity
  let asked = 0
  let credit = mostWaitMs
  let wentOnAt = -Infinity
  let last = Promise.resolve()
  let lastAsked: Promise<unknown> = Promise.resolve()
  let tally = { from: now(), came: 0, left: 0 }
  let leads = true
  const count = (came: number, left: number): void => {
    tally.came += came
    tally.left += left
    if (now() - tally.from < tallyMs) return
    leads = tally.left >= leadOver * tally.came
    tally = { from: now(), came: 0, left: 0 }
  }
  let wake = (): void => {}
  /** Until nobody posts, but no longer than so. Asking each ms drained 6 % less. */
  const untilWritten = (ms: number): Promise<void> =>
    new Promise(resolve => {
      const timer = after(resolve, ms)
      wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  const isPosting = (): boolean => posted > 0 || now() - postedAt < recentMs
  const isYielding = (): boolean => leads && now() - backlogAt < recentMs && isPosting()
  const look = async (): Promise<void> => {
    await turn()
    const from = now()
    credit = Math.min(mostWaitMs, credit + waitPerMs * (from - wentOnAt))
    if (leads && posted > 0 && credit > 0) await untilWritten(credit)
    wentOnAt = now()
    credit -= wentOnAt - from
  }
  return {
    posting(written, deliveries) {
      posted++
      count(deliveries, 0)
      // Not before its answer has left.
      const answered = (): void => {
        setImmediate(() => {
          posted--
          if (posted === 0) wake()
          postedAt = now()
        })
      }
      written.then(answered, answered)
    },
    next() {
      asked++
      backlogAt = now()
      count(0, 1)
      if (!isPosting()) return asked % manyAtOnce === 0 ? turn() : undefined
      if (asked % fewAtOnce > 0) return undefined
      last = last.then(look)
      return last
    },
    isYielding,
    ask(statement) {
      if (!isYielding()) return statement()
      const answer = lastAsked.then(statement)
      lastAsked = answer.catch(() => {})
      return answer
    }
  }
}
