import {
  byteAt,
  hex,
  hexDigit,
  plain,
  limits,
  JsonProblem,
  NOWHERE,
  pointerOf,
  inside,
  type JsonProblemCode,
  type Part,
  survivesDouble
} from './source.ts'

/** The role of a value: `holder` has the verbatim member, `batch` has the list of holders. */
export type ObjectRole = 'plain' | 'holder' | 'batch' | 'list'

type Counted = Part & { members: number }

/** The names to look for; both are compared after unescaping. */
interface Names {
  verbatim: string
  list: string
}

// The place of the scan, level by level, as pointerOf reads it. All scans share it: no scan starts before the last one ends.
const levels = new Int32Array(2 * limits.depth + 4)
const SHORT_ESCAPES = [...Buffer.from('"\\/bfnrt')]

/**
 * One pass over UTF-8 bytes. It refuses any text that is not strict JSON or breaks I-JSON (RFC 7493). Duplicate names are
 * found later, by the count of members. It reads each byte once and allocates nothing per value.
 * Noncharacters such as U+FFFF are accepted: they stay unchanged.
 */
export class Scan {
  /** Start and end of each verbatim value: at 0 and 1, or for element i of the list at 2i and 2i + 1; 0 = absent. */
  readonly spans: number[] = [0, 0]
  /** Members of all objects together. */
  members = 0
  /** In a batch: the place and the number of members of its list, and of each element. */
  list: Counted | undefined
  readonly elements: Counted[] = []
  readonly #bytes: Buffer
  readonly #names: Names
  /** In this part the names of every object are kept, to find the duplicate. This is slow. */
  readonly #careful: Part | undefined
  #at = 0
  #depth = 0
  #maxDepth: number = limits.depth
  /** The number of members that may follow. Outside of bodies, elements count too. */
  #left: number = limits.envelope
  #verbatim = false
  #holder = 0

  constructor(bytes: Buffer, names: Names, careful?: Part) {
    this.#bytes = bytes
    this.#names = names
    this.#careful = careful
  }

  run(role: ObjectRole): void {
    this.#value(role)
    if (this.#space() !== -1) throw this.#unexpected('the end')
  }

  /** The next byte after white space. -1 at the end. */
  #space(): number {
    const bytes = this.#bytes
    let byte = byteAt(bytes, this.#at)
    while (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) byte = byteAt(bytes, ++this.#at)
    return byte
  }

  #value(role: ObjectRole): void {
    const byte = this.#space()
    if (byte === 0x22) this.#string()
    else if (byte === 0x7b) this.#object(role)
    else if (byte === 0x5b) this.#array(role)
    else if (byte === 0x2d || (byte >= 0x30 && byte <= 0x39)) this.#number()
    else if (byte === 0x74) this.#word('true')
    else if (byte === 0x66) this.#word('false')
    else if (byte === 0x6e) this.#word('null')
    else throw this.#unexpected('a value')
  }

  #object(role: ObjectRole): void {
    this.#enter()
    if (this.#space() === 0x7d) return this.#leave()
    const seen = this.#careful && inside(this.#at, this.#careful) ? new Set<string>() : undefined
    for (;;) {
      levels[this.#depth] = NOWHERE
      if (this.#space() !== 0x22) throw this.#unexpected('a member name in quotes')
      const start = this.#at
      this.#string()
      const end = this.#at
      levels[this.#depth] = ~start
      this.members++
      if (--this.#left < 0) throw this.#tooMany()
      if (seen !== undefined) this.#remember(seen, start, end)
      if (this.#space() !== 0x3a) throw this.#unexpected('a colon')
      this.#at++
      if (role === 'plain') this.#value('plain')
      else this.#known(role, start, end)
      const byte = this.#space()
      if (byte === 0x7d) return this.#leave()
      if (byte !== 0x2c) throw this.#unexpected('a comma or }')
      this.#at++
    }
  }

  #array(role: ObjectRole): void {
    this.#enter()
    const depth = this.#depth
    if (this.#space() === 0x5d) return this.#leave()
    for (let index = 0; ; index++) {
      levels[depth] = index
      if (role === 'list') this.#element(index)
      else if (this.#verbatim || --this.#left >= 0) this.#value('plain')
      else throw this.#tooMany()
      const byte = this.#space()
      if (byte === 0x5d) return this.#leave()
      if (byte !== 0x2c) throw this.#unexpected('a comma or ]')
      this.#at++
    }
  }

  #enter(): void {
    if (this.#depth >= this.#maxDepth) {
      throw this.#problem('TOO_DEEP', `More than ${limits.depth} levels deep`, this.#at)
    }
    levels[++this.#depth] = NOWHERE
    this.#at++
  }

  #leave(): void {
    this.#depth--
    this.#at++
  }

  /** A member of a holder or of a batch. */
  #known(role: ObjectRole, start: number, end: number): void {
    if (role === 'holder' && this.#named(this.#names.verbatim, start, end)) this.#body()
    else if (role === 'batch' && this.#named(this.#names.list, start, end)) this.list = this.#part('list')
    else this.#value('plain')
  }

  #part(role: ObjectRole): Counted {
    this.#space()
    const start = this.#at
    const before = this.members
    this.#value(role)
    return { start, end: this.#at, members: this.members - before }
  }

  #named(name: string, start: number, end: number): boolean {
    // Equally long in bytes, or longer because of escapes.
    if (end - start < name.length + 2) return false
    const raw = this.#bytes.toString('utf8', start, end)
    return end - start === name.length + 2
      ? raw === `"${name}"`
      : raw.includes('\\') && JSON.parse(raw) === name
  }

  /** One element of the list. It has its own limit for the members around its body. */
  #element(index: number): void {
    if (index >= limits.list) {
      throw this.#problem('TOO_MANY_MEMBERS', `More than ${limits.list} elements`, this.#at)
    }
    if (index > 0) this.spans.push(0, 0)
    this.#holder = 2 * index
    this.#left = limits.envelope
    this.elements.push(this.#part('holder'))
  }

  /** A verbatim value. It has its own limits, its numbers stay as they are, and its place is kept. */
  #body(): void {
    this.#space()
    const maxDepth = this.#maxDepth
    const left = this.#left
    this.#maxDepth = this.#depth + limits.depth
    this.#left = limits.members
    this.#verbatim = true
    const start = this.#at
    this.#value('plain')
    this.spans[this.#holder] = start
    this.spans[this.#holder + 1] = this.#at
    this.#verbatim = false
    this.#left = left
    this.#maxDepth = maxDepth
  }

  #string(): void {
    const bytes = this.#bytes
    let at = this.#at + 1
    for (;;) {
      at = plain(bytes, at)
      const byte = byteAt(bytes, at)
      if (byte === 0x22) {
        this.#at = at + 1
        return
      }
      if (byte === 0x5c) at = this.#escape(at)
      else if (byte === -1) throw this.#problem('NOT_JSON', 'A string without its closing quote', this.#at)
      else throw this.#problem('NOT_JSON', `Unescaped control character ${hex(byte)} in a string`, at)
    }
  }

  /** The offset after the escape that begins here. */
  #escape(at: number): number {
    const bytes = this.#bytes
    const byte = byteAt(bytes, at + 1)
    if (byte !== 0x75) {
      if (SHORT_ESCAPES.includes(byte)) return at + 2
      throw this.#problem('NOT_JSON', 'Unknown escape in a string', at)
    }
    const unit = this.#unit(at)
    if (unit === 0) throw this.#problem('NOT_I_JSON', 'U+0000 in a string: no database text can hold it', at)
    if (unit < 0xd800 || unit > 0xdfff) return at + 6
    const paired = unit < 0xdc00 && byteAt(bytes, at + 6) === 0x5c && byteAt(bytes, at + 7) === 0x75
    const low = paired ? this.#unit(at + 6) : 0
    if (low >= 0xdc00 && low <= 0xdfff) return at + 12
    throw this.#problem('NOT_I_JSON', `Lone surrogate ${hex(unit)} in a string`, at)
  }

  #unit(at: number): number {
    let unit = 0
    for (let i = at + 2; i < at + 6; i++) {
      const digit = hexDigit(byteAt(this.#bytes, i))
      if (digit < 0) throw this.#problem('NOT_JSON', 'Unknown escape in a string', at)
      unit = unit * 16 + digit
    }
    return unit
  }

  #number(): void {
    const bytes = this.#bytes
    const start = this.#at
    const whole = byteAt(bytes, start) === 0x2d ? start + 1 : start
    let at = this.#digits(whole)
    if (at > whole + 1 && byteAt(bytes, whole) === 0x30) {
      throw this.#problem('NOT_JSON', 'Malformed number', start)
    }
    let simple = at - whole <= 15
    if (byteAt(bytes, at) === 0x2e) {
      simple = false
      at = this.#digits(at + 1)
    }
    if ((byteAt(bytes, at) | 0x20) === 0x65) {
      simple = false
      const sign = byteAt(bytes, at + 1)
      at = this.#digits(sign === 0x2b || sign === 0x2d ? at + 2 : at + 1)
    }
    if (!simple && !this.#verbatim && !survivesDouble(bytes.toString('latin1', start, at))) {
      throw this.#problem('NOT_I_JSON', 'A number that a double cannot hold; send it as a string', start)
    }
    this.#at = at
  }

  /** The offset after the digits that begin here. There must be at least one digit. */
  #digits(from: number): number {
    const bytes = this.#bytes
    let at = from
    for (let byte = byteAt(bytes, at); byte >= 0x30 && byte <= 0x39; byte = byteAt(bytes, at)) at++
    if (at === from) throw this.#problem('NOT_JSON', 'Malformed number', this.#at)
    return at
  }

  #word(word: string): void {
    for (let i = 0; i < word.length; i++) {
      if (byteAt(this.#bytes, this.#at + i) !== word.charCodeAt(i)) throw this.#unexpected('a value')
    }
    this.#at += word.length
  }

  #remember(seen: Set<string>, start: number, end: number): void {
    const name: string = JSON.parse(this.#bytes.toString('utf8', start, end))
    if (seen.has(name)) throw this.#problem('NOT_I_JSON', 'The same member name twice in one object', start)
    seen.add(name)
  }

  #tooMany(): JsonProblem {
    const limit = this.#verbatim ? `${limits.members} members` : `${limits.envelope} members around the body`
    return this.#problem('TOO_MANY_MEMBERS', `More than ${limit}`, this.#at)
  }

  #unexpected(wanted: string): JsonProblem {
    const byte = byteAt(this.#bytes, this.#at)
    const found =
      byte === -1
        ? 'but the text ends'
        : `found ${byte > 0x20 && byte < 0x7f ? String.fromCharCode(byte) : hex(byte)}`
    return this.#problem('NOT_JSON', `Expected ${wanted}, ${found}`, this.#at)
  }

  #problem(code: JsonProblemCode, detail: string, offset: number): JsonProblem {
    return new JsonProblem(code, detail, offset, pointerOf(this.#bytes, levels.subarray(1, this.#depth + 1)))
  }
}
