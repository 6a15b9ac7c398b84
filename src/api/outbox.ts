import { keyed, nudgedAnswer, refusals, rejectedAnswer, removedAnswer } from './responses.ts'
import { callerOf, requireCode } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { isUuid, rejectedParams } from './requests.ts'
import { badCursor, rejectedQuery, pageSize } from './queries.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'
import { defined } from '../domain/optional-members.ts'

export function outboxRoutes(app: App, deps: ApiDeps): void {
  app.get(
    '/outbox/rejected',
    {
      schema: {
        tags: ['outbox'],
        summary: 'Rejected outbox rows, newest first',
        operationId: 'listRejected',
        description:
          'Each has the problem that a POST of it would get. All rows are listed, regardless of age.',
        querystring: rejectedQuery,
        response: { 200: rejectedAnswer, ...refusals('INVALID', 'CODE_FORBIDDEN', ...keyed) }
      }
    },
    async request => {
      const { messageCode, cursor, limit } = request.query
      const caller = callerOf(request)
      requireCode(caller, messageCode, '?/messageCode')
      if (cursor !== undefined && !isUuid(cursor)) throw badCursor()
      const found = await deps.listRejected({
        messageCodes: caller.messageCodes,
        limit: limit ?? pageSize,
        ...defined({ messageCode, cursor })
      })
      return found
    }
  )

  const byId = { response: refusals('REJECTED_NOT_FOUND', 'CROSS_ORIGIN', ...keyed), params: rejectedParams }
  app.post(
    '/outbox/rejected/:id/retry',
    {
      bodyLimit: 4096,
      schema: {
        tags: ['outbox'],
        summary: 'Retry a rejected row, as if it were enqueued now',
        operationId: 'retryRejected',
        description: 'Use it after a handler was fixed. The row may be rejected again, with another id.',
        params: byId.params,
        response: { 202: removedAnswer.describe('Back in the outbox'), ...byId.response }
      }
    },
    async (request, reply) => {
      const { id } = request.params
      const who = callerOf(request)
      if (!isUuid(id) || !(await deps.retryRejected({ id, messageCodes: who.messageCodes, who })))
        throw new Problem('REJECTED_NOT_FOUND')
      return reply.code(202).send({ id })
    }
  )

  app.delete(
    '/outbox/rejected/:id',
    {
      schema: {
        tags: ['outbox'],
        summary: 'Delete a rejected row',
        operationId: 'deleteRejected',
        params: byId.params,
        response: { 200: removedAnswer.describe('Deleted'), ...byId.response }
      }
    },
    async request => {
      const { id } = request.params
      const who = callerOf(request)
      if (!isUuid(id) || !(await deps.removeRejected({ id, messageCodes: who.messageCodes, who })))
        throw new Problem('REJECTED_NOT_FOUND')
      return { id }
    }
  )

  app.post(
    '/outbox/nudge',
    {
      bodyLimit: 4096,
      schema: {
        tags: ['outbox'],
        summary: 'Look at the outbox now',
        operationId: 'nudgeOutbox',
        description: 'Optional. Committed rows are found within a second anyway.',
        response: { 202: nudgedAnswer, ...refusals('CROSS_ORIGIN', ...keyed) }
      }
    },
    async (_request, reply) => {
      deps.nudge()
      return reply.code(202).send({ nudged: true })
    }
  )
}
