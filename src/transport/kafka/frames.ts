import type { Socket } from 'node:net'
import { protocolFailure } from '../judged.ts'

/** The memory of one client for answers that are not complete yet, over all its connections. */
export interface Room {
  readonly frameBytes: number
  readonly mostBytes: number
  held: number
}

/** Far above any answer to a Produce or Metadata, and above the largest batch that a broker accepts by default (1 MB). */
export const room = (frameBytes: number): Room => ({ frameBytes, mostBytes: 4 * frameBytes, held: 0 })

const lengthBytes = 4
const idBytes = 4
const firstBytes = 16_384

/**
 * Passes only complete answers to the listeners of the socket, each of a plausible length. The client itself would collect bytes
 * up to any length that the broker announces. `onThrown` gets the exceptions of listeners, for any event.
 */
export function judgeFrames(socket: Socket, room: Room, onThrown: (thrown: unknown) => void): void {
  const frames = frameReader(room)
  const emit = socket.emit.bind(socket) as (event: string | symbol, ...values: unknown[]) => boolean
  socket.emit = (event: string | symbol, ...values: unknown[]): boolean => {
    try {
      if (event === 'close') frames.drop()
      if (event !== 'data') return emit(event, ...values)
      return frames.take(values[0] as Buffer, whole => void emit('data', whole))
    } catch (thrown) {
      onThrown(thrown)
      return true
    }
  }
}

interface FrameReader {
  take(chunk: Buffer, tell: (whole: Buffer) => void): boolean
  drop(): void
}

function frameReader(room: Room): FrameReader {
  let held: Buffer | undefined
  let filled = 0

  /** The length of the frame at `start`, including its four length bytes. Undefined: not known yet. */
  function lengthAt(bytes: Buffer, start: number, end: number): number | undefined {
    if (end - start < lengthBytes) return undefined
    const length = bytes.readInt32BE(start)
    if (length < idBytes || length > room.frameBytes) throw protocolFailure('an answer of an invalid length')
    return lengthBytes + length
  }

  function grow(wanted: number): Buffer {
    const size = Math.max(firstBytes, wanted, 2 * (held?.length ?? 0))
    room.held += size - (held?.length ?? 0)
    const grown = Buffer.allocUnsafe(size)
    held?.copy(grown, 0, 0, filled)
    held = grown
    if (room.held > room.mostBytes) throw protocolFailure('more unfinished answers than are kept')
    return grown
  }

  function drop(): void {
    room.held -= held?.length ?? 0
    held = undefined
    filled = 0
  }

  /** Appends the part of the chunk that the held frame lacks. Returns where the rest begins. */
  function fill(chunk: Buffer, tell: (whole: Buffer) => void): number {
    let start = 0
    while (start < chunk.length) {
      const length = held && lengthAt(held, 0, filled)
      const wanted = Math.min((length ?? lengthBytes) - filled, chunk.length - start)
      const space = held && held.length >= filled + wanted ? held : grow(filled + wanted)
      chunk.copy(space, filled, start, start + wanted)
      filled += wanted
      start += wanted
      if (lengthAt(space, 0, filled) === filled) {
        const whole = space.subarray(0, filled)
        drop()
        tell(whole)
        break
      }
    }
    return start
  }

  return {
    drop,
    take(chunk, tell) {
      let start = held ? fill(chunk, tell) : 0
      let end = start
      for (;;) {
        const length = lengthAt(chunk, end, chunk.length)
        if (length === undefined || end + length > chunk.length) break
        end += length
      }
      if (end > start) tell(chunk.subarray(start, end))
      start = end
      if (start < chunk.length) fill(chunk.subarray(start), tell)
      return true
    }
  }
}
