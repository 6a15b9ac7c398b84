import { hash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { ApiDeps, ApiKey, Scope } from './deps.ts'
import { limiter } from './limit.ts'
import { Problem } from '../errors.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Who asks; null on routes open to all. */
    caller: Caller | null
  }
}

export interface Caller {
  name: string
  /** null: every messageCode. */
  messageCodes: readonly string[] | null
}

/** With AUTH=off there are no keys, and whoever reaches the loopback address is the operator. */
const operator: Caller = { name: 'local', messageCodes: null }

const rememberMs = 5_000
const remembered = 1_000

/** Hooks that let through whoever brings a key with one of the scopes; keys are looked up at most every 5 s each. */
export function doorkeeper(
  deps: Pick<ApiDeps, 'auth' | 'findKey' | 'keyPerSecond'>,
  clock: () => number = performance.now.bind(performance)
) {
  const seen = new Map<string, { key: ApiKey | null; at: number }>()
  const looking = new Map<string, Promise<ApiKey | null>>()
  // A flood of made-up keys must not become a flood of queries.
  const guesses = limiter({ perSecond: 20 })
  const busy = deps.keyPerSecond === undefined ? null : limiter({ perSecond: deps.keyPerSecond })

  function lookUp(hashed: string): Promise<ApiKey | null> {
    const at = clock()
    const look = deps
      .findKey(hashed)
      .then(key => {
        seen.delete(hashed)
        seen.set(hashed, { key, at })
        if (seen.size > remembered)
          for (const oldest of seen.keys()) {
            seen.delete(oldest)
            break
          }
        return key
      })
      .finally(() => looking.delete(hashed))
    looking.set(hashed, look)
    return look
  }

  return (needed: readonly Scope[]) =>
    (request: FastifyRequest, _reply: FastifyReply, done: (error?: Error) => void) => {
      if (!deps.auth) {
        request.caller = operator
        return done()
      }
      const secret = bearer(request.headers.authorization)
      if (secret === null) return done(new Problem('UNAUTHORIZED', 'send Authorization: Bearer ack_…'))
      const hashed = hash('sha256', secret, 'hex')
      const known = seen.get(hashed)
      if (known && clock() - known.at < rememberMs) return admit(known.key)
      // A producer that comes with many connections at once asks once: its first requests are not guesses.
      const open = looking.get(hashed)
      const wait = known?.key || open ? 0 : guesses.take(request.ip, clock())
      if (wait > 0)
        return done(
          new Problem('TOO_MANY_REQUESTS', 'too many unknown keys', {
            headers: { 'retry-after': String(wait) }
          })
        )
      const look = open ?? lookUp(hashed)
      look.then(admit, done)

      function admit(key: ApiKey | null) {
        if (!key) return done(new Problem('UNAUTHORIZED'))
        if (!needed.some(scope => key.scopes.includes(scope))) {
          return done(new Problem('FORBIDDEN', `this needs the scope ${needed.join(' or ')}`))
        }
        const seconds = busy?.take(key.id, clock()) ?? 0
        if (seconds > 0)
          return done(new Problem('TOO_MANY_REQUESTS', '', { headers: { 'retry-after': String(seconds) } }))
        request.caller = { name: key.name, messageCodes: key.messageCodes }
        done()
      }
    }
}

/** The secret is only ever compared as a hash, by an index: how long that takes tells nothing about the secret. */
function bearer(header: string | undefined): string | null {
  if (header === undefined || header.length > 300) return null
  const [, secret] = /^bearer +(ack_[\w-]{16,200})$/i.exec(header) ?? []
  return secret ?? null
}

export function callerOf(request: FastifyRequest): Caller {
  if (!request.caller) throw new Error('this route has no scope in access.ts')
  return request.caller
}

export function mayUse(caller: Caller, messageCode: string): boolean {
  return caller.messageCodes === null || caller.messageCodes.includes(messageCode)
}
