import { randomFillSync } from 'node:crypto'

const digits = Buffer.from('0123456789abcdef')

// A system call for random bytes costs more than the rest of an id, so one call serves 512 ids.
const pool = new Uint8Array(4_096)
let used = pool.length

let last = 0
let counter = 0

// An id is written into this buffer and read as a whole. A concatenated string would be a tree of pieces: ten times as large,
// and walked at every lookup in a map.
const text = Buffer.from('00000000-0000-7000-0000-000000000000')

/**
 * A UUID of version 7 (RFC 9562), greater than every earlier id of this process: 48 bits of ms, a counter of 12 bits within
 * the ms (method 1 of section 6.2), 62 random bits. If the clock steps back or the counter overflows, ids run ahead of the clock.
 */
export function uuidv7(now = Date.now()): string {
  if (used + 8 > pool.length) {
    randomFillSync(pool)
    used = 0
  }
  if (now > last) next(now)
  else if (++counter > 0xfff) next(last + 1)
  put(15, counter >> 8, 1)
  put(16, counter)
  put(19, (random() & 0x3f) | 0x80)
  put(21, random())
  for (let at = 24; at < 36; at += 2) put(at, random())
  return text.toString('latin1')
}

function next(ms: number): void {
  last = ms
  counter = 0
  const time = ms.toString(16).padStart(12, '0')
  text.write(time.slice(0, 8), 0, 'latin1')
  text.write(time.slice(8), 9, 'latin1')
}

const random = (): number => pool[used++] ?? 0

/** Writes the last digits of a number in base 16, two or one. */
function put(at: number, number: number, count = 2): void {
  if (count === 2) text[at] = digits[(number >> 4) & 0xf] ?? 0
  text[at + count - 1] = digits[number & 0xf] ?? 0
}

export const lowestUuid = '00000000-0000-0000-0000-000000000000'

/** The lowest UUID v7 of a time: 48 bits of Unix ms come first. */
export function uuidAt(at: Date): string {
  const hex = Math.max(0, at.getTime()).toString(16).padStart(12, '0')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-0000-0000-000000000000`
}

/** The time in a UUID v7. */
export const timeOf = (id: string): Date => new Date(Number.parseInt(id.replace('-', '').slice(0, 12), 16))

/** The `webhook-id`: the same on every attempt, so that a downstream can tell a repeat. Holds no dot. */
export function deliveryId(taskId: string, downstream: string): string {
  return `${taskId}_${downstream}`
}

/** The delivery of a `webhook-id`. Null for any other text. */
export function deliveryOf(webhookId: string): { taskId: string; downstream: string } | null {
  const [taskId = '', downstream = '', ...more] = webhookId.split('_')
  const isOne = more.length === 0 && uuidForm.test(taskId) && downstreamForm.test(downstream)
  return isOne ? { taskId, downstream } : null
}

/** A taskNo, as a POST accepts it. */
export const taskNoForm = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/
/** A messageCode, as producers post it and handlers name it. */
export const messageCodeForm = /^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$/
/** The name of a downstream. */
export const downstreamForm = /^[a-z][a-z0-9-]{0,31}$/
export const uuidForm = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
export const highestUuid = 'ffffffff-ffff-ffff-ffff-ffffffffffff'

/** The version of a handler as people see it: 8 hexadecimal digits. PostgreSQL has it as a signed integer. */
export const versionText = (version: number): string => (version >>> 0).toString(16).padStart(8, '0')
