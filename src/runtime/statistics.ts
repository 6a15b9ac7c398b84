// The counts of this process by minute, downstream and messageCode, for the charts of the dashboard. They stay in memory until written.
import { eachCounter, latencyBounds, type Counter } from '../domain/counts.ts'

/** Counts of one minute since its start, of one downstream and messageCode. */
export interface Counts extends Record<Counter, number> {
  /** ms since 1970. */
  minute: number
  /** Empty for accepted tasks: a task has no downstream yet. */
  downstream: string
  messageCode: string
  /** Histogram of the ms until HANDLED, by `latencyBounds`. */
  handledMs: number[]
  /** The shortest and the longest of these latencies, in ms. Null without one. */
  shortestMs: number | null
  longestMs: number | null
}

export type Statistics = ReturnType<typeof openStatistics>

/** The counts of a minute, and what of them is not written. */
interface Kept {
  counts: Counts
  isWritten: boolean
  /** Writes since something was counted. */
  idleWrites: number
}

const minuteMs = 60_000
/** Counts that cannot be written for long are dropped, the oldest first: charts are not guaranteed. */
const mostKept = 20_000
/** After so many writes without a change a minute is over. Forgotten earlier, a late event would begin its row again. */
const mostIdleWrites = 6

/** `now` is the clock of the caller, for an event without a time: in all processes that of the database. */
export function openStatistics(now: () => number) {
  const kept = new Map<string, Kept>()

  function countsOf(downstream: string, messageCode: string, at: number): Counts {
    const minute = Math.floor(at / minuteMs) * minuteMs
    const key = `${minute} ${downstream}\n${messageCode}`
    let found = kept.get(key)
    if (!found) {
      const counts = {
        minute,
        downstream,
        messageCode,
        ...eachCounter(() => 0),
        handledMs: latencyBounds.map(() => 0).concat(0),
        shortestMs: null,
        longestMs: null
      }
      found = { counts, isWritten: false, idleWrites: 0 }
      kept.set(key, found)
      const [oldest] = kept.keys()
      if (kept.size > mostKept && oldest !== undefined) kept.delete(oldest)
    }
    found.isWritten = false
    found.idleWrites = 0
    return found.counts
  }

  /** The counts of the minute of `at`: the time of the event, ms since 1970 by the database's clock; by default now. */
  function atMinute(downstream: string, messageCode: string, at = now()) {
    const of = countsOf(downstream, messageCode, at)
    return {
      /** `isFirst`: it was the first try of its delivery. */
      attempted(isDelivered: boolean, isFirst: boolean): void {
        of.attempts++
        if (!isDelivered) of.failedAttempts++
        if (isFirst) of.firstTries++
        if (isFirst && isDelivered) of.firstDelivered++
      },
      /** `since`: when it was accepted, or due first, ms since 1970. Undefined: it is no latency. */
      handled(isFirstTry: boolean, since: number | undefined): void {
        of.handled++
        if (isFirstTry) of.direct++
        if (since === undefined) return
        const ms = Math.max(0, at - since)
        const found = latencyBounds.findIndex(bound => ms <= bound)
        const bucket = found < 0 ? latencyBounds.length : found
        of.handledMs[bucket] = (of.handledMs[bucket] ?? 0) + 1
        of.shortestMs = Math.min(ms, of.shortestMs ?? ms)
        of.longestMs = Math.max(ms, of.longestMs ?? ms)
      },
      failed(isFirstTry: boolean, isExhausted: boolean): void {
        of.failed++
        if (!isFirstTry) of.failedLater++
        if (isExhausted) of.exhausted++
      }
    }
  }

  return {
    accepted(messageCode: string, at = now()): void {
      countsOf('', messageCode, at).accepted++
    },
    at: atMinute,
    /** Writes the counts that changed. If that fails, they are written the next time. */
    async flush(write: (counts: readonly Counts[]) => Promise<void>): Promise<void> {
      const changed = [...kept.values()].filter(one => !one.isWritten)
      // What is counted during the write marks it again.
      for (const one of changed) one.isWritten = true
      try {
        if (changed.length > 0)
          await write(changed.map(({ counts }) => ({ ...counts, handledMs: [...counts.handledMs] })))
      } catch (err) {
        for (const one of changed) one.isWritten = false
        throw err
      }
      for (const [key, one] of kept) if (one.isWritten && ++one.idleWrites > mostIdleWrites) kept.delete(key)
    }
  }
}
