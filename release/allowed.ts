/** SPDX ids of licences that ask for no more than to name the author. */
const allowed = new Set(
  'MIT MIT-0 ISC BSD-2-Clause BSD-3-Clause Apache-2.0 0BSD BlueOak-1.0.0 Unlicense CC0-1.0'.split(' ')
)

/** Whether every id of an SPDX expression is allowed. An OR is read as an AND; no licence, or one in other words, is not. */
export function isAllowed(license: unknown): boolean {
  if (typeof license !== 'string') return false
  const ids = license.split(/[() ]+/).filter(word => !['', 'AND', 'OR'].includes(word))
  return ids.length > 0 && ids.every(id => allowed.has(id))
}
