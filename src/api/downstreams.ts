import { z } from 'zod'
import { mayChangeDownstream, requireDownstream, seesDownstream } from './access.ts'
import { callerOf } from './auth.ts'
import { fit, readBody } from './body.ts'
import type { ApiDeps } from './deps.ts'
import { limitExamples } from './examples.ts'
import { nameParams } from './requests.ts'
import { downstreamsAnswer, keyed, pausedAnswer, refusals, unreadable } from './responses.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'

const limit = (most: number) => z.int().min(1).max(most).nullable().optional()
const limitsBody = z
  .strictObject({
    concurrency: limit(100_000).describe("Parallel requests over all workers. null: the handler's."),
    perSecond: limit(1_000_000).describe("Requests per second over all workers. null: the handler's.")
  })
  .refine(({ concurrency, perSecond }) => concurrency !== undefined || perSecond !== undefined, {
    error: 'must have concurrency or perSecond'
  })
const limitsAnswer = z.looseObject({
  name: z.string(),
  concurrency: z.int().min(1).optional().describe('The current limit.'),
  perSecond: z.number().optional(),
  limits: z.looseObject({}).optional().describe('The limits set by an operator, with who and when.'),
  handlerLimits: z.looseObject({}).optional().describe("The handler's limits, if others are set.")
})

export function downstreamRoutes(app: App, deps: ApiDeps): void {
  app.get(
    '/downstreams',
    {
      schema: {
        tags: ['ops'],
        summary: 'Downstreams, with pause and backlog',
        operationId: 'listDownstreams',
        response: { 200: downstreamsAnswer, ...refusals(...keyed) }
      }
    },
    async request => {
      const caller = callerOf(request)
      const all = await deps.listDownstreams()
      const downstreams = all
        .filter(({ name }) => seesDownstream(name, caller, deps.handlers))
        .map(one => ({ ...one, mayChange: mayChangeDownstream(one.name, caller, deps.handlers) }))
      return { downstreams }
    }
  )

  for (const act of ['pause', 'resume'] as const) {
    app.post(
      `/downstreams/:name/${act}`,
      {
        bodyLimit: 4096,
        schema: {
          tags: ['ops'],
          operationId: `${act}Downstream`,
          params: nameParams,
          summary: act === 'pause' ? 'Pause a downstream: its deliveries wait' : 'Resume a downstream',
          response: {
            200: pausedAnswer,
            ...refusals('DOWNSTREAM_NOT_FOUND', 'CODE_FORBIDDEN', 'CROSS_ORIGIN', ...keyed)
          }
        }
      },
      async request => {
        const { name } = request.params
        const caller = callerOf(request)
        requireDownstream(name, caller, deps.handlers)
        if (!(await deps[act](name, caller))) throw new Problem('DOWNSTREAM_NOT_FOUND')
        return { name, paused: act === 'pause' }
      }
    )
  }

  app.patch(
    '/downstreams/:name',
    {
      bodyLimit: 4096,
      schema: {
        tags: ['ops'],
        summary: 'Set the limits of a downstream without a restart',
        operationId: 'setLimits',
        description:
          "Every process applies them within a second or two. They are stored and replace the handler's limits until set to null.",
        params: nameParams,
        body: limitsBody.meta({ 'x-examples': limitExamples }),
        response: {
          200: limitsAnswer,
          ...refusals('DOWNSTREAM_NOT_FOUND', 'CODE_FORBIDDEN', 'CROSS_ORIGIN', ...unreadable, ...keyed)
        }
      }
    },
    async request => {
      const { name } = request.params
      const caller = callerOf(request)
      requireDownstream(name, caller, deps.handlers)
      const limits = fit(limitsBody, readBody(request.body, 'plain').value)
      const isSet = await deps.setLimits(
        name,
        limits as { concurrency?: number | null; perSecond?: number | null },
        caller
      )
      const found = isSet && (await deps.listDownstreams()).find(one => one.name === name)
      if (!found) throw new Problem('DOWNSTREAM_NOT_FOUND')
      return found
    }
  )
}
