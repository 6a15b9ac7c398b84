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
}

export type Statistics = ReturnType<typeof openStatistics>

const minuteMs = 60_000
/** If the clock is set back by more, the minute follows it. */
const longestStepMs = 5 * minuteMs

/** `now` is the clock of the caller: in all processes that of the database. */
export function openStatistics(now: () => number) {
  let minute = 0
  let byDownstream = new Map<string, Map<string, Counts>>()
  /** Counts of past minutes that are not written yet. */
  let over: Counts[] = []

  function counts(downstream: string, messageCode: string): Counts {
    const current = Math.floor(now() / minuteMs) * minuteMs
    // The estimate of the database's clock may step back a little: a past minute does not begin again.
    if (current > minute || current < minute - longestStepMs) {
      over.push(...all())
      // Counts that cannot be written for long are dropped, the oldest first: charts are not guaranteed.
      if (over.length > mostKept) over = over.slice(-mostKept)
      byDownstream = new Map()
      minute = current
    }
    const byCode = byDownstream.get(downstream) ?? new Map<string, Counts>()
    if (byCode.size === 0) byDownstream.set(downstream, byCode)
    const known = byCode.get(messageCode)
    if (known) return known
    const made = {
      minute,
      downstream,
      messageCode,
      ...eachCounter(() => 0),
      handledMs: latencyBounds.map(() => 0).concat(0)
    }
    byCode.set(messageCode, made)
    return made
  }

  const all = (): Counts[] => [...byDownstream.values()].flatMap(byCode => [...byCode.values()])

  return {
    accepted(messageCode: string): void {
      counts('', messageCode).accepted++
    },
    attempted(downstream: string, messageCode: string, isDelivered: boolean): void {
      const at = counts(downstream, messageCode)
      at.attempts++
      if (!isDelivered) at.failedAttempts++
    },
    /** `since`: when it was accepted, or due first, ms since 1970. */
    handled(downstream: string, messageCode: string, isFirstTry: boolean, since: number): void {
      const at = counts(downstream, messageCode)
      at.handled++
      if (isFirstTry) at.direct++
      const ms = now() - since
      const found = latencyBounds.findIndex(bound => ms <= bound)
      const bucket = found < 0 ? latencyBounds.length : found
      at.handledMs[bucket] = (at.handledMs[bucket] ?? 0) + 1
    },
    failed(downstream: string, messageCode: string, isExhausted: boolean): void {
      const at = counts(downstream, messageCode)
      at.failed++
      if (isExhausted) at.exhausted++
    },
    /** Writes the counts. If that fails, they are written the next time. */
    async flush(write: (counts: readonly Counts[]) => Promise<void>): Promise<void> {
      const ended = over
      const counted = summed([...ended, ...all()])
      if (counted.length === 0) return
      await write(counted)
      const written = new Set(ended)
      over = over.filter(past => !written.has(past))
    }
  }
}

const mostKept = 10_000

/** One row for each minute, downstream and messageCode, also if the clock began a minute twice. */
function summed(counted: readonly Counts[]): Counts[] {
  const byKey = new Map<string, Counts>()
  for (const row of counted) {
    const key = JSON.stringify([row.minute, row.downstream, row.messageCode])
    const known = byKey.get(key)
    byKey.set(key, known ? sum(known, row) : row)
  }
  return [...byKey.values()]
}

const sum = (a: Counts, b: Counts): Counts => ({
  ...a,
  ...eachCounter(name => a[name] + b[name]),
  handledMs: a.handledMs.map((count, bucket) => count + (b.handledMs[bucket] ?? 0))
})
