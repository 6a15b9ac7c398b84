import { z } from 'zod'
import { callerOf, requireCode } from './auth.ts'
import { fit, readBody } from './body.ts'
import type { ApiDeps } from './deps.ts'
import { archiveExamples } from './examples.ts'
import { count, fingerprint as fingerprintForm, flag, isSpan, pageSize, time, spanError } from './queries.ts'
import { downstream, messageCode } from './requests.ts'
import { failuresAnswer, keyed, refusals } from './responses.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'
import { defined } from '../domain/optional-members.ts'

const tags = ['dashboard'] as const
const dayMs = 86_400_000

const failureQuery = z
  .strictObject({
    from: time.optional().describe('FAILED at or after. Default: the last 24 hours.'),
    to: time.optional().describe('FAILED before.'),
    messageCode: messageCode.optional(),
    downstream: downstream.optional(),
    fingerprint: fingerprintForm.optional(),
    archived: flag.optional().describe('true: only archived groups. Default: only the others.'),
    limit: count(1, 200).optional().describe('Maximum number of groups. Default: 50.')
  })
  .refine(isSpan, spanError)
const fingerprintParams = z.strictObject({
  fingerprint: z.string().meta({ example: '0123456789abcdef' })
})
// PostgreSQL's text cannot hold U+0000.
const noteBody = z.strictObject({
  note: z.string().regex(/^[^\0]{1,1000}$/u, 'must have 1 to 1,000 characters')
})

export function failureRoutes(app: App, deps: ApiDeps): void {
  app.get(
    '/failures',
    {
      schema: {
        tags,
        summary: 'Failures, grouped by cause',
        operationId: 'listFailures',
        description:
          'A group has one fingerprint: downstream, reason, status, and the first line of the answer without numbers and ids. `failed` counts those that are FAILED now. The newest 10,000 that match are grouped, of the newest 100,000. If there are more, or more groups than `limit`, the answer is `partial`.',
        querystring: failureQuery,
        response: { 200: failuresAnswer, ...refusals('INVALID', 'CODE_FORBIDDEN', ...keyed) }
      }
    },
    async request => {
      const { from, to = deps.now(), messageCode, downstream, fingerprint, archived, limit } = request.query
      const caller = callerOf(request)
      requireCode(caller, messageCode, '?/messageCode')
      const { failures, ...partial } = await deps.listFailures({
        messageCodes: caller.messageCodes,
        from: from ?? new Date(to.getTime() - dayMs),
        to,
        archived: archived ?? false,
        limit: limit ?? pageSize,
        ...defined({ messageCode, downstream, fingerprint })
      })
      const mayWrite = caller.scopes.includes('ops:write')
      const groups = failures.map(({ isShared, ...group }) => ({
        ...group,
        mayArchive: mayWrite && !isShared
      }))
      return { failures: groups, ...partial }
    }
  )

  app.post(
    '/failures/:fingerprint/archive',
    {
      bodyLimit: 8192,
      schema: {
        tags,
        summary: 'Hide a group of failures until it fails again',
        operationId: 'archiveFailure',
        description: 'No delivery changes.',
        params: fingerprintParams,
        body: noteBody.meta({ 'x-examples': archiveExamples }),
        response: {
          200: z.strictObject({ fingerprint: z.string() }),
          ...refusals('FAILURE_NOT_FOUND', 'NOT_JSON', 'INVALID', 'CSRF', 'CROSS_ORIGIN', ...keyed)
        }
      }
    },
    async request => {
      const { fingerprint } = request.params
      const { note } = fit(noteBody, readBody(request.body, 'plain').value)
      if (!fingerprintForm.safeParse(fingerprint).success) throw new Problem('FAILURE_NOT_FOUND')
      const who = callerOf(request)
      if (!(await deps.archiveFailure({ fingerprint, note, who, messageCodes: who.messageCodes })))
        throw new Problem('FAILURE_NOT_FOUND')
      return { fingerprint }
    }
  )
}
