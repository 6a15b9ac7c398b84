import { answerLimit } from '../../domain/redact.ts'
import { joined, type RawHeaders } from './headers.ts'
import type { Accepted, Answer, Verdict } from '../types.ts'
import { namedTextOf } from '../../runtime/text-of.ts'

/** Bytes of an answer that are stored, and bytes that `accepted` gets. */
export const [bytesKept, bytesRead] = [answerLimit, 65_536]

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
    return { wrong: `accepted_threw: ${namedTextOf(error)}` }
  }
}
