/** -1 past the end. Never reads there: V8 keeps a slower load for good once one did. */
export function byteAt(bytes: Buffer, at: number): number {
  return at < bytes.length ? (bytes[at] as number) : -1
}

/** The next byte that is not just part of a string. Four at a time: twice as fast, and bodies are mostly strings. */
export function plain(bytes: Buffer, from: number): number {
  let at = from
  for (const fours = bytes.length - 3; at < fours; at += 4) {
    const kind = kindAt(bytes, at) | kindAt(bytes, at + 1) | kindAt(bytes, at + 2) | kindAt(bytes, at + 3)
    if (kind !== 0) break
  }
  while (at < bytes.length && kindAt(bytes, at) === 0) at++
  return at
}

/** 1 where a string ends, escapes, or breaks off. */
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
