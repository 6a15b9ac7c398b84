import { z } from 'zod'
import { isWithin, mostKeysMade, scopes, type NewKey } from '../db/api-keys.ts'
import { callerOf, type Caller } from './auth.ts'
import { fit, readBody } from './body.ts'
import type { ApiDeps } from './deps.ts'
import { keyExamples } from './examples.ts'
import { count, page } from './queries.ts'
import { messageCode } from './requests.ts'
import { keyed, refusals } from './responses.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'
import { time } from './task-answer.ts'
import { defined, present } from '../domain/optional-members.ts'

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

/** The rows of a page, also without `limit`: the list of version 1.0.0 had no pages. */
const mostListed = 200
const keyAnswer = z.looseObject({
  id: z.string(),
  name: z.string(),
  scopes: z.array(z.string()),
  messageCodes: z.array(z.string()).nullable(),
  createdAt: time,
  createdById: z.string().optional().describe('The key that created it.'),
  revokedAt: time.optional()
})
const query = z.strictObject({
  cursor: page.cursor,
  limit: count(1, mostListed).optional().describe(`Default: ${mostListed}.`)
})

export function apiKeyRoutes(app: App, deps: ApiDeps): void {
  app.get(
    '/api-keys',
    {
      schema: {
        tags: ['ops'],
        summary: 'API keys, without the keys themselves',
        operationId: 'listApiKeys',
        description: 'The oldest first. Those that may do more than your key are left out.',
        querystring: query,
        response: {
          200: z.strictObject({ apiKeys: z.array(keyAnswer), nextCursor: z.string().optional() }),
          ...refusals('INVALID', ...keyed)
        }
      }
    },
    async request => {
      const { cursor, limit = mostListed } = request.query
      const within = callerOf(request)
      const { apiKeys, ...next } = await deps.listApiKeys({ within, limit, ...defined({ cursor }) })
      return {
        apiKeys: apiKeys.map(({ revokedAt, createdById, ...key }) => ({
          ...key,
          ...present('createdById', createdById),
          ...present('revokedAt', revokedAt)
        })),
        ...next
      }
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
        description: `It cannot have scopes or messageCodes that your key lacks, nor the name of a key that yours did not create. A key can have created ${mostKeysMade} live ones at most. The two share the limits of requests, acts and places, unless yours may do everything and the new one is limited to messageCodes.`,
        body: apiKeyBody.meta({ 'x-examples': keyExamples }),
        response: {
          201: z.strictObject({ id: z.string(), key: z.string() }),
          ...refusals('API_KEY_NAME_TAKEN', 'TOO_MANY_API_KEYS', ...written)
        }
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
        who: caller,
        ...makerOf(caller)
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
      if (!(await deps.revokeApiKey({ id, who: caller, within: caller })))
        throw new Problem('API_KEY_NOT_FOUND')
      return { id }
    }
  )
}

/** The key that creates another one. None: AUTH is off. */
function makerOf({ keyId, quotaId, scopes: own, messageCodes }: Caller): Pick<NewKey, 'maker'> {
  return keyId === undefined || quotaId === undefined
    ? {}
    : { maker: { id: keyId, quotaId, scopes: own, messageCodes } }
}
