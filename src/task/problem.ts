export type JsonProblemCode = 'NOT_UTF8' | 'NOT_JSON' | 'NOT_I_JSON' | 'TOO_DEEP' | 'TOO_MANY_MEMBERS'

/** What keeps a text from being read. `offset` counts bytes; `pointer` is RFC 6901, of the nearest value that fits in it. */
export class JsonProblem extends Error {
  override readonly name = 'JsonProblem'
  readonly code: JsonProblemCode
  readonly detail: string
  readonly pointer: string
  readonly offset: number

  constructor(code: JsonProblemCode, detail: string, offset: number, pointer = '') {
    super(`${detail}, at byte ${offset}`)
    this.code = code
    this.detail = this.message
    this.pointer = pointer
    this.offset = offset
  }
}

/** In the levels of a pointer: no value yet, as between two members. */
export const NOWHERE = -0x80000000

const LONGEST = 120

/**
 * Each level is an array's index, or ~offset of a member's name. Ends at an ancestor where it would get long or
 * unprintable: nothing a text holds makes an error so.
 */
export function pointerOf(bytes: Buffer, levels: Int32Array): string {
  let pointer = ''
  for (const level of levels) {
    const token = level >= 0 ? String(level) : level === NOWHERE ? undefined : nameAt(bytes, ~level)
    if (token === undefined) break
    const longer = `${pointer}/${token.replaceAll('~', '~0').replaceAll('/', '~1')}`
    if (JSON.stringify(longer).replaceAll(/[^ -~]/g, '\\u0000').length > LONGEST) break
    pointer = longer
  }
  return pointer
}

/** The member name whose quotes open at this offset, or nothing where it is not to be shown. */
function nameAt(bytes: Buffer, at: number): string | undefined {
  const text = bytes.toString('utf8', at, at + 2 * LONGEST)
  const raw = /^"(?:[^"\\]|\\.)*"/.exec(text)?.[0]
  const name: string | undefined = raw === undefined ? undefined : JSON.parse(raw)
  return name === undefined || /[\p{C}\p{Zl}\p{Zp}]/u.test(name) ? undefined : name
}
