/** The counters. They count by minute, downstream and messageCode. docs/operations.md defines the rates that they make. */
const counters = [
  'accepted',
  'attempts',
  'failedAttempts',
  // First tries of deliveries that ended, and those that the downstream took.
  'firstTries',
  'firstDelivered',
  'handled',
  // Handled by the first try.
  'direct',
  'failed',
  // Failed after more than one try.
  'failedLater',
  // Failed after all tries.
  'exhausted'
] as const
export type Counter = (typeof counters)[number]

export const eachCounter = (count: (name: Counter) => number): Record<Counter, number> =>
  Object.fromEntries(counters.map(name => [name, count(name)])) as Record<Counter, number>

/** Upper bounds in ms of the buckets of a latency histogram. A last bucket counts all longer latencies. */
export const latencyBounds = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000,
  1_800_000, 3_600_000, 21_600_000, 86_400_000
] as const

/**
 * The latency in ms that `share` (0 to 1) of all values do not exceed, interpolated linearly in its bucket, and never outside of the
 * shortest and the longest value as far as they are known. Null without values.
 */
export function percentile(
  histogram: readonly number[],
  share: number,
  { shortestMs = 0, longestMs = Infinity }: { shortestMs?: number; longestMs?: number } = {}
): number | null {
  const found = interpolated(histogram, share)
  return found === null ? null : Math.min(longestMs, Math.max(shortestMs, found))
}

function interpolated(histogram: readonly number[], share: number): number | null {
  const total = histogram.reduce((sum, n) => sum + n, 0)
  if (total === 0) return null
  let before = 0
  for (const [at, n] of histogram.entries()) {
    if (n > 0 && before + n >= share * total) {
      const from = latencyBounds[at - 1] ?? 0
      // The last bucket has no upper bound: the result is its lower bound.
      const to = latencyBounds[at] ?? from
      return from + ((share * total - before) / n) * (to - from)
    }
    before += n
  }
  return latencyBounds.at(-1) ?? null
}
