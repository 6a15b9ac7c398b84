// The protobuf reader of the generated client trusts every length: a length beyond 2^31 moves it backwards, and it reads for
// ever. This file makes it check lengths, and the number of fields of a message, before it uses them.
// Wire format: https://protobuf.dev/programming-guides/encoding/
import { createRequire } from 'node:module'

interface Reader {
  getBuffer(): Uint8Array
  getCursor(): number
  getWireType(): number
}
type Method = (this: Reader, ...given: unknown[]) => unknown

// The same copy that the generated client uses.
const { BinaryReader } = createRequire(import.meta.resolve('rocketmq-client-nodejs'))('google-protobuf') as {
  BinaryReader: { prototype: Record<string, Method> }
}

const [delimited, startGroup] = [2, 3]
/** A length has at most this many bytes, seven bits each. */
const lengthBytes = 5

/** Throws if the length at the cursor leads out of the message. */
function checkLength(reader: Reader): void {
  const bytes = reader.getBuffer()
  const from = reader.getCursor()
  let length = 0
  for (let i = 0; i < lengthBytes; i++) {
    const byte = bytes[from + i]
    if (byte === undefined) break
    length += (byte & 0x7f) * 2 ** (7 * i)
    if (byte >= 0x80) continue
    if (from + i + 1 + length <= bytes.length) return
    break
  }
  throw new RangeError('a length leads out of its message')
}

/** Fields of a message. A route of 3,000 queues has half of this. Reading all takes a tenth of a second. */
const fieldsMost = 131_072

/** For each message that is being read: the number of fields that may still come. */
const fieldsLeft = new WeakMap<Reader, number>()

function countField(reader: Reader): void {
  const left = fieldsLeft.get(reader) ?? Math.min(fieldsMost, reader.getBuffer().length)
  if (left < 0) throw new RangeError('more fields than a message has')
  fieldsLeft.set(reader, left - 1)
}

function checkSkipped(reader: Reader): void {
  if (reader.getWireType() === delimited) checkLength(reader)
  // RocketMQ uses no groups. They could be nested without a limit.
  if (reader.getWireType() === startGroup) throw new RangeError('a group')
}

function before(name: string, check: (reader: Reader) => void): void {
  const { prototype } = BinaryReader
  const read = prototype[name]
  if (!read) throw new Error(`google-protobuf has changed: its reader has no ${name}`)
  prototype[name] = function (...given) {
    check(this)
    return read.apply(this, given)
  }
}

/** Called once, before the first answer is read. */
export function boundProtobuf(): void {
  before('nextField', countField)
  before('skipField', checkSkipped)
  for (const name of ['readMessage', 'readString', 'readBytes']) before(name, checkLength)
  for (const name of Object.keys(BinaryReader.prototype))
    if (name.startsWith('readPacked')) before(name, checkLength)
}
