import type { FastifyRequest } from 'fastify'
import type { ApiDeps } from './deps.ts'
import { Problem } from '../errors.ts'

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
