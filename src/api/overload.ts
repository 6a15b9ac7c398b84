import { monitorEventLoopDelay } from 'node:perf_hooks'
import type { FastifyRequest } from 'fastify'
import { addressGroup } from './address.ts'
import type { ApiDeps } from './deps.ts'
import { Problem } from '../runtime/errors.ts'

/** A hook that runs when the caller is known and the body is not read yet. */
export function unlessOverloaded(deps: Pick<ApiDeps, 'overload'>) {
  return (_request: FastifyRequest, _reply: unknown, _body: unknown, done: (error?: Error) => void): void => {
    done(refusal(deps))
  }
}

/** Checked again after waits, since bodies are read in parallel and other requests may have arrived. */
export function refuseOverload(deps: Pick<ApiDeps, 'overload'>): void {
  const problem = refusal(deps)
  if (problem) throw problem
}

function refusal(deps: Pick<ApiDeps, 'overload'>): Problem | undefined {
  const seconds = deps.overload()
  if (seconds === null) return undefined
  return new Problem('OVERLOADED', '', {
    headers: { 'retry-after': String(Math.max(1, Math.ceil(seconds))) }
  })
}

/** Bodies below this are not counted: all connections together hold little of them. */
const smallBody = 16 * 1024

/**
 * A hook that runs when the caller is known and the body is not read yet: it refuses a body while too many bytes are being read. One
 * caller may have as many bytes as are still free, so there is always room for another one. `most`: bytes of all bodies.
 */
export function bodyRoom(most: number) {
  const byOwner = new Map<string, number>()
  let total = 0
  return (request: FastifyRequest, _reply: unknown, _body: unknown, done: (error?: Error) => void): void => {
    const { headers, raw, caller, ip, routeOptions } = request
    const isChunked = headers['transfer-encoding'] !== undefined
    const bytes = isChunked ? (routeOptions.bodyLimit ?? 0) : Number(headers['content-length'] ?? 0)
    if (bytes <= smallBody) return done()
    const owner = caller?.name ?? addressGroup(ip)
    const own = byOwner.get(owner) ?? 0
    if (own + bytes > most - total)
      return done(
        new Problem('OVERLOADED', 'too many large bodies are being read', { headers: { 'retry-after': '1' } })
      )
    total += bytes
    byOwner.set(owner, own + bytes)
    // It was read, or its connection is gone.
    raw.once('close', () => {
      total -= bytes
      const left = (byOwner.get(owner) ?? 0) - bytes
      if (left > 0) byOwner.set(owner, left)
      else byOwner.delete(owner)
    })
    done()
  }
}

const resolutionMs = 10

/** Whether the event loop is so late that requests should be refused. It opens no file, so its timer cannot fail. */
export function loopWatch(mostMs: number) {
  const delays = monitorEventLoopDelay({ resolution: resolutionMs })
  delays.enable()
  let isLate = false
  const timer = setInterval(() => {
    // NaN means no sample: the loop stood still all the time, so it is late too.
    isLate = !(delays.mean / 1e6 - resolutionMs <= mostMs)
    delays.reset()
  }, 1_000).unref()
  return {
    isLate: () => isLate,
    stop(): void {
      clearInterval(timer)
      delays.disable()
    }
  }
}
