import { z } from 'zod'
import { scopes } from '../db/api-keys.ts'
import { callerOf, type Caller } from './auth.ts'
import { fit, readBody } from './body.ts'
import type { ApiDeps } from './deps.ts'
import { keyExamples } from './examples.ts'
import { messageCode } from './requests.ts'
import { keyed, refusals } from './responses.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'
import { time } from './task-answer.ts'

const written = ['NOT_JSON', 'INVALID', 'CSRF', 'CROSS_ORIGIN', ...keyed] as const
const apiKeyBody = z.strictObject({
  name: z.string().regex(/^[\w.@-]{1,64}$/, 'must have 1 to 64 of A-Z a-z 0-9 . _ - @'),
  scopes: z.array(z.enum(scopes)).min(1).max(scopes.length),
  messageCodes: z
    .array(messageCode)
    .min(1)
    .max(100)
    .optional()
    .describe('Default: all that your key may use.')
})
const apiKeyParams = z.strictObject({ id: z.string().meta({ example: 'key_0123456789ab' }) })

const keyAnswer = z.looseObject({
  id: z.string(),
  name: z.string(),
  scopes: z.array(z.string()),
  messageCodes: z.array(z.string()).nullable(),
  createdAt: time,
  revokedAt: time.optional()
})

export function apiKeyRoutes(app: App, deps: ApiDeps): void {
  app.get(
    '/api-keys',
    {
      schema: {
        tags: ['ops'],
        summary: 'API keys, without the keys themselves',
        operationId: 'listApiKeys',
        response: { 200: z.strictObject({ apiKeys: z.array(keyAnswer) }), ...refusals(...keyed) }
      }
    },
    async request => {
      const caller = callerOf(request)
      const apiKeys = (await deps.listApiKeys())
        .filter(key => isWithin(caller, key))
        .map(({ revokedAt, ...key }) => ({ ...key, ...(revokedAt && { revokedAt }) }))
      return { apiKeys }
    }
  )

  app.post(
    '/api-keys',
    {
      bodyLimit: 8192,
      schema: {
        tags: ['ops'],
        summary: 'Create an API key. Only this answer shows it',
        operationId: 'createApiKey',
        description: 'It cannot have scopes or messageCodes that your key lacks.',
        body: apiKeyBody.meta({ 'x-examples': keyExamples }),
        response: { 201: z.strictObject({ id: z.string(), key: z.string() }), ...refusals(...written) }
      }
    },
    async (request, reply) => {
      const wanted = fit(apiKeyBody, readBody(request.body, 'plain').value)
      const caller = callerOf(request)
      const messageCodes = wanted.messageCodes ?? caller.messageCodes
      if (!isWithin(caller, { ...wanted, messageCodes }))
        throw new Problem('FORBIDDEN', 'A key cannot create a key with more rights than its own.')
      const created = await deps.createApiKey({
        name: wanted.name,
        scopes: wanted.scopes,
        messageCodes: messageCodes && [...messageCodes],
        who: caller
      })
      return reply.code(201).header('cache-control', 'no-store').send(created)
    }
  )

  app.delete(
    '/api-keys/:id',
    {
      schema: {
        tags: ['ops'],
        summary: 'Revoke an API key and its sessions',
        operationId: 'revokeApiKey',
        description: 'All processes refuse it within 5 s.',
        params: apiKeyParams,
        response: {
          200: z.strictObject({ id: z.string() }),
          ...refusals('API_KEY_NOT_FOUND', 'CSRF', 'CROSS_ORIGIN', ...keyed)
        }
      }
    },
    async request => {
      const { id } = request.params
      const caller = callerOf(request)
      const key = (await deps.listApiKeys()).find(one => one.id === id)
      if (!key || !isWithin(caller, key) || !(await deps.revokeApiKey({ id, who: caller })))
        throw new Problem('API_KEY_NOT_FOUND')
      return { id }
    }
  )
}

/** Whether the caller may do everything that this key may do. */
function isWithin(
  caller: Caller,
  key: { scopes: readonly string[]; messageCodes: readonly string[] | null }
): boolean {
  const codes = caller.messageCodes
  return (
    key.scopes.every(scope => caller.scopes.includes(scope)) &&
    (codes === null || (key.messageCodes !== null && key.messageCodes.every(code => codes.includes(code))))
  )
}
