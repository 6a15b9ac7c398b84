import { answerLimit } from '../../domain/redact.ts'
import type { Accepted, Answer, Verdict } from '../types.ts'
import { textOf } from '../../runtime/text-of.ts'

/** Bytes of an answer that are stored, and bytes that `accepted` gets. */
export const [bytesKept, bytesRead] = [answerLimit, 65_536]

// The headers from undici: names and values alternate, as latin1 bytes, in the order of arrival.
export type RawHeaders = Buffer[]

const headersStored = 50
const headerBytesStored = 8_192

/** The first value of a header, by its lower case name. */
export function header(raw: RawHeaders, name: string): string | undefined {
  for (let i = 0; i < raw.length; i += 2) {
    if (isNamed(raw[i], name)) return raw[i + 1]?.toString('latin1')
  }
  return undefined
}

/** Whether any `connection` header announces that this is the last answer of its connection. */
export function isLastAnswer(raw: RawHeaders): boolean {
  for (let i = 0; i < raw.length; i += 2) {
    if (!isNamed(raw[i], 'connection')) continue
    const options = raw[i + 1]?.toString('latin1').toLowerCase().split(',') ?? []
    if (options.some(option => option.trim() === 'close')) return true
  }
  return false
}

/** Compares the length first: most names differ in it, and need no conversion to text. */
const isNamed = (key: Buffer | undefined, name: string): boolean =>
  key?.length === name.length && key.toString('latin1').toLowerCase() === name

/** The headers that are stored as evidence. A cookie would be a secret in our tables, and is not needed. */
export function storedHeaders(raw: RawHeaders): [name: string, value: string][] {
  const stored: [string, string][] = []
  let bytes = 0
  for (let i = 0; i < raw.length && stored.length < headersStored; i += 2) {
    const name = raw[i]?.toString('latin1').toLowerCase() ?? ''
    const value = raw[i + 1]
    if (!value || name === 'set-cookie') continue
    bytes += name.length + value.length
    if (bytes > headerBytesStored) break
    stored.push([name, value.toString('latin1')])
  }
  return stored
}

/** Whether a single header is longer than servers commonly accept. */
export function hasLongHeader(raw: RawHeaders, limit: number): boolean {
  for (let i = 0; i < raw.length; i += 2) {
    if ((raw[i]?.length ?? 0) + (raw[i + 1]?.length ?? 0) > limit) return true
  }
  return false
}

/** The answer for `accepted`. Records whether `accepted` read the body, because then a broken body fails the attempt. */
export class ReadAnswer implements Answer {
  readonly status: number
  readonly #raw: RawHeaders
  readonly #body: Uint8Array
  #headers: Record<string, string> | undefined
  #json: { value: unknown } | undefined
  bodyUsed = false

  constructor(status: number, raw: RawHeaders, body: Uint8Array) {
    this.status = status
    this.#raw = raw
    this.#body = body
  }

  get headers(): Record<string, string> {
    return (this.#headers ??= joined(this.#raw))
  }

  get text(): string {
    this.bodyUsed = true
    return new TextDecoder().decode(this.#body)
  }

  get json(): unknown {
    this.#json ??= { value: parsed(this.text) }
    return this.#json.value
  }
}

function joined(raw: RawHeaders): Record<string, string> {
  // Without a prototype: a header may be called __proto__.
  const headers = Object.create(null) as Record<string, string>
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i]?.toString('latin1').toLowerCase() ?? ''
    const value = raw[i + 1]?.toString('latin1') ?? ''
    headers[name] = name in headers ? `${headers[name]}, ${value}` : value
  }
  return headers
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** The verdict of a handler's `accepted` on an answer, or the error in the handler. */
export function judgedBy(accepted: Accepted, answer: Answer): Verdict | { wrong: string } {
  try {
    const verdict: unknown = accepted(answer)
    // Plain JavaScript allows an `async accepted`. Its rejection must not end the process.
    if (verdict instanceof Promise) {
      verdict.catch(() => {})
      return { wrong: 'accepted_async' }
    }
    // It also allows `json && json.ok`, which is null for the answer null.
    return verdict === true || verdict === 'refused' ? verdict : false
  } catch (error) {
    return { wrong: `accepted_threw: ${textOf(error)}` }
  }
}

const longestMs = 3_600_000
/** A wait of more than a day is ignored as a mistake. */
const absurdMs = 86_400_000

const imfFixdate = /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT$/

/**
 * `Retry-After` in ms, at most an hour; undefined when there is none or it makes no sense (RFC 9110, 10.2.3). A date counts
 * from the answer's own `Date`, so that neither clock must be right.
 */
export function retryAfter(
  value: string | undefined,
  date: string | undefined,
  now: number
): number | undefined {
  if (value === undefined) return undefined
  const text = value.trim()
  const ms = /^\d{1,9}$/.test(text) ? Number(text) * 1_000 : dateOf(text) - (dateOf(date ?? '') || now)
  return ms >= 0 && ms <= absurdMs ? Math.min(ms, longestMs) : undefined
}

/** NaN if the text is not a date. */
const dateOf = (text: string): number => (imfFixdate.test(text) ? Date.parse(text) : Number.NaN)
