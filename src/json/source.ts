import { isUtf8 } from 'node:buffer'

/**
 * Whether this JSON number is the same decimal after its conversion to a double and back. `0.1` and `1e21` are;
 * `9007199254740993`, `1e400` and `0.10000000000000000555` are not. `-0` counts as 0.
 */
export function survivesDouble(text: string): boolean {
  const double = Number(text)
  return Number.isFinite(double) && decimal(text) === decimal(String(double))
}

/** Sign, significant digits and power of ten: equal for equal decimals, however they are written. */
function decimal(text: string): string {
  const negative = text.startsWith('-')
  const e = text.search(/[eE]/)
  const mantissa = text.slice(negative ? 1 : 0, e < 0 ? text.length : e)
  const point = mantissa.indexOf('.')
  const digits = point < 0 ? mantissa : mantissa.slice(0, point) + mantissa.slice(point + 1)
  // Loops, not /0+$/: the expression takes quadratic time on a long run of zeros that does not end the text.
  let first = 0
  while (first < digits.length && digits[first] === '0') first++
  if (first === digits.length) return '0'
  let last = digits.length
  while (digits[last - 1] === '0') last--
  const fraction = point < 0 ? 0 : mantissa.length - point - 1
  const power = (e < 0 ? 0 : Number(text.slice(e + 1))) - fraction + digits.length - last
  return `${negative ? '-' : ''}${digits.slice(first, last)}e${power}`
}

/** A text in UTF-8. `cut` returns a part of it by byte offsets. */
export interface Source {
  bytes: Buffer
  text: string
  cut(start: number, end: number): string
}

export function sourceOf(posted: Uint8Array): Source {
  const bytes = Buffer.isBuffer(posted)
    ? posted
    : Buffer.from(posted.buffer, posted.byteOffset, posted.byteLength)
  if (!isUtf8(bytes)) throw new JsonProblem('NOT_UTF8', 'Not UTF-8', firstBadByte(bytes))
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
    throw new JsonProblem('NOT_I_JSON', 'A byte order mark', 0)
  }
  const text = bytes.toString()
  // All ASCII: each character is one byte, and a slice of the text costs nothing.
  const ascii = text.length === bytes.length
  return {
    bytes,
    text,
    cut: (start, end) => (ascii ? text.slice(start, end) : bytes.toString('utf8', start, end))
  }
}

const stretch = 4_096

/**
 * Decoding replaces wrong bytes by U+FFFD, so the first changed byte is the first wrong one. Only the stretch around it
 * is decoded: 8 MiB with a wrong byte at the end would block the process for 150 ms.
 */
function firstBadByte(bytes: Buffer): number {
  for (let start = 0; start < bytes.length;) {
    const end = betweenCharacters(bytes, start + stretch)
    const part = bytes.subarray(start, end)
    if (!isUtf8(part)) {
      const repaired = Buffer.from(part.toString())
      const at = part.findIndex((byte, i) => byte !== repaired[i])
      return at < 0 ? end : start + at
    }
    start = end
  }
  return bytes.length
}

/** The boundary of a character here, or up to three bytes before: a character has at most three continuation bytes. */
function betweenCharacters(bytes: Buffer, at: number): number {
  if (at >= bytes.length) return bytes.length
  for (let end = at; end > at - 4; end--) if (((bytes[end] ?? 0) & 0xc0) !== 0x80) return end
  return at
}

export type JsonProblemCode = 'NOT_UTF8' | 'NOT_JSON' | 'NOT_I_JSON' | 'TOO_DEEP' | 'TOO_MANY_MEMBERS'

/** The reason why a text is refused. `offset` counts bytes. `pointer` (RFC 6901) names the nearest value that fits in it. */
export class JsonProblem extends Error {
  override readonly name = 'JsonProblem'
  readonly code: JsonProblemCode
  readonly detail: string
  readonly pointer: string
  readonly offset: number
  readonly #cause: string

  constructor(code: JsonProblemCode, detail: string, offset: number, pointer = '') {
    super(`${detail}, at byte ${offset}`)
    this.code = code
    this.detail = this.message
    this.pointer = pointer
    this.offset = offset
    this.#cause = detail
  }

  /** The same problem, with its offset in a part of the text. */
  at(offset: number, pointer = this.pointer): JsonProblem {
    return new JsonProblem(this.code, this.#cause, offset, pointer)
  }
}

/** A level of a pointer without a value, as between two members. */
export const NOWHERE = -0x80000000

const LONGEST = 120

/**
 * Each level is an array's index, or ~offset of a member's name. It ends at an ancestor before it becomes long or
 * unprintable: no text may make an error long or unprintable.
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

/** The member name whose quotes open at this offset. Undefined if it must not be shown. */
function nameAt(bytes: Buffer, at: number): string | undefined {
  const text = bytes.toString('utf8', at, at + 2 * LONGEST)
  const raw = /^"(?:[^"\\]|\\.)*"/.exec(text)?.[0]
  const name: string | undefined = raw === undefined ? undefined : JSON.parse(raw)
  return name === undefined || /[\p{C}\p{Zl}\p{Zp}]/u.test(name) ? undefined : name
}

/** -1 past the end. It never reads there: after one such read V8 keeps a slower load for good. */
export function byteAt(bytes: Buffer, at: number): number {
  return at < bytes.length ? (bytes[at] as number) : -1
}

/** The next byte that is not plain text of a string. Four bytes at a time: twice as fast, and bodies are mostly strings. */
export function plain(bytes: Buffer, from: number): number {
  let at = from
  for (const fours = bytes.length - 3; at < fours; at += 4) {
    const kind = kindAt(bytes, at) | kindAt(bytes, at + 1) | kindAt(bytes, at + 2) | kindAt(bytes, at + 3)
    if (kind !== 0) break
  }
  while (at < bytes.length && kindAt(bytes, at) === 0) at++
  return at
}

/** 1 for a byte that ends a string, begins an escape, or is not allowed. */
const kinds = new Uint8Array(256).fill(1, 0, 0x20)
kinds[0x22] = 1
kinds[0x5c] = 1

function kindAt(bytes: Buffer, at: number): number {
  return kinds[bytes[at] as number] as number
}

export function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30
  const letter = byte | 0x20
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1
}

export function hex(unit: number): string {
  return `0x${unit.toString(16).padStart(2, '0').toUpperCase()}`
}

export const limits = {
  depth: 64,
  /** For all objects of one body together. */
  members: 20_000,
  /** Members and elements around a body; in a batch, around each body. */
  envelope: 1_000,
  /** A batch with more tasks is not read further. The schema has the limit of accepted tasks. */
  list: 10_000,
  /** For the text of one body. */
  bytes: 262_144
} as const

/** A stretch of the text, in bytes. */
export interface Part {
  start: number
  end: number
}

export function inside(at: number, { start, end }: Part): boolean {
  return at >= start && at < end
}
