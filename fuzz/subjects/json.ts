// The strict reader of JSON, compared with JSON.parse: both read the same value, and the text is kept as it was written.
import { isUtf8 } from 'node:buffer'
import { isDeepStrictEqual } from 'node:util'
import { bytes } from '../mutate.ts'
import { Finding } from '../reader.ts'
import type { Subject } from '../child.ts'
import { limits } from '../../src/json/source.ts'
import { JsonProblem, readBatch, readJson, type JsonRead, type JsonShape } from '../../src/json/reader.ts'

/** A text as latin1, or a long one that repeats its part, to check that the time grows in line with the size. */
export type JsonInput =
  | { shape: JsonShape; text: string; spaces?: number }
  | { shape: JsonShape; open: string; part: string; close: string }

export const subject: Subject<null, JsonInput> = async () => ({
  async play(input) {
    if ('part' in input) return linear(input)
    const read = judged(bytes(input.text), input.shape)
    if (input.shape !== 'batch') return
    // A long batch is read in parts, with turns of the event loop between them. The value must be the same.
    const long = Buffer.concat([bytes(input.text), Buffer.alloc(limits.bytes + (input.spaces ?? 0), ' ')])
    const inParts = await readBatch(long, () => Promise.resolve()).catch(problemOrThrow)
    if (read instanceof JsonProblem !== inParts instanceof JsonProblem)
      throw new Finding('wrong', `as a whole: ${describe(read)}; in parts: ${describe(inParts)}`)
    if (read instanceof JsonProblem || inParts instanceof JsonProblem) return
    if (!isDeepStrictEqual(read.value, inParts.value))
      throw new Finding('wrong', 'in parts it is another value')
    if (read.bodyText() !== inParts.bodyText()) throw new Finding('wrong', 'in parts it has another body')
  }
})

function judged(text: Buffer, shape: JsonShape): JsonRead | JsonProblem {
  const expected = parsed(text)
  const read = tried(() => readJson(text, shape))
  if (read instanceof JsonProblem) {
    if (read.code === 'NOT_UTF8' && isUtf8(text)) throw new Finding('wrong', 'NOT_UTF8, and it is')
    if (read.code === 'NOT_JSON' && expected)
      throw new Finding('wrong', `${read.detail}, and JSON.parse takes it`)
    if (!(read.offset >= 0 && read.offset <= text.length))
      throw new Finding('wrong', `an offset of ${read.offset}`)
    if (read.pointer.length > 300 || read.detail.length > 300)
      throw new Finding('wrong', 'a problem without end')
    return read
  }
  if (!expected) throw new Finding('wrong', 'it is taken, and JSON.parse refuses it')
  if (!isDeepStrictEqual(read.value, expected.value))
    throw new Finding('wrong', 'JSON.parse reads another value')
  if (!Buffer.from(read.text).equals(text)) throw new Finding('wrong', 'the text is not what was posted')
  const name = shape === 'task' ? 'messageBody' : shape === 'receipt' ? 'data' : undefined
  if (name === undefined) return read
  const body = read.bodyText()
  const { value } = expected as { value: Record<string, unknown> | null }
  const isThere =
    typeof value === 'object' && !Array.isArray(value) && value !== null && Object.hasOwn(value, name)
  if (isThere !== (body !== undefined))
    throw new Finding('wrong', `${name}: ${isThere} against ${body !== undefined}`)
  if (body === undefined) return read
  if (!text.includes(body)) throw new Finding('wrong', 'the body is not as it was written')
  if (read.bodyBytes() !== Buffer.byteLength(body))
    throw new Finding('wrong', 'its bytes are counted wrongly')
  if (!isDeepStrictEqual(JSON.parse(body), value?.[name]))
    throw new Finding('wrong', `${name} is another value`)
  return read
}

function parsed(text: Buffer): { value: unknown } | undefined {
  if (!isUtf8(text)) return undefined
  try {
    return { value: JSON.parse(text.toString()) }
  } catch {
    return undefined
  }
}

function tried(read: () => JsonRead): JsonRead | JsonProblem {
  try {
    return read()
  } catch (error) {
    return problemOrThrow(error)
  }
}

function problemOrThrow(error: unknown): JsonProblem {
  if (error instanceof JsonProblem) return error
  throw error
}

const describe = (read: JsonRead | JsonProblem): string =>
  read instanceof JsonProblem ? read.message : 'taken'

const short = 16 << 10

/** Four times the bytes may cost four times the work. The limit is twelve times, because quadratic time would cost sixteen. */
function linear({ shape, open, part, close }: Extract<JsonInput, { part: string }>): void {
  const of = (size: number): Buffer => {
    const inner = bytes(part)
    const whole = Math.floor(size / Math.max(1, inner.length)) * inner.length
    return Buffer.concat([bytes(open), Buffer.alloc(whole, inner), bytes(close)])
  }
  const [once, four, sixteen] = [of(short), of(4 * short), of(16 * short)].map(text => ({
    text,
    cost: Infinity
  }))
  if (!once || !four || !sixteen) return
  for (let turn = 0; turn < 3; turn++)
    for (const each of [once, four, sixteen])
      each.cost = Math.min(
        each.cost,
        costOf(() => tried(() => readJson(each.text, shape)))
      )
  // Both steps must exceed it: a growing table, or a collection, may slow down one of them.
  const least = 300
  if (four.cost > 12 * Math.max(least, once.cost) && sixteen.cost > 12 * Math.max(least, four.cost))
    throw new Finding('wrong', `16, 64 and 256 kB cost ${once.cost}, ${four.cost} and ${sixteen.cost} µs`)
}

/** µs of CPU time. */
function costOf(work: () => unknown): number {
  const before = process.cpuUsage()
  work()
  const { user, system } = process.cpuUsage(before)
  return user + system
}
