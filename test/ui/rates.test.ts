import t from 'tap'
import { coveredMs, ratePerMinute } from '../../src/ui/rates.ts'
import type { Stats } from '../../src/ui/shapes.ts'

const stats: Stats = { from: '2026-11-24T09:01:00Z', to: '2026-11-24T10:02:00Z', step: 300, series: [] }
const now = new Date('2026-11-24T10:01:30Z')

t.test('a rate counts only the time that has passed, and only the minutes that were counted', async t => {
  t.equal(coveredMs(stats, undefined, now), 3_630_000)
  t.equal(coveredMs(stats, { at: '2026-11-24T09:05:00Z' }, now), 300_000)
  t.equal(
    coveredMs(stats, { at: '2026-11-24T09:00:00Z' }, now),
    240_000,
    'the first point begins before the span'
  )
  t.equal(coveredMs(stats, { at: '2026-11-24T10:00:00Z' }, now), 90_000, 'the last one has not ended')
  t.equal(ratePerMinute(30, 90_000), 20)
  t.equal(ratePerMinute(0, 9_000), null, 'no process has written the counts of the last seconds')
})
