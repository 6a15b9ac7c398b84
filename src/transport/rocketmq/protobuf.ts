// The reader of protobuf that the generated client uses trusts every length: one beyond 2^31 takes it backwards, and it reads for
// ever. It is made to look at lengths, and at how many fields a message can have, before it follows them.
// Wire format: https://protobuf.dev/programming-guides/encoding/
import { createRequire } from 'node:module'

interface Reader {
  getBuffer(): Uint8Array
  getCursor(): number
  getWireType(): number
}
type Method = (this: Reader, ...given: unknown[]) => unknown

// The very copy that the generated client reads with.
const { BinaryReader } = createRequire(import.meta.resolve('rocketmq-client-nodejs'))('google-protobuf') as {
  BinaryReader: { prototype: Record<string, Method> }
}

const [delimited, startGroup] = [2, 3]
/** Bytes of a length, seven bits each. */
const lengthBytes = 5

/** Throws where the length at the cursor leads out of the message. */
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

/** A route of 3,000 queues has half of them. They take a tenth of a second to read. */
const fieldsMost = 131_072

/** Of each message that is being read: how many fields its bytes can hold still. */
const fieldsLeft = new WeakMap<Reader, number>()

function countField(reader: Reader): void {
  const left = fieldsLeft.get(reader) ?? Math.min(fieldsMost, reader.getBuffer().length)
  if (left < 0) throw new RangeError('more fields than a message has')
  fieldsLeft.set(reader, left - 1)
}

function checkSkipped(reader: Reader): void {
  if (reader.getWireType() === delimited) checkLength(reader)
  // RocketMQ has no groups, which may be within one another without end.
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
