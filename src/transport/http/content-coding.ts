import { isUtf8 } from 'node:buffer'
import { promisify } from 'node:util'
import { brotliDecompress, constants, gunzip, inflate, inflateRaw } from 'node:zlib'

/** A body without its content codings. `broken`: why a part of it is missing. */
interface Decoded {
  body: Buffer
  broken?: string
}

/**
 * Decodes a body by the codings of its headers, in the order in which they were applied (RFC 9110, section 8.4). None was asked for:
 * some servers and proxies send them to everybody. Never rejects.
 */
export type ContentDecoder = (
  body: Buffer,
  codings: readonly string[],
  by: { downstream: string; isWanted: () => boolean }
) => Promise<Decoded>

/** An application and a proxy in front of it may each add one. */
const codingsMost = 2
const triesMost = 4
/** Bodies that are decoded at the same time, as many as Node has threads for it: brotli fills 16 MB before its first byte. */
const decodedMost = 4

const { Z_SYNC_FLUSH, Z_FINISH, BROTLI_OPERATION_FLUSH, BROTLI_OPERATION_FINISH } = constants
const gunzipped = promisify(gunzip)
const inflated = promisify(inflate)
const inflatedRaw = promisify(inflateRaw)
const unbrotlied = promisify(brotliDecompress)

/**
 * `most`: bytes that are kept of a decoded body; a bomb costs no more. Outside of the event loop, one body of each downstream at a time:
 * the bombs of one keep no other waiting.
 */
export function contentDecoder(most: number): ContentDecoder {
  /** In the order of their turns. */
  const waiting = new Map<string, (() => Promise<void>)[]>()
  const busy = new Set<string>()

  function start(): void {
    for (const [downstream, bodies] of waiting) {
      if (busy.size === decodedMost) return
      if (!busy.has(downstream)) void decodeNext(downstream, bodies)
    }
  }

  async function decodeNext(downstream: string, bodies: (() => Promise<void>)[]): Promise<void> {
    busy.add(downstream)
    await bodies.shift()?.()
    busy.delete(downstream)
    waiting.delete(downstream)
    if (bodies.length > 0) waiting.set(downstream, bodies)
    start()
  }

  return (body, codings, { downstream, isWanted }) =>
    new Promise(resolve => {
      const bodies = waiting.get(downstream) ?? []
      bodies.push(async () => resolve(isWanted() ? await decoded(body, codings, most) : { body }))
      waiting.set(downstream, bodies)
      start()
    })
}

async function decoded(body: Buffer, codings: readonly string[], most: number): Promise<Decoded> {
  const named = codings.filter(coding => coding !== 'identity')
  if (named.length > codingsMost) return { body, broken: 'content_coding: more than two' }
  let read: Decoded = { body }
  for (const coding of named.toReversed()) {
    if (read.body.length === 0) break
    const next = await decodedOnce(read.body, coding, most)
    read = read.broken === undefined ? next : { ...read, body: next.body }
  }
  return read
}

/** A text that only claims a coding is returned as it is: no coded body is UTF-8. */
async function decodedOnce(body: Buffer, coding: string, most: number): Promise<Decoded> {
  try {
    return { body: await decode(body, coding, { most, isWhole: true }) }
  } catch (error) {
    const isLong = (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE'
    if (!isLong && isUtf8(body)) return { body }
    // The name is the server's own text, and becomes part of a reason.
    const broken = isLong ? 'answer_too_long' : `content_coding: ${coding.slice(0, 20)}`
    return { body: await beginningOf(body, coding, most), broken }
  }
}

/** A decoded beginning of a body that is cut, damaged, or too long when it is decoded. Empty for the worst of bombs. */
async function beginningOf(body: Buffer, coding: string, most: number): Promise<Buffer> {
  for (let tries = 0, { length } = body; tries < triesMost; tries++, length >>= 1) {
    try {
      return await decode(body.subarray(0, length), coding, { most, isWhole: false })
    } catch {
      // Half of it may be sound, or short enough.
    }
  }
  return Buffer.alloc(0)
}

async function decode(
  body: Buffer,
  coding: string,
  { most, isWhole }: { most: number; isWhole: boolean }
): Promise<Buffer> {
  const zlib = { maxOutputLength: most, finishFlush: isWhole ? Z_FINISH : Z_SYNC_FLUSH }
  switch (coding) {
    case 'gzip':
    case 'x-gzip':
      return await gunzipped(body, zlib)
    case 'deflate':
      // Some servers leave out the header of zlib (RFC 9110, section 8.4.1.2).
      return await (((body[0] ?? 0) & 0x0f) === 8 ? inflated(body, zlib) : inflatedRaw(body, zlib))
    case 'br': {
      const finishFlush = isWhole ? BROTLI_OPERATION_FINISH : BROTLI_OPERATION_FLUSH
      return await unbrotlied(body, { maxOutputLength: most, finishFlush })
    }
    default:
      throw new TypeError('unknown')
  }
}
