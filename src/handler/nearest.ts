/** The known name that was most likely meant, at most two letters away; undefined when none is near. */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const near = known
    .map(each => ({ each, away: distance(name.toLowerCase(), each.toLowerCase()) }))
    .filter(({ each, away }) => away <= Math.min(2, each.length - 1))
  return near.toSorted((a, b) => a.away - b.away)[0]?.each
}

/** Letters to insert, drop, replace or swap with a neighbour. */
function distance(a: string, b: string): number {
  let before: number[] = []
  let last = Array.from({ length: b.length + 1 }, (_, at) => at)
  for (let i = 1; i <= a.length; i++) {
    const row = [i]
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      row[j] = Math.min(
        (last[j] ?? 0) + 1,
        (row[j - 1] ?? 0) + 1,
        (last[j - 1] ?? 0) + same,
        swapped ? (before[j - 2] ?? 0) + 1 : Infinity
      )
    }
    before = last
    last = row
  }
  return last[b.length] ?? 0
}
