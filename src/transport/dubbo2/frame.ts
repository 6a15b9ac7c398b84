// The frame of the classic Dubbo protocol: https://dubbo.apache.org/en/docs3-v2/java-sdk/reference-manual/protocol/dubbo/
// magic dabb · flags and serialization · status · id (8) · length of the body (4) · body; numbers in network order.

export const flags = { request: 0x80, twoWay: 0x40, event: 0x20 } as const
/** The id of hessian2 in the low five bits. */
const hessian2 = 2
const magic = 0xdabb
export const headBytes = 16

export interface Frame {
  isRequest: boolean
  isTwoWay: boolean
  isEvent: boolean
  status: number
  id: bigint
  body: Buffer
}

export function frameOf(flag: number, status: number, id: bigint, body: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(headBytes + body.length)
  frame.writeUInt16BE(magic, 0)
  frame[2] = flag | hessian2
  frame[3] = status
  frame.writeBigUInt64BE(id, 4)
  frame.writeUInt32BE(body.length, 12)
  frame.set(body, headBytes)
  return frame
}

/**
 * Cuts a stream into frames, however it was split on its way. `push` throws on what is no frame, or on one whose body is
 * larger than `most`: nothing after it can be trusted.
 */
export function frames(most: number, take: (frame: Frame) => void): { push(chunk: Buffer): void } {
  let chunks: Buffer[] = []
  let held = 0
  let wanted = headBytes

  return {
    push(chunk) {
      chunks.push(chunk)
      held += chunk.length
      // A body is waited for in pieces; of a head each byte is looked at as it comes.
      if (held < wanted && wanted > headBytes) return
      let bytes = chunks.length === 1 ? chunk : Buffer.concat(chunks)
      for (;;) {
        wanted = sizeOf(bytes, most)
        if (bytes.length < wanted || bytes.length < headBytes) break
        take(read(bytes.subarray(0, wanted)))
        bytes = bytes.subarray(wanted)
      }
      chunks = bytes.length > 0 ? [bytes] : []
      held = bytes.length
    }
  }
}

function sizeOf(bytes: Buffer, most: number): number {
  // Wrong from its first byte on: not to be waited for until sixteen have come.
  if (bytes.length > 0 && bytes[0] !== magic >> 8) throw new Error('protocol: not Dubbo')
  if (bytes.length > 1 && bytes[1] !== (magic & 0xff)) throw new Error('protocol: not Dubbo')
  if (bytes.length < headBytes) return headBytes
  const length = bytes.readUInt32BE(12)
  if (length > most) throw new Error(`answer_too_long: ${length} bytes, at most ${most} are read`)
  return headBytes + length
}

const read = (bytes: Buffer): Frame => {
  const flag = bytes[2] ?? 0
  return {
    isRequest: (flag & flags.request) !== 0,
    isTwoWay: (flag & flags.twoWay) !== 0,
    isEvent: (flag & flags.event) !== 0,
    status: bytes[3] ?? 0,
    id: bytes.readBigUInt64BE(4),
    body: bytes.subarray(headBytes)
  }
}
