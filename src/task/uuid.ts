import { randomFillSync } from 'node:crypto'

const hex = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'))

// Asking the system for randomness costs more than the rest of an id: so for 512 ids at once.
const pool = new Uint8Array(4_096)
let used = pool.length

let last = 0
let counter = 0
let prefix = ''

/**
 * A UUID of version 7 (RFC 9562), greater than every one before it in this process: 48 bits of ms, 12 bits that count
 * within them (method 1 of its section 6.2), 62 random bits. If the clock steps back, or 4,096 do not suffice, it runs ahead.
 */
export function uuidv7(now = Date.now()): string {
  if (used + 8 > pool.length) {
    randomFillSync(pool)
    used = 0
  }
  if (now > last) next(now)
  else if (++counter > 0xfff) next(last + 1)
  const at = used
  used += 8
  return `${prefix}-7${hexAt(counter >> 8).slice(1)}${hexAt(counter & 0xff)}-${hexOf(at, 0x3f, 0x80)}${hexOf(at + 1)}-${hexOf(
    at + 2
  )}${hexOf(at + 3)}${hexOf(at + 4)}${hexOf(at + 5)}${hexOf(at + 6)}${hexOf(at + 7)}`
}

function next(ms: number): void {
  last = ms
  counter = 0
  const digits = ms.toString(16).padStart(12, '0')
  prefix = `${digits.slice(0, 8)}-${digits.slice(8)}`
}

function hexOf(at: number, keep = 0xff, set = 0): string {
  return hexAt(((pool[at] ?? 0) & keep) | set)
}

function hexAt(byte: number): string {
  return hex[byte] ?? '00'
}

/** The `webhook-id`: the same on every attempt, so that a downstream can tell a repeat. Holds no dot. */
export function deliveryId(taskId: string, downstream: string): string {
  return `${taskId}_${downstream}`
}
