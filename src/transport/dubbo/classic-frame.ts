// The frame of the classic Dubbo protocol: https://dubbo.apache.org/en/docs3-v2/java-sdk/reference-manual/protocol/dubbo/
// magic dabb · flags and serialization · status · id (8) · length of the body (4) · body; numbers in network order.
import type { Outcome } from '../../domain/types.ts'
import { failed } from '../failure.ts'

export const flags = { request: 0x80, twoWay: 0x40, event: 0x20 } as const
/** The id of hessian2 in the low five bits. */
const hessian2 = 2
const magic = 0xdabb
const headBytes = 16

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

/** A body in more chunks than this is joined into one buffer: each chunk is held by itself. */
const piecesMost = 1_024

/**
 * Cuts a stream into frames, however the chunks are split. `push` throws on bytes that are no frame, or on a body larger
 * than `most`: nothing after it can be trusted.
 */
export function frames(most: number, take: (frame: Frame) => void): { push(chunk: Buffer): void } {
  let chunks: Buffer[] = []
  let held = 0
  let wanted = headBytes

  return {
    push(chunk) {
      chunks.push(chunk)
      held += chunk.length
      // A body is collected in chunks. The bytes of a head are checked as they come.
      if (held < wanted && wanted > headBytes) {
        if (chunks.length > piecesMost) chunks = [Buffer.concat(chunks)]
        return
      }
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
  // Fails at the first wrong byte, before all sixteen bytes of the head are here.
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

/** The outcome of a status other than 20. Its text holds the stack and the arguments: it is matched and never stored. */
export function errorOf(status: number, text: string): Outcome {
  return { ...meant(status, text), status }
}

function meant(status: number, text: string): Outcome {
  switch (status) {
    case 25:
      return /too large/i.test(text)
        ? { kind: 'refused', reason: 'too_large: larger than the provider accepts' }
        : failed('provider: cannot read the call')
    case 31:
      return failed('timeout: the provider gave up')
    case 40:
    case 60:
      return failed('target_missing: the service, version or group does not exist')
    case 70:
      return serviceError(text)
    case 100:
      return failed('provider_busy')
    default:
      return failed(`provider: status ${status}`)
  }
}

const noMethod = /^[\w.]*RpcException: No such method /
/** The message is only the name of a class: one of `types`. */
const noType = /^[\w.]*RpcException: [\w.$]+$/
const unfit =
  /^[\w.]*RpcException: (?:GenericFilter#invoke args\.length|(?:[\w.]+: )?(?:Failed to parse date|Failed to set pojo)|(?:[\w.]+\.)?(?:NumberFormat|ClassCast)Exception)/
const inGenericFilter = /^[\w.]+\.GenericFilter\.invoke\(/

/**
 * Any filter of the provider may fail with this status, and a retry may succeed. The arguments are wrong for good only if the
 * GenericFilter itself threw one of these errors. The same words deeper in a stack, or in a message, mean something else.
 */
function serviceError(text: string): Outcome {
  const first = text.split('\n', 1)[0] ?? ''
  const top = /\n\tat ([^\n]*)/.exec(text)?.[1] ?? ''
  if (!inGenericFilter.test(top)) return failed('provider: service error')
  if (noMethod.test(first)) return failed('target_missing: the method does not exist')
  if (noType.test(first)) return failed('target_missing: the provider lacks one of the types')
  if (unfit.test(first)) return { kind: 'refused', reason: 'bad_arguments: they do not match the method' }
  return failed('provider: service error')
}
