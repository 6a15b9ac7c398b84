import { distance } from 'fastest-levenshtein'

/** The known name that was most likely meant. At most `mostAway` letters differ. Undefined if none is close. */
export function nearest(
  name: string,
  known: readonly string[],
  mostAway: (known: string) => number = each => Math.min(2, each.length - 1)
): string | undefined {
  const near = known
    .map(each => ({ each, away: distance(name.toLowerCase(), each.toLowerCase()) }))
    .filter(({ each, away }) => away <= mostAway(each))
  return near.toSorted((a, b) => a.away - b.away)[0]?.each
}
