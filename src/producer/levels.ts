/** The most levels of JSON that Ackbox takes in a body, the outermost value included. The same in every way in, and in every language. */
export const mostLevels = 64

/** Whether the objects and arrays of a JSON text have more than `most` levels. */
export function isDeeper(json: string, most: number): boolean {
  // Few texts have so many brackets at all.
  if ((json.match(/[[{]/g)?.length ?? 0) <= most) return false
  let levels = 0
  // A bracket in a string is none.
  for (const [mark] of json.matchAll(/"[^"\\]*(?:\\[^][^"\\]*)*"|[[{}\]]/g)) {
    if ((mark === '[' || mark === '{') && ++levels > most) return true
    if (mark === ']' || mark === '}') levels--
  }
  return false
}
