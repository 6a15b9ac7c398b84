// A host whose clock is wrong: its processes read another time of day. Their monotonic clock is unchanged.
import { existsSync } from 'node:fs'

const places = [
  '/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1',
  '/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1',
  '/usr/lib/faketime/libfaketimeMT.so.1'
]

/** The environment of such a process: libfaketime if it is installed, else a shifted Date, the only clock of the day that Node reads. */
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

/** One measurement of another clock, in ms: how far it is ahead, and the largest error. */
export interface Difference {
  aheadMs: number
  withinMs: number
}

/**
 * The measurement with the quickest answer: on a busy machine a slow answer would look like a clock that is behind. Returns 0 if 0 is
 * within the error.
 */
export function differenceOf(measured: readonly Difference[]): number {
  const [best] = measured.toSorted((a, b) => a.withinMs - b.withinMs)
  return !best || Math.abs(best.aheadMs) < Math.max(10, best.withinMs) ? 0 : best.aheadMs
}
