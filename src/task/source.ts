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

const stretch = 4_096

/**
 * Decoding puts U+FFFD where a byte is wrong; the first that comes out changed is the first wrong one. Only the stretch
 * it lies in is decoded: 8 MiB that end badly would hold everybody up for 150 ms.
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

/** Here, or up to three bytes before: a character has at most three bytes that continue it. */
function betweenCharacters(bytes: Buffer, at: number): number {
  if (at >= bytes.length) return bytes.length
  for (let end = at; end > at - 4; end--) if (((bytes[end] ?? 0) & 0xc0) !== 0x80) return end
  return at
}
