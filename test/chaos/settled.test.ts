import t, { type Test } from 'tap'
import { settled, type Look } from '../../chaos/settled.ts'

const hour = 3_600_000

/** The number of looks of a wait that find these, the last one again and again. Each takes `takesMs`. */
async function looks(
  t: Test,
  all: Look[],
  { ms = hour, takesMs = 2 * hour, stop = new AbortController().signal } = {}
): Promise<number> {
  const now = performance.now.bind(performance)
  let aheadMs = 0
  t.capture(performance, 'now', () => now() + aheadMs)
  let count = 0
  await settled({ ms, stop, everyMs: 1 }, () => {
    aheadMs += takesMs
    return all[Math.min(count++, all.length - 1)] ?? { left: 0 }
  })
  return count
}

t.test('a wait ends when nothing is left', async t => {
  t.equal(await looks(t, [{ left: 0, seen: 5 }]), 1)
})

t.test('progress extends a wait, however slow it is', async t => {
  const lefts = [4, 3, 2, 1, 0].map(left => ({ left }))
  t.equal(await looks(t, lefts), 5)
})

t.test('what is seen for the first time is progress too', async t => {
  const seen = [1, 2, 3, 4].map(seen => ({ left: 7, seen }))
  t.equal(await looks(t, seen), 5, 'until a look shows no more')
})

t.test('without progress a wait ends at the first look after its time', async t => {
  t.equal(await looks(t, [{ left: 7 }], { takesMs: hour / 2 }), 3)
})

t.test('what comes back is no progress', async t => {
  const lefts = [5, 9, 8, 0].map(left => ({ left }))
  t.equal(await looks(t, lefts), 2)
})

t.test('after Ctrl-C a wait without progress is short', async t => {
  t.equal(await looks(t, [{ left: 7 }], { takesMs: 3_000, stop: AbortSignal.abort() }), 3)
})
