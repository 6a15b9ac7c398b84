// A host whose clock is wrong: the processes on it believe another time of day, while their monotonic clock goes as ever.
import { existsSync } from 'node:fs'

const places = [
  '/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1',
  '/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1',
  '/usr/lib/faketime/libfaketimeMT.so.1'
]

/** The environment of such a process: libfaketime where it is installed, else Date alone, which is all that Node looks at. */
export function aheadBy(seconds: number): Record<string, string> {
  const library = places.find(existsSync)
  if (library !== undefined) {
    const kept = { FAKETIME_DONT_FAKE_MONOTONIC: '1', DONT_FAKE_MONOTONIC: '1' }
    return { LD_PRELOAD: library, FAKETIME: `${seconds < 0 ? '' : '+'}${seconds}`, ...kept }
  }
  const shift = `
    const Real = Date, ms = ${seconds * 1_000}
    globalThis.Date = class extends Real {
      constructor(...given) { given.length > 0 ? super(...given) : super(Real.now() + ms) }
      static now() { return Real.now() + ms }
    }`
  return { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(shift)}` }
}

/** Of another clock, as one answer tells it: how far that is ahead, and how far this may be from the truth, ms. */
export interface Difference {
  aheadMs: number
  withinMs: number
}

/**
 * What the quickest answer says: on a busy machine one may be long on its way back, and would be taken for a clock that is behind. Where 0 is
 * possible, it is the better measure.
 */
export function differenceOf(told: readonly Difference[]): number {
  const [best] = told.toSorted((a, b) => a.withinMs - b.withinMs)
  return !best || Math.abs(best.aheadMs) < Math.max(10, best.withinMs) ? 0 : best.aheadMs
}
