import { monitorEventLoopDelay } from 'node:perf_hooks'
import type { FastifyRequest } from 'fastify'
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
