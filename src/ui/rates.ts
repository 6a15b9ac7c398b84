// Rates of the counts of /stats, which are by minute.
import type { Point, Stats } from './shapes.ts'

/** A process writes its counts every 10 s: the first seconds of a point have none yet. */
const leastMs = 15_000

/** How much of the counted time a point covers, or all points together: until `now`, in ms. At least 1. */
export function coveredMs(
  { from, to, step }: Stats,
  point: Pick<Point, 'at'> | undefined,
  now: Date
): number {
  const at = point === undefined ? -Infinity : Date.parse(point.at)
  const end = point === undefined ? Infinity : at + step * 1000
  return Math.max(1, Math.min(end, Date.parse(to), now.getTime()) - Math.max(at, Date.parse(from)))
}

/** Null: it covers too little to say. */
export const ratePerMinute = (count: number, ms: number): number | null =>
  ms < leastMs ? null : (count / ms) * 60_000
