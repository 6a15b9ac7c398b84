/** A pattern for t.match: these elements and no more. An array as a pattern would allow more elements than it has. */
export function only(...elements: unknown[]): { length: number } {
  return Object.assign({ length: elements.length }, elements)
}
