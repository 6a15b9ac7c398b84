import { isUtf8 } from 'node:buffer'
import { JsonProblem } from './problem.ts'

/** A text in UTF-8, and what can be cut out of it by bytes. */
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
  // All ASCII: characters and bytes count alike, and a slice of the text costs nothing.
  const ascii = text.length === bytes.length
  return {
    bytes,
    text,
    cut: (start, end) => (ascii ? text.slice(start, end) : bytes.toString('utf8', start, end))
  }
}

/**
 * Decoding puts U+FFFD where a byte is wrong; the first that comes out changed is the first wrong one. Whole stretches
 * are compared first: one by one, 8 MiB of good bytes before it would hold everybody up.
 */
function firstBadByte(bytes: Buffer): number {
  const repaired = Buffer.from(bytes.toString())
  let at = 0
  while (at < bytes.length && bytes.subarray(at, at + stretch).equals(repaired.subarray(at, at + stretch))) {
    at += stretch
  }
  while (at < bytes.length && bytes[at] === repaired[at]) at++
  return Math.min(at, bytes.length)
}

const stretch = 4_096
