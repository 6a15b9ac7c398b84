import t from 'tap'
import { openStatistics, type Counts } from '../../src/runtime/statistics.ts'

const minute = 60_000_000

/** The written rows, as the table stores them: the last row of a minute counts. */
function table() {
  const rows = new Map<number, number>()
  return {
    rows,
    async write(counts: readonly Counts[]) {
      const minutes = counts.map(one => one.minute)
      // In PostgreSQL, ON CONFLICT DO UPDATE cannot change a row twice in one statement.
      if (new Set(minutes).size < minutes.length) throw new Error('a minute twice')
      for (const one of counts) rows.set(one.minute, one.attempts)
    }
  }
}

t.test('an event of the past minute counts in its own minute', async t => {
  let now = 0
  const statistics = openStatistics(() => now)
  const { rows, write } = table()
  for (const at of [-1, 5, -3, 8]) {
    now = minute + at
    statistics.at('warehouse', 'order.paid').attempted(true, true)
    await statistics.flush(write)
  }
  t.strictSame(
    [...rows],
    [
      [minute - 60_000, 2],
      [minute, 2]
    ]
  )
})

t.test('what could not be written is written with the next counts, and nothing is written again', async t => {
  let now = minute
  const statistics = openStatistics(() => now)
  const { rows, write } = table()
  const count = (): void => statistics.at('warehouse', 'order.paid').attempted(true, true)
  count()
  await t.rejects(
    statistics.flush(async () => {
      count()
      throw new Error('away')
    })
  )
  now += 60_000
  count()
  await statistics.flush(write)
  t.strictSame(
    [...rows],
    [
      [minute, 2],
      [minute + 60_000, 1]
    ]
  )
  await statistics.flush(() => Promise.reject(new Error('nothing has changed')))
})

t.test('a clock that is set back by hours is followed, and a minute that comes twice is one row', async t => {
  let now = 0
  const statistics = openStatistics(() => now)
  const { rows, write } = table()
  for (const at of [0, 7_200_000, 0]) {
    now = minute + at
    statistics.at('warehouse', 'order.paid').attempted(true, true)
  }
  await statistics.flush(write)
  t.strictSame(
    [...rows].toSorted(([a], [b]) => a - b),
    [
      [minute, 2],
      [minute + 7_200_000, 1]
    ]
  )
})
