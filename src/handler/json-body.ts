// The JSON of a body that a handler gives as a value. JSON.stringify would write null for NaN, and leave out what is undefined.
import { pointerOf } from '../runtime/errors.ts'

/** What to do about a member that is undefined: JSON has no such value, and leaves the member out. */
export interface BodyRules {
  /** Fail the attempt. Otherwise the member is left out, after a warning. */
  isStrict: boolean
  warn(pointer: string): void
}

/** Deeper than any body that Ackbox accepts. A value that contains itself is deeper. */
const deepest = 200

/** Throws an error with the place of the first value that JSON cannot hold. `what`: 'the body of warehouse'. */
export function jsonBody(what: string, value: object, rules: BodyRules): string {
  check(value, [])
  return JSON.stringify(value)

  function check(one: unknown, path: string[]): void {
    const problem = problemOf(one)
    if (problem !== undefined) throw wrong(problem, path)
    if (typeof one !== 'object' || one === null) return
    if (path.length > deepest) throw wrong('more levels than a body may have, or itself', path.slice(0, 3))
    if ('toJSON' in one && typeof one.toJSON === 'function') {
      const made: unknown = one.toJSON(path.at(-1) ?? '')
      if (one instanceof Date && made === null) throw wrong('a Date that is no time', path)
      if (made !== one) check(made, path)
      return
    }
    if (Array.isArray(one)) {
      for (let n = 0; n < one.length; n++) {
        const element: unknown = one[n]
        if (isLost(element))
          throw wrong(`${nameOf(element)}, which JSON would write as null`, [...path, String(n)])
        if (!isPlain(element)) check(element, [...path, String(n)])
      }
      return
    }
    for (const name of Object.keys(one)) {
      const member = (one as { [name: string]: unknown })[name]
      if (isLost(member)) lose(member, [...path, name])
      else if (!isPlain(member)) check(member, [...path, name])
    }
  }

  function lose(member: unknown, path: string[]): void {
    if (rules.isStrict)
      throw wrong(`${nameOf(member)}: JSON would leave the member out; write null, or leave it out`, path)
    rules.warn(pointerOf(path))
  }

  function wrong(problem: string, path: string[]): TypeError {
    return new TypeError(`${what} has at ${pointerOf(path) || 'its top'} ${problem}`)
  }
}

const isLost = (value: unknown): boolean =>
  value === undefined || typeof value === 'function' || typeof value === 'symbol'
/** Needs no look: most values of a body. */
const isPlain = (value: unknown): boolean =>
  typeof value === 'string' ||
  typeof value === 'boolean' ||
  value === null ||
  (typeof value === 'number' && Number.isFinite(value))
const nameOf = (value: unknown): string => (value === undefined ? 'undefined' : `a ${typeof value}`)

function problemOf(value: unknown): string | undefined {
  if (typeof value === 'number' && !Number.isFinite(value)) return `${value}, which JSON would write as null`
  if (typeof value === 'bigint') return 'a bigint, which JSON cannot hold: send its text'
  if (value instanceof Map || value instanceof Set)
    return `a ${value instanceof Map ? 'Map' : 'Set'}, which JSON would write as {}`
  return undefined
}
