/** SPDX ids of licences that require at most to name the author. */
const allowed = new Set(
  'MIT MIT-0 ISC BSD-2-Clause BSD-3-Clause Apache-2.0 0BSD BlueOak-1.0.0 Unlicense CC0-1.0'.split(' ')
)

/** Whether every id of an SPDX expression is allowed. OR is treated as AND. A missing or free-text licence is not allowed. */
export function isAllowed(license: unknown): boolean {
  if (typeof license !== 'string') return false
  const ids = license.split(/[() ]+/).filter(word => !['', 'AND', 'OR'].includes(word))
  return ids.length > 0 && ids.every(id => allowed.has(id))
}
