import fc from 'fast-check'
import t from 'tap'
import { latencyBounds, percentile } from '../../src/domain/counts.ts'

const histogramOf = (values: readonly number[]): number[] => {
  const histogram = latencyBounds.map(() => 0).concat(0)
  for (const ms of values) {
    const found = latencyBounds.findIndex(bound => ms <= bound)
    const bucket = found < 0 ? latencyBounds.length : found
    histogram[bucket] = (histogram[bucket] ?? 0) + 1
  }
  return histogram
}

t.test(
  'a percentile lies within the shortest and the longest time, and in the bucket of the true one',
  async t => {
    const times = fc.array(fc.double({ min: 0, max: 2e8, noNaN: true }), { minLength: 1, maxLength: 50 })
    fc.assert(
      fc.property(times, fc.constantFrom(0.5, 0.99), (values, share) => {
        const sorted = values.toSorted((a, b) => a - b)
        const bounds = { shortestMs: sorted[0] ?? 0, longestMs: sorted.at(-1) ?? 0 }
        const found = percentile(histogramOf(values), share, bounds) ?? NaN
        const exact = sorted[Math.ceil(share * sorted.length) - 1] ?? NaN
        const bucketOf = (ms: number): number => histogramOf([ms]).indexOf(1)
        return (
          found >= bounds.shortestMs &&
          found <= bounds.longestMs &&
          // The lower bound of a bucket belongs to the bucket below.
          Math.abs(bucketOf(found) - bucketOf(exact)) <=
            (latencyBounds.some(bound => bound === found) ? 1 : 0)
        )
      }),
      { numRuns: 2_000 }
    )
    t.equal(percentile(histogramOf([]), 0.5), null, 'no times, no percentile')
  }
)
