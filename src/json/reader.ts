import { hash } from 'node:crypto'
import { limits, sourceOf, type Source, type Part } from './source.ts'
import { Scan, type ObjectRole } from './scanner.ts'

export { JsonProblem } from './source.ts'

/** The kind of a text. It determines the place of the verbatim member. `plain` has none. */
export type JsonShape = 'task' | 'batch' | 'receipt' | 'reconcile' | 'plain'

const shapes: Record<JsonShape, { role: ObjectRole; verbatim: string }> = {
  task: { role: 'holder', verbatim: 'messageBody' },
  batch: { role: 'batch', verbatim: 'messageBody' },
  receipt: { role: 'holder', verbatim: 'data' },
  reconcile: { role: 'holder', verbatim: 'taskNos' },
  plain: { role: 'plain', verbatim: '' }
}

/** The result of reading a text: its value, and the exact text of its bodies. */
export class JsonRead {
  readonly value: unknown
  readonly #source: Source
  readonly #spans: number[]

  constructor(value: unknown, source: Source, spans: number[]) {
    this.value = value
    this.#source = source
    this.#spans = spans
  }

  get text(): string {
    return this.#source.text
  }

  /** The exact text of `messageBody` (or of a receipt's `data`); in a batch, of `tasks[index]`. */
  bodyText(index = 0): string | undefined {
    const start = this.#spans[2 * index] ?? 0
    return start === 0 ? undefined : this.#source.cut(start, this.#spans[2 * index + 1] ?? 0)
  }

  bodyBytes(index = 0): number {
    return (this.#spans[2 * index + 1] ?? 0) - (this.#spans[2 * index] ?? 0)
  }
}

/**
 * Reads a strict I-JSON text (RFC 7493) or throws a JsonProblem. Values that `JSON.parse` and `stringify` would silently
 * change are refused or, inside a body, kept as text: 9007199254740993, 1e400, two members of one name, 1.0.
 */
export function readJson(bytes: Uint8Array, shape: JsonShape): JsonRead {
  const source = sourceOf(bytes)
  const { members, spans } = scanned(source, shape)
  const value = parse(source.text, members, at => scanned(source, shape, at), { start: 0, end: bytes.length })
  return new JsonRead(value, source, spans)
}

/**
 * `readJson(bytes, 'batch')` with pauses for other work: 8 MiB of empty arrays would block the event loop for 500 ms.
 * A body that is too large is not parsed: its place in the value has `true`, and `bodyBytes` returns its size.
 */
export async function readBatch(bytes: Uint8Array, turn: () => Promise<unknown>): Promise<JsonRead> {
  if (bytes.length <= limits.bytes) return readJson(bytes, 'batch')
  const source = sourceOf(bytes)
  await turn()
  const { list, elements, members, spans } = scanned(source, 'batch')
  await turn()
  // Only the elements of a list can be read one by one. Any other text is small, or is refused.
  if (list === undefined || bytes[list.start] !== 0x5b) return readJson(bytes, 'batch')
  const again = (at: Part) => scanned(source, 'batch', at)
  const before = { start: 0, end: list.start }
  const after = { start: list.end, end: bytes.length }
  const around = `${source.cut(0, list.start)}[]${source.cut(list.end, bytes.length)}`
  const value = parse(around, members - list.members, again, before, after)
  const tasks: unknown[] = []
  let sinceTurn = 0
  for (const [index, part] of elements.entries()) {
    const [start = 0, end = 0] = spans.slice(2 * index, 2 * index + 2)
    tasks.push(
      end - start > limits.bytes
        ? JSON.parse(`${source.cut(part.start, start)}true${source.cut(end, part.end)}`)
        : parse(source.cut(part.start, part.end), part.members, again, part)
    )
    sinceTurn += part.end - part.start
    if (sinceTurn < limits.bytes) continue
    sinceTurn = 0
    await turn()
  }
  return new JsonRead(Object.assign(Object(value), { tasks }), source, spans)
}

function scanned(source: Source, shape: JsonShape, careful?: Part): Scan {
  const { role, verbatim } = shapes[shape]
  const scan = new Scan(source.bytes, { verbatim, list: 'tasks' }, careful)
  scan.run(role)
  return scan
}

/** A repeated name overwrites the first value: the value has fewer members than the text. A careful scan finds the place. */
function parse(text: string, members: number, again: (at: Part) => void, ...parts: Part[]): unknown {
  const value: unknown = JSON.parse(text)
  if (countMembers(value) !== members) parts.forEach(again)
  return value
}

/** With `for in`, which V8 takes from the shared shapes of the objects: five times as fast as `Object.values`. */
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

/** A sceneType that can be a part of a taskNo. */
const plainScene = /^[A-Za-z0-9._-]{0,64}$/

/**
 * The classic `messageCode:sceneType:md5(messageBody)`. A sceneType that a taskNo may not contain, or longer than 64, is replaced by
 * its MD5. A result that is too long for a taskNo is replaced by its SHA-256.
 */
export function defaultTaskNo(messageCode: string, sceneType: string, bodyText: string): string {
  const scene = plainScene.test(sceneType) ? sceneType : hash('md5', sceneType)
  const classic = `${messageCode}:${scene}:${hash('md5', bodyText)}`
  return classic.length <= 128 ? classic : hash('sha256', classic)
}

/** The messageCode in a taskNo of the classic form. Undefined for any other form. */
export function codeOfDefault(taskNo: string): string | undefined {
  return /^([^:]+):[^:]*:[0-9a-f]{32}$/.exec(taskNo)?.[1]
}

/** Whether this may be the hashed form. It shows nothing of its messageCode, except that it is long. */
export function mayBeHashedDefault(taskNo: string, messageCode: string): boolean {
  return /^[0-9a-f]{64}$/.test(taskNo) && messageCode.length + 1 + longestSceneType + 1 + 32 > 128
}

const longestSceneType = 64

/** Members outside of the hashed content: `messageBody` is hashed as text, and a repeated post may have another trace. */
const apart = new Set(['taskNo', 'messageBody', 'traceparent'])

/**
 * Equal for two posts of the same content: all members except `taskNo` and `traceparent`, in any order and with any white
 * space, and the exact text of the body.
 */
export function contentHash(envelope: Record<string, unknown>, bodyText: string): string {
  // The first part contains no raw line feed, so no other pair gives the same text.
  return hash('sha256', `${canonicalObject(envelope, apart)}\n${bodyText}`, 'base64url')
}

function canonical(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`
  return canonicalObject(value as Record<string, unknown>)
}

/** Called for each task. A loop, because lists of pairs would cost as much as the hash. */
function canonicalObject(value: Record<string, unknown>, without?: ReadonlySet<string>): string {
  let text = '{'
  for (const name of Object.keys(value).sort()) {
    const member = value[name]
    if (member === undefined || without?.has(name)) continue
    if (text.length > 1) text += ','
    text += `${JSON.stringify(name)}:${canonical(member)}`
  }
  return `${text}}`
}
