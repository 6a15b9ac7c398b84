import * as zlib from 'node:zlib'
import { protocolFailure } from '../judged.ts'

// The client's own decompression has no limit for its output, and its WebAssembly keeps the memory of each broken
// input: 200 of them cost 1.6 GB, and then neither reads nor writes work any more.

export type Compression = 'gzip' | 'snappy' | 'lz4' | 'zstd'

const methods: Record<Compression, (bytes: Buffer, most: number) => Buffer> = {
  gzip: (bytes, most) => zlib.gunzipSync(bytes, { maxOutputLength: most }),
  zstd(bytes, most) {
    if (!('zstdDecompressSync' in zlib)) throw protocolFailure('zstd needs Node 22.15 or newer')
    const unpack = zlib.zstdDecompressSync as (bytes: Buffer, options: object) => Buffer
    return unpack(bytes, { maxOutputLength: most })
  },
  snappy,
  lz4
}

/** Throws if the bytes are broken, or the output has more than `most` bytes. */
export const decompress = (how: Compression, bytes: Buffer, most: number): Buffer => methods[how](bytes, most)

/** The output so far. It is one buffer from the start, because back references copy from it. */
class Output {
  bytes: Buffer
  length = 0
  readonly #most: number

  constructor(expected: number, most: number) {
    this.#most = most
    this.bytes = Buffer.allocUnsafe(Math.min(expected, most))
  }

  /** Appends `count` bytes of another buffer, from `start`. */
  put(from: Buffer, start: number, count: number): void {
    if (start + count > from.length) throw broken()
    this.#reserve(count)
    from.copy(this.bytes, this.length, start, start + count)
    this.length += count
  }

  /** Appends a copy of the output from `back` bytes ago. The two ranges may overlap. */
  repeat(back: number, count: number): void {
    if (back === 0 || back > this.length) throw broken()
    this.#reserve(count)
    if (back === 1) this.bytes.fill(this.bytes[this.length - 1]!, this.length, this.length + count)
    else if (back >= count) this.bytes.copyWithin(this.length, this.length - back, this.length - back + count)
    else for (let i = this.length; i < this.length + count; i++) this.bytes[i] = this.bytes[i - back]!
    this.length += count
  }

  #reserve(count: number): void {
    const wanted = this.length + count
    if (wanted > this.#most)
      throw protocolFailure(`more than ${this.#most} bytes come out of a compressed answer`)
    if (wanted <= this.bytes.length) return
    const grown = Buffer.allocUnsafe(Math.min(this.#most, Math.max(wanted, 2 * this.bytes.length)))
    this.bytes.copy(grown, 0, 0, this.length)
    this.bytes = grown
  }

  get whole(): Buffer {
    return this.bytes.subarray(0, this.length)
  }
}

const broken = (): Error => protocolFailure('a compressed answer is broken')

const xerial = Buffer.from('\x82SNAPPY\0', 'latin1')
const xerialHead = 16

/** https://github.com/google/snappy/blob/main/format_description.txt, in the frames of Java's clients or without. */
function snappy(bytes: Buffer, most: number): Buffer {
  const output = new Output(4 * bytes.length, most)
  if (!bytes.subarray(0, xerial.length).equals(xerial)) {
    snappyBlock(bytes, output)
    return output.whole
  }
  for (let at = xerialHead; at < bytes.length;) {
    const end = at + 4 + bytes.readUInt32BE(at)
    if (end > bytes.length) throw broken()
    snappyBlock(bytes.subarray(at + 4, end), output)
    at = end
  }
  return output.whole
}

function snappyBlock(bytes: Buffer, output: Output): void {
  let at = 0
  while (bytes.readUInt8(at++) >= 128) if (at > 4) throw broken()
  while (at < bytes.length) {
    const tag = bytes[at++]!
    const kind = tag & 3
    if (kind === 0) {
      let count = tag >> 2
      if (count >= 60) {
        const width = count - 59
        count = bytes.readUIntLE(at, width)
        at += width
      }
      output.put(bytes, at, count + 1)
      at += count + 1
    } else if (kind === 1) {
      output.repeat(((tag >> 5) << 8) | bytes.readUInt8(at), ((tag >> 2) & 7) + 4)
      at += 1
    } else {
      const width = kind === 2 ? 2 : 4
      output.repeat(bytes.readUIntLE(at, width), (tag >> 2) + 1)
      at += width
    }
  }
}

const lz4Magic = 0x18_4d_22_04

/** https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md; checksums are not verified: TCP and the batch have their own. */
function lz4(bytes: Buffer, most: number): Buffer {
  if (bytes.readUInt32LE(0) !== lz4Magic) throw broken()
  const flags = bytes.readUInt8(4)
  const [hasBlockSum, hasSize, hasDictionary] = [flags & 0x10, flags & 8, flags & 1]
  if (hasDictionary) throw broken()
  const output = new Output(4 * bytes.length, most)
  for (let at = hasSize ? 15 : 7; ;) {
    const head = bytes.readUInt32LE(at)
    at += 4
    if (head === 0) return output.whole
    const size = head & 0x7f_ff_ff_ff
    if (at + size > bytes.length) throw broken()
    if (head > 0x7f_ff_ff_ff) output.put(bytes, at, size)
    else lz4Block(bytes.subarray(at, at + size), output)
    at += size + (hasBlockSum ? 4 : 0)
  }
}

function lz4Block(bytes: Buffer, output: Output): void {
  let at = 0
  const more = (count: number): number => {
    if (count < 15) return count
    for (let next = 255; next === 255; count += next) next = bytes.readUInt8(at++)
    return count
  }
  while (at < bytes.length) {
    const token = bytes.readUInt8(at++)
    const literals = more(token >> 4)
    output.put(bytes, at, literals)
    at += literals
    // The last sequence has no match.
    if (at >= bytes.length) return
    const back = bytes.readUInt16LE(at)
    at += 2
    output.repeat(back, more(token & 15) + 4)
  }
}
