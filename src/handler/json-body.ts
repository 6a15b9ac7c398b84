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

  function check(one: unknown, path: string[], isMember = false): void {
    if (typeof one !== 'object' || one === null) return checkMembers(one, path)
    if (path.length > deepest) throw wrong('more levels than a body may have, or itself', path.slice(0, 3))
    if ('toJSON' in one && typeof one.toJSON === 'function') {
      const made: unknown = one.toJSON(path.at(-1) ?? '')
      if (one instanceof Date && made === null) throw wrong('a Date that is no time', path)
      if (isLost(made) && isMember) return lose(made, path)
      if (isLost(made)) throw wrong(`a toJSON that returns ${nameOf(made)}, which JSON cannot hold`, path)
      if (made !== one) return checkMembers(made, path)
    }
    checkMembers(one, path)
  }

  /** JSON calls no toJSON of what a toJSON has made. */
  function checkMembers(one: unknown, path: string[]): void {
    const problem = problemOf(one)
    if (problem !== undefined) throw wrong(problem, path)
    if (typeof one !== 'object' || one === null) return
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
      else if (!isPlain(member)) check(member, [...path, name], true)
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
  if (value instanceof Number) return problemOf(value.valueOf())
  if (typeof value !== 'object' || value === null) return undefined
  const kind = Object.prototype.toString.call(value).slice(8, -1)
  return keptByJson.has(kind) || Object.keys(value).length > 0
    ? undefined
    : `${/^[AEIO]/.test(kind) ? 'an' : 'a'} ${kind}, which JSON would write as {}`
}

/** Others without members have their content elsewhere: a Map, a Promise, an ArrayBuffer, a URLSearchParams. */
const keptByJson = new Set(['Object', 'Array', 'Number', 'String', 'Boolean'])
