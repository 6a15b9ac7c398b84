import { monitorEventLoopDelay } from 'node:perf_hooks'
import type { FastifyRequest } from 'fastify'
import { quotaKeyOf } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { Problem } from '../runtime/errors.ts'
import { sharedRoom } from '../runtime/shared-room.ts'

/** A hook that runs when the caller is known and the body is not read yet. */
export function unlessOverloaded(deps: Pick<ApiDeps, 'isFull'>) {
  return (_request: FastifyRequest, _reply: unknown, _body: unknown, done: (error?: Error) => void): void => {
    done(refusal(deps))
  }
}

/** Checked again after waits, since bodies are read in parallel and other requests may have arrived. */
export function refuseOverload(deps: Pick<ApiDeps, 'isFull'>): void {
  const problem = refusal(deps)
  if (problem) throw problem
}

function refusal(deps: Pick<ApiDeps, 'isFull'>): Problem | undefined {
  return deps.isFull() ? new Problem('OVERLOADED', '', { headers: { 'retry-after': '1' } }) : undefined
}

/** Bytes of all bodies that are being read. A batch has up to 8 MiB. */
const mostBodyBytes = 128 * 1_048_576
/** Bodies below this are not counted: all connections together hold little of them. */
const smallBody = 16 * 1024

/** A hook that runs when the caller is known and the body is not read yet: it refuses a body while too many bytes are being read. */
export function bodyRoom(deps: Pick<ApiDeps, 'auth'>) {
  const room = sharedRoom(mostBodyBytes)
  return (request: FastifyRequest, _reply: unknown, _body: unknown, done: (error?: Error) => void): void => {
    const { headers, raw } = request
    const isChunked = headers['transfer-encoding'] !== undefined
    const length = Number(headers['content-length'] ?? 0)
    if (!isChunked && length <= smallBody) return done()
    const { bodyLimit } = request.routeOptions
    const bytes = isChunked ? bodyLimit : length
    // A longer body than the route takes is refused without being read.
    if (bytes <= smallBody || bytes > bodyLimit) return done()
    const leave = room.take(quotaKeyOf(deps, request), bytes)
    if (!leave)
      return done(
        new Problem('OVERLOADED', 'too many large bodies are being read', { headers: { 'retry-after': '1' } })
      )
    // It was read, or its connection is gone.
    raw.once('close', leave)
    done()
  }
}

const resolutionMs = 10
const lookMs = 1_000

/** Whether the event loop is so late that requests should be refused. It opens no file, so its timer cannot fail. */
export function loopWatch(mostMs: number) {
  const delays = monitorEventLoopDelay({ resolution: resolutionMs })
  delays.enable()
  let isLate = false
  let lookedAt: number | undefined
  const timer = setInterval(() => {
    const now = performance.now()
    // Without a sample the loop stood still since the last look.
    const delayMs = delays.count > 0 ? delays.mean / 1e6 - resolutionMs : now - (lookedAt ?? now) - lookMs
    // What loads while a process starts makes no request wait.
    isLate = lookedAt !== undefined && delayMs > mostMs
    lookedAt = now
    delays.reset()
  }, lookMs).unref()
  return {
    isLate: () => isLate,
    stop(): void {
      clearInterval(timer)
      delays.disable()
    }
  }
}
