import { connect } from 'node:net'
import { at } from '../broker.ts'
import { failure, type Failure } from '../failure.ts'
import { patience, protocolFailure } from '../judged.ts'
import { flags, frameOf, frames, type Frame } from './classic-frame.ts'
import { isError } from '../../runtime/text-of.ts'

export interface Connection {
  /** `ip:port`. */
  readonly address: string
  /** Writes a call and returns its id. `settle` gets its answer, or the Failure that ended the connection. */
  call(body: Uint8Array, settle: (answer: { status: number; body: Buffer } | Failure) => void): bigint
  /** Abandons a call: its answer is ignored when it comes. */
  forget(id: bigint): void
  /** Resolves when the connection must not be used for new calls: it has ended, or the provider announced its end. */
  gone: Promise<unknown>
  end(): void
}

const connectMs = 5_000
/** Above the largest answer of a provider with default settings (8 MiB). */
const most = 8_388_608 + 65_536
const hessianNull = Buffer.from('N')
/** Heartbeats in one chunk that are answered: Dubbo sends one in a minute. */
const asksMost = 64
/** The text R in hessian: the provider accepts no new calls. */
const readOnly = Buffer.from('\u0001R')

/**
 * One multiplexed connection: the id of an answer names its call, so answers may come in any order. Rejects if it does not open.
 * `heartbeatMs` is Dubbo's default: a provider also closes a connection after three heartbeat intervals without a byte.
 */
export function openConnection(
  host: string,
  port: number,
  signal: AbortSignal,
  heartbeatMs = 20_000
): Promise<Connection> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, noDelay: true })
    const waiting = new Map<bigint, (answer: { status: number; body: Buffer } | Failure) => void>()
    let nextId = 1n
    let heardAt = performance.now()
    let isLeaving = false
    let heartbeats = 0
    const asks = patience()
    let leave = (): void => {}
    const gone = new Promise<void>(left => {
      leave = left
    })
    let cause = failure('connection_closed')

    const stop = (reason: string): void => {
      cause = failure(reason)
      socket.destroy()
    }
    const giveUp = setTimeout(() => stop('connect_timeout'), connectMs)
    const abort = (): void => stop('shutdown')
    signal.addEventListener('abort', abort, { once: true })

    const parser = frames(most, take)

    function take(frame: Frame): void {
      if (frame.isRequest) {
        if (!frame.isEvent) return
        if (frame.isTwoWay) {
          asks(socket)
          if (++heartbeats > asksMost) throw protocolFailure('nothing but heartbeats')
        }
        if (frame.isTwoWay) socket.write(frameOf(flags.event, 20, frame.id, hessianNull))
        if (frame.body.equals(readOnly)) leaving()
        return
      }
      if (frame.isEvent) return
      const settle = waiting.get(frame.id)
      // The answer to an abandoned call, or to a call that was never made.
      if (!waiting.delete(frame.id)) return
      settle?.({ status: frame.status, body: frame.body })
    }

    /** The provider is about to stop: open calls may still end, and no new call begins. */
    function leaving(): void {
      if (isLeaving) return
      isLeaving = true
      leave()
      const wait = setInterval(() => {
        if (waiting.size > 0) return
        clearInterval(wait)
        socket.destroy()
      }, 50)
      socket.once('close', () => clearInterval(wait))
    }

    socket.on('data', chunk => {
      heardAt = performance.now()
      heartbeats = 0
      try {
        parser.push(chunk)
      } catch (error) {
        stop(isError(error) ? error.message : 'protocol')
      }
    })
    const heartbeat = setInterval(() => {
      if (performance.now() - heardAt > 3 * heartbeatMs) stop('connection_closed: no heartbeat')
      else socket.write(frameOf(flags.request | flags.twoWay | flags.event, 0, nextId++, hessianNull))
    }, heartbeatMs)

    socket.once('error', error => {
      clearTimeout(giveUp)
      reject(error)
    })
    socket.on('error', () => {})
    socket.once('close', () => {
      clearTimeout(giveUp)
      clearInterval(heartbeat)
      signal.removeEventListener('abort', abort)
      leave()
      reject(cause)
      const all = [...waiting.values()]
      waiting.clear()
      for (const settle of all) settle(cause)
    })
    socket.once('connect', () => {
      clearTimeout(giveUp)
      resolve({
        address: at({ host, port }),
        call(body, settle) {
          const id = nextId++
          if (socket.destroyed) settle(cause)
          else {
            waiting.set(id, settle)
            socket.write(frameOf(flags.request | flags.twoWay, 0, id, body))
          }
          return id
        },
        forget: id => {
          waiting.delete(id)
        },
        gone,
        end: () => stop('shutdown')
      })
    })
  })
}
