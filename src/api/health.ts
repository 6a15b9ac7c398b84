import { z } from 'zod'
import { healthAnswer, keyed, refusals } from './responses.ts'
import { callerOf } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'

/** The health routes. Every role has them. */
export function healthRoutes(app: App, deps: ApiDeps): void {
  app.get(
    '/metrics',
    {
      schema: {
        tags: ['ops'],
        summary: 'Metrics for Prometheus',
        operationId: 'metrics',
        response: {
          200: { description: 'OK', content: { 'text/plain': { schema: z.string() } } },
          ...refusals(...keyed, 'CODE_FORBIDDEN')
        }
      }
    },
    async (request, reply) => {
      if (callerOf(request).messageCodes)
        throw new Problem('CODE_FORBIDDEN', 'These cover every messageCode.')
      return reply.type(deps.metrics.contentType).send(await deps.metrics.render())
    }
  )

  app.get(
    '/healthz',
    {
      schema: {
        tags: ['ops'],
        summary: 'The process is alive',
        operationId: 'healthz',
        security: [],
        response: { 200: healthAnswer }
      }
    },
    async () => ({ status: 'ok' })
  )

  app.get(
    '/readyz',
    {
      schema: {
        tags: ['ops'],
        summary: 'The process is ready for work',
        operationId: 'readyz',
        security: [],
        response: { 200: healthAnswer, 503: healthAnswer }
      }
    },
    async (_request, reply) => {
      const { ok, checks } = await deps.ready()
      return reply.code(ok ? 200 : 503).send({ status: ok ? 'ok' : 'not ready', checks })
    }
  )
}
