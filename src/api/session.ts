import { hash, randomBytes } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { z } from 'zod'
import type { ApiDeps } from './deps.ts'
import { fit, readBody } from './body.ts'
import { signInExamples } from './examples.ts'
import { refusals } from './responses.ts'
import {
  cookieName,
  csrfHeader,
  csrfOf,
  isOwnWrite,
  isSecure,
  keyLimit,
  sessionOf,
  type KeyLimit
} from './auth.ts'
import type { App } from './typed.ts'
import { mostSessions, scopes, sessionHours } from '../db/api-keys.ts'
import { Problem } from '../runtime/errors.ts'
import { version } from '../runtime/package.ts'

const signInBody = z.strictObject({
  key: z.string().regex(/^ack_[\w-]{16,200}$/, 'must be an API key, ack_…')
})
const sessionAnswer = z.strictObject({
  signedIn: z.boolean(),
  auth: z.boolean().describe('false: no key is needed here.'),
  version: z.string(),
  name: z.string().optional(),
  scopes: z.array(z.string()).optional(),
  messageCodes: z.array(z.string()).nullable().optional(),
  csrf: z.string().optional().describe(`Send it as the header ${csrfHeader} with each write.`)
})

/** Sign-ins of one key: so many at once, then so many a minute. Each writes a row of the audit, which nobody can delete. */
const signInsAtOnce = 30
const signInsPerMinute = 10

/** Sign-in of the dashboard. A program sends its key with each request instead. */
export function sessionRoutes(app: App, deps: ApiDeps, limit: KeyLimit): void {
  const signIns = keyLimit(signInsPerMinute / 60, signInsAtOnce)
  const base = { auth: deps.auth, version }
  const shown = async (id: string | null) => {
    if (!deps.auth) return { signedIn: true, ...base, name: 'local', scopes, messageCodes: null }
    const key = id === null ? null : await deps.findKey(hash('sha256', id, 'hex'))
    if (!key || id === null) return { signedIn: false, ...base }
    const { name, scopes: own, messageCodes } = key
    return { signedIn: true, ...base, name, scopes: own, messageCodes, csrf: csrfOf(id) }
  }
  const cookie = (request: FastifyRequest, value: string, seconds: number): string => {
    const secure = isSecure(request, deps.publicUrl)
    return `${cookieName(secure)}=${value}; Path=/; HttpOnly; SameSite=Strict; Max-Age=${seconds}${secure ? '; Secure' : ''}`
  }

  app.get(
    '/session',
    {
      schema: {
        tags: ['dashboard'],
        // Open: without a session, the answer reports that. A sign-in sends its key in the body.
        security: [],
        summary: 'Current session',
        operationId: 'readSession',
        response: { 200: sessionAnswer, ...refusals('UNAVAILABLE') }
      }
    },
    async (request, reply) => {
      const answer = await shown(sessionOf(request, deps.publicUrl))
      return reply.header('cache-control', 'no-store').send(answer)
    }
  )

  app.post(
    '/session',
    {
      bodyLimit: 4096,
      schema: {
        tags: ['dashboard'],
        security: [],
        summary: 'Sign in with an API key',
        operationId: 'createSession',
        description: `Sets a cookie with a random id, never the key. The session ends after ${sessionHours} hours, or when the key is revoked. Each key has at most ${mostSessions} sessions, of which the oldest end, and signs in ${signInsAtOnce} times at once and then ${signInsPerMinute} times a minute at most.`,
        body: signInBody.meta({ 'x-examples': signInExamples }),
        response: {
          201: sessionAnswer,
          ...refusals(
            'NOT_JSON',
            'INVALID',
            'UNAUTHORIZED',
            'TOO_MANY_REQUESTS',
            'CROSS_ORIGIN',
            'UNAVAILABLE'
          )
        }
      }
    },
    async (request, reply) => {
      const { key } = fit(signInBody, readBody(request.body, 'plain').value)
      if (!deps.auth) return reply.code(201).send(await shown(null))
      const keyHash = hash('sha256', key, 'hex')
      const id = `ses_${randomBytes(32).toString('base64url')}`
      // First, because `findKey` batches: many guesses share a statement.
      const known = await deps.findKey(keyHash)
      const refused = known && (limit(known.quotaId) ?? signIns(known.quotaId))
      if (refused) throw refused
      if (!known || !(await deps.createSession({ hash: hash('sha256', id, 'hex'), keyHash })))
        throw new Problem('UNAUTHORIZED')
      void reply.code(201).header('cache-control', 'no-store')
      void reply.header('set-cookie', cookie(request, id, sessionHours * 3_600))
      return await shown(id)
    }
  )

  app.delete(
    '/session',
    {
      schema: {
        tags: ['dashboard'],
        security: [],
        summary: 'Sign out',
        operationId: 'endSession',
        response: { 200: sessionAnswer, ...refusals('CSRF', 'CROSS_ORIGIN', 'UNAVAILABLE') }
      }
    },
    async (request, reply) => {
      const id = sessionOf(request, deps.publicUrl)
      if (id !== null && !isOwnWrite(request, id)) throw new Problem('CSRF')
      const session = id !== null && hash('sha256', id, 'hex')
      // `findKey` batches: anybody can invent sessions, and each would cost a statement.
      if (session && (await deps.findKey(session))) await deps.endSession(session)
      void reply.header('set-cookie', cookie(request, '', 0))
      return { signedIn: false, ...base }
    }
  )
}
