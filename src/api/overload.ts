import { monitorEventLoopDelay } from 'node:perf_hooks'
import type { FastifyRequest } from 'fastify'
import type { ApiDeps } from './deps.ts'
import { Problem } from '../runtime/errors.ts'

/** For a hook: who may come in is known, and nothing of the body is read. */
export function unlessOverloaded(deps: Pick<ApiDeps, 'overload'>) {
  return (_request: FastifyRequest, _reply: unknown, _body: unknown, done: (error?: Error) => void): void => {
    done(refusal(deps))
  }
}

/** To be asked again where much may have come in since: bodies are read side by side. */
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

/** Whether the event loop runs so late that a request is better refused. It opens no file, so that its timer cannot fail. */
export function loopWatch(mostMs: number) {
  const delays = monitorEventLoopDelay({ resolution: resolutionMs })
  delays.enable()
  let isLate = false
  const timer = setInterval(() => {
    // NaN, no sample at all, is late too: the loop stood still all the time.
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
