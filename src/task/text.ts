import { isUtf8 } from 'node:buffer'
import { hash } from 'node:crypto'
import { JsonProblem } from './problem.ts'
import { Scan, type Role } from './scan.ts'

export { JsonProblem, type JsonProblemCode } from './problem.ts'
export { limits } from './scan.ts'

/** What a text should be: it says where the member lies that is delivered verbatim. `plain` has none. */
export type JsonShape = 'task' | 'batch' | 'receipt' | 'plain'

const shapes: Record<JsonShape, { role: Role; verbatim: string }> = {
  task: { role: 'holder', verbatim: 'messageBody' },
  batch: { role: 'batch', verbatim: 'messageBody' },
  receipt: { role: 'holder', verbatim: 'data' },
  plain: { role: 'plain', verbatim: '' }
}

/** A text that was read: its value, and the very text of its bodies, cut out without a copy of the rest. */
export class JsonRead {
  readonly value: unknown
  readonly text: string
  readonly #bytes: Buffer
  readonly #spans: number[]

  constructor(value: unknown, text: string, bytes: Buffer, spans: number[]) {
    this.value = value
    this.text = text
    this.#bytes = bytes
    this.#spans = spans
  }

  /** The text of `messageBody` (or a receipt's `data`) as it was posted; in a batch, of `tasks[index]`. */
  bodyText(index = 0): string | undefined {
    const [start, end] = this.#span(index)
    if (start === 0) return undefined
    // All ASCII: characters and bytes count alike, and a slice of the text costs nothing.
    return this.text.length === this.#bytes.length
      ? this.text.slice(start, end)
      : this.#bytes.toString('utf8', start, end)
  }

  bodyBytes(index = 0): number {
    const [start, end] = this.#span(index)
    return end - start
  }

  #span(index: number): [start: number, end: number] {
    return [this.#spans[2 * index] ?? 0, this.#spans[2 * index + 1] ?? 0]
  }
}

/**
 * Reads a strict I-JSON text (RFC 7493) or throws a JsonProblem. What `JSON.parse` and `stringify` would change without
 * a word is refused or, inside a body, kept as text: 9007199254740993, 1e400, two members of one name, 1.0.
 */
export function readJson(bytes: Uint8Array, shape: JsonShape): JsonRead {
  const buffer = Buffer.isBuffer(bytes)
    ? bytes
    : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (!isUtf8(buffer)) throw new JsonProblem('NOT_UTF8', 'Not UTF-8', firstBadByte(buffer))
  if (buffer[0] === 0xef && buffer[1] === 0xbb && buffer[2] === 0xbf) {
    throw new JsonProblem('NOT_I_JSON', 'A byte order mark', 0)
  }
  const { role, verbatim } = shapes[shape]
  const names = { verbatim, list: 'tasks' }
  const scan = new Scan(buffer, names)
  scan.run(role)
  const text = buffer.toString('utf8')
  const value: unknown = JSON.parse(text)
  // A name said twice overwrites what it named: the value has fewer members than the text.
  if (countMembers(value) !== scan.members) new Scan(buffer, names, true).run(role)
  return new JsonRead(value, text, buffer, scan.spans)
}

/** `for in`, which V8 answers from the shapes that objects share: five times as fast as `Object.values`. */
function countMembers(value: unknown): number {
  let count = 0
  if (Array.isArray(value)) {
    for (const element of value) if (isNested(element)) count += countMembers(element)
  } else if (isNested(value)) {
    for (const name in value) {
      const member = value[name]
      count += isNested(member) ? 1 + countMembers(member) : 1
    }
  }
  return count
}

function isNested(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null
}

/** Decoding puts U+FFFD where a byte is wrong; the first that comes out changed is the first wrong one. */
function firstBadByte(bytes: Buffer): number {
  const repaired = Buffer.from(bytes.toString('utf8'))
  const at = bytes.findIndex((byte, i) => byte !== repaired[i])
  return at < 0 ? bytes.length : at
}

/** The classic `messageCode:sceneType:md5(messageBody)`; where that is too long for a taskNo, its SHA-256. */
export function defaultTaskNo(messageCode: string, sceneType: string, bodyText: string): string {
  const classic = `${messageCode}:${sceneType}:${hash('md5', bodyText)}`
  return classic.length <= 128 ? classic : hash('sha256', classic)
}

/**
 * Equal for two posts of the same content: the members as posted but for `taskNo`, in any order and with any white
 * space, and the body's very text.
 */
export function contentHash(envelope: Record<string, unknown>, bodyText: string): string {
  const { taskNo: _, messageBody: __, ...members } = envelope
  // A line feed cannot occur raw in the first part, so the two cannot be shifted into each other.
  return hash('sha256', `${canonical(members)}\n${bodyText}`, 'base64url')
}

function canonical(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`
  const members = Object.entries(value)
    .filter(([, member]) => member !== undefined)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`).join()}}`
}
