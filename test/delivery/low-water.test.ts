import t, { type Test } from 'tap'
import { lowWater, type From } from '../../src/delivery/low-water.ts'

/** `look` takes `busyMs` and a few microseconds, by a clock that only looks move, and returns the bound that it was given. */
function looking(t: Test) {
  let ms = 0
  t.capture(performance, 'now', () => (ms += 0.001))
  const marks = lowWater(['warehouse'])
  const look = async (now: number, oldest: number | undefined, busyMs = 0): Promise<number | undefined> => {
    let given: number | undefined
    await marks.look(async (from: From) => {
      given = from('warehouse')
      ms += busyMs
      return { now: new Date(now), oldest: new Map(oldest === undefined ? [] : [['warehouse', oldest]]) }
    })
    return given
  }
  return { marks, look }
}

t.test('the mark follows the oldest open clock, and never comes nearer to now than a second', async t => {
  const { marks, look } = looking(t)
  t.equal(marks.from('warehouse'), undefined, 'nobody knows yet')
  await look(100_000, 40_000, 20)
  t.equal(marks.from('warehouse'), 40_000)
  t.equal(await look(101_000, undefined), 40_000)
  t.equal(marks.from('warehouse'), 100_000, 'nothing is open')
  await look(102_000, 101_900)
  t.equal(marks.from('warehouse'), 101_000)
  t.equal(marks.from('another'), undefined)
})

t.test('looks that cost nothing are full; after an expensive one, the next are not', async t => {
  const { look } = looking(t)
  t.equal(await look(100_000, 40_000, 30), undefined)
  for (const now of [101_000, 102_000]) t.equal(await look(now, 40_000), 40_000)
  const cheap = looking(t)
  await cheap.look(100_000, 40_000)
  // Full looks may take a hundredth of the time: at most a hundred others of the same length come between.
  let between = 0
  while (between < 1_000 && (await cheap.look(101_000, 40_000)) !== undefined) between++
  t.ok(between > 0 && between <= 100, `${between} looks are not full`)
})

t.test('after an error, or with a server whose clock is behind, everything is looked at again', async t => {
  const { marks, look } = looking(t)
  await look(100_000, 40_000, 30)
  await t.rejects(marks.look(() => Promise.reject(new Error('away'))))
  t.equal(await look(101_000, 50_000, 30), undefined)
  t.equal(await look(102_000, 50_000), 50_000)
  t.equal(await look(60_000, undefined), 50_000, 'an hour earlier, after a failover')
  t.equal(marks.from('warehouse'), undefined)
  t.equal(await look(60_500, 10_000), undefined)
})
