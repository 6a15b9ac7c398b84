import { allRights, type ApiKey, type Rights, type Scope } from '../db/api-keys.ts'
import { hash, timingSafeEqual } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { LRUCache } from 'lru-cache'
import { addressGroup } from './address.ts'
import type { ApiDeps } from './deps.ts'
import { Problem } from '../runtime/errors.ts'
import type { Actor } from '../domain/types.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** The caller. Null on open routes. */
    caller: Caller | null
  }
}

export interface Caller extends Actor, Rights {
  /** The key whose limits it shares. Undefined while AUTH is off: there are no limits for keys. */
  quotaId?: string
}

interface Found<Key> {
  key: Key
  at: number
}

/** With AUTH=off there are no keys: every caller of the loopback address is the operator. */
const operator: Caller = { name: 'local', ...allRights }

const rememberMs = 5_000

/** The limits of a key, of requests and of acts. */
export interface KeyLimits {
  requests: KeyLimit
  acts: KeyLimit
}

/** Hooks that admit callers with a key that has one of the scopes. Each key is looked up at most every 5 s, a session at each request. */
export function doorkeeper(deps: Pick<ApiDeps, 'auth' | 'findKey' | 'publicUrl'>, limits: KeyLimits) {
  // Two caches: any number of invented keys must not push out valid keys.
  const known = new LRUCache<string, Found<ApiKey>>({ max: 10_000 })
  const unknown = new LRUCache<string, Found<null>>({ max: 1_000 })
  const looking = new Map<string, Promise<ApiKey | null>>()

  function remembered(hashed: string): Found<ApiKey | null> | undefined {
    const found = known.get(hashed) ?? unknown.get(hashed)
    return found && performance.now() - found.at < rememberMs ? found : undefined
  }

  function lookUp(hashed: string, isSession: boolean): Promise<ApiKey | null> {
    // The time of the query, so that a revoked key is refused after five seconds at the latest.
    const at = performance.now()
    const look = deps
      .findKey(hashed)
      .then(key => {
        // A session is looked up each time: after a sign-out its cookie opens nothing, in any process. Pages ask seldom.
        if (key && !isSession) known.set(hashed, { key, at })
        if (!key) {
          known.delete(hashed)
          unknown.set(hashed, { key, at })
        }
        return key
      })
      .finally(() => looking.delete(hashed))
    looking.set(hashed, look)
    return look
  }

  return (needed: readonly Scope[], act?: 'all' | 'operators') =>
    (request: FastifyRequest, _reply: FastifyReply, done: (error?: Error) => void) => {
      if (!deps.auth) {
        request.caller = operator
        return done()
      }
      const { authorization } = request.headers
      const isDtm = request.routeOptions.url?.startsWith('/api/dtmsvr/')
      const key = bearer(authorization) ?? (isDtm ? basic(authorization) : null)
      // A proxy may ask for a login of its own: a header without an API key does not end the session.
      const session = key === null ? sessionOf(request, deps.publicUrl) : null
      if (session !== null && !isOwnWrite(request, session))
        return done(new Problem('CSRF', `send the csrf of GET /session as the header ${csrfHeader}`))
      const secret = key ?? session
      if (secret === null) return done(new Problem('UNAUTHORIZED', 'send Authorization: Bearer ack_…'))
      const hashed = hash('sha256', secret, 'hex')
      const found = remembered(hashed)
      if (found) return admit(found.key)
      // A producer that opens many connections at once causes one look-up.
      const look = looking.get(hashed) ?? lookUp(hashed, key === null)
      look.then(admit, done)

      function admit(key: ApiKey | null) {
        if (!key) return done(new Problem('UNAUTHORIZED'))
        if (!needed.some(scope => key.scopes.includes(scope))) {
          return done(new Problem('FORBIDDEN', `requires the scope ${needed.join(' or ')}`))
        }
        const { name, id: keyId, messageCodes, scopes, quotaId } = key
        const isAct = act === 'all' || (act === 'operators' && !scopes.includes('tasks:write'))
        const refused = limits.requests(quotaId) ?? (isAct ? limits.acts(quotaId) : null)
        if (refused) return done(refused)
        request.caller = { name, keyId, messageCodes, scopes, quotaId }
        done()
      }
    }
}

/** The secret is compared only as a hash, by an index: the time of the look-up reveals nothing about the secret. */
function bearer(header: string | undefined): string | null {
  if (header === undefined || header.length > 300) return null
  const [, secret] = /^bearer +(ack_[\w-]{16,200})$/i.exec(header) ?? []
  return secret ?? null
}

/** DTM clients have no setting for a key, but HTTP libraries send the user and password of a URL: `http://dtm:ack_…@host`. */
function basic(header: string | undefined): string | null {
  if (header === undefined || header.length > 300) return null
  const [, encoded = ''] = /^basic +([\w+/=-]+)$/i.exec(header) ?? []
  const [, secret] =
    /^[^:]*:(ack_[\w-]{16,200})$/.exec(Buffer.from(encoded, 'base64').toString('latin1')) ?? []
  return secret ?? null
}

export function callerOf(request: FastifyRequest): Caller {
  if (!request.caller) throw new Error('this route has no scope in access.ts')
  return request.caller
}

export function mayUse(caller: Caller, messageCode: string): boolean {
  return caller.messageCodes === null || caller.messageCodes.includes(messageCode)
}

/** Refuses a messageCode that the caller may not use. `pointer`: where the request names it. */
export function requireCode(caller: Caller, messageCode: string | undefined, pointer: string): void {
  if (messageCode !== undefined && !mayUse(caller, messageCode))
    throw new Problem('CODE_FORBIDDEN', '', { pointer })
}

/** By what callers share a limit: their API key and those that it created, or their address if there are no keys. */
export const quotaKeyOf = ({ auth }: Pick<ApiDeps, 'auth'>, { caller, ip }: FastifyRequest): string =>
  (auth && caller?.quotaId) || addressGroup(ip)

/** Takes a token of the key with this `quotaId`. The refusal, if there is none. */
export type KeyLimit = (quotaId: string) => Problem | null

/**
 * Token buckets of keys: `most` at once, then `perSecond`. 10,000 are kept; the least recently used one is dropped. Without `perSecond`
 * there is no limit.
 */
export function keyLimit(perSecond: number | undefined, most = perSecond ?? 0): KeyLimit {
  if (perSecond === undefined) return () => null
  const buckets = new LRUCache<string, { left: number; at: number }>({ max: 10_000 })
  return quotaId => {
    const at = performance.now()
    const bucket = buckets.get(quotaId) ?? { left: most, at }
    buckets.set(quotaId, bucket)
    bucket.left = Math.min(most, bucket.left + (Math.max(0, at - bucket.at) * perSecond) / 1000)
    bucket.at = at
    if (bucket.left < 1) {
      const seconds = Math.ceil((1 - bucket.left) / perSecond)
      return new Problem('TOO_MANY_REQUESTS', '', { headers: { 'retry-after': String(seconds) } })
    }
    bucket.left--
    return null
  }
}

/** The header of each write of a signed-in page. Another site can make a browser send the cookie, but cannot read this value. */
export const csrfHeader = 'ackbox-csrf'

const sessionForm = /^ses_[\w-]{43}$/

/** With the prefix, which needs https, no other host and no http page can set the cookie (RFC 6265bis, 4.1.3.2). */
export const cookieName = (isSecure: boolean): string => (isSecure ? '__Host-ackbox' : 'ackbox')

export const isSecure = (request: FastifyRequest, publicUrl: string): boolean =>
  request.protocol === 'https' || publicUrl.startsWith('https:')

/** The id of the session that the cookie names; null: none. */
export function sessionOf(request: FastifyRequest, publicUrl: string): string | null {
  const { cookie } = request.headers
  if (cookie === undefined) return null
  const name = cookieName(isSecure(request, publicUrl))
  for (const part of cookie.split(';')) {
    const [key, value = ''] = part.trim().split('=')
    if (key === name) return sessionForm.test(value) ? value : null
  }
  return null
}

export const csrfOf = (session: string): string => hash('sha256', `csrf ${session}`, 'base64url')

/** Whether a write that came with the cookie was sent by our own page. */
export function isOwnWrite({ method, headers }: FastifyRequest, session: string): boolean {
  if (method === 'GET' || method === 'HEAD') return true
  const given = Buffer.from(String(headers[csrfHeader] ?? ''))
  const expected = Buffer.from(csrfOf(session))
  return given.length === expected.length && timingSafeEqual(given, expected)
}
