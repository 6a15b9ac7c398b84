import { z } from 'zod'
import { callerOf, requireCode } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { count, isSpan, time, spanError } from './queries.ts'
import { downstream, messageCode } from './requests.ts'
import { keyed, refusals, statsAnswer } from './responses.ts'
import type { App } from './typed.ts'
import { defined } from '../domain/optional-members.ts'

const tags = ['dashboard'] as const
const hourMs = 3_600_000
const minuteMs = 60_000
/** Points of a series at most. */
const mostPoints = 750

const minuteOf = (ms: number, whole: (minutes: number) => number): Date =>
  new Date(whole(ms / minuteMs) * minuteMs)

const statsQuery = z
  .strictObject({
    from: time.optional().describe('Its minute is counted whole. Default: an hour before `to`.'),
    to: time.optional().describe('A minute that has begun is counted whole. Default: now.'),
    step: count(60, 86_400)
      .optional()
      .describe('Seconds per point, in whole minutes. Raised if there would be more than 750 points.'),
    by: z.enum(['downstream']).optional().describe('A series for each downstream.'),
    messageCode: messageCode.optional(),
    downstream: downstream.optional()
  })
  .refine(isSpan, spanError)
export function statsRoutes(app: App, deps: ApiDeps): void {
  app.get(
    '/stats',
    {
      schema: {
        tags,
        summary: 'Counts and latencies by time, for charts',
        operationId: 'readStats',
        description:
          'Each process counts in memory and writes every 10 s, so a crash may lose 10 s of a chart. Kept for 30 days.',
        querystring: statsQuery,
        response: { 200: statsAnswer, ...refusals('INVALID', 'CODE_FORBIDDEN', ...keyed) }
      }
    },
    async request => {
      const { from, to = deps.now(), step, by, messageCode, downstream } = request.query
      const caller = callerOf(request)
      requireCode(caller, messageCode, '?/messageCode')
      // Counts are by minute: the answer says which minutes it counts.
      const start = minuteOf(from?.getTime() ?? to.getTime() - hourMs, Math.floor)
      const end = minuteOf(to.getTime(), Math.ceil)
      const seconds = (end.getTime() - start.getTime()) / 1000
      const least = Math.max(60, Math.ceil(seconds / mostPoints / 60) * 60)
      const stepS = Math.max(least, Math.ceil((step ?? least) / 60) * 60)
      const series = await deps.readStats({
        messageCodes: caller.messageCodes,
        from: start,
        to: end,
        stepS,
        byDownstream: by === 'downstream',
        ...defined({ messageCode, downstream })
      })
      return { from: start.toISOString(), to: end.toISOString(), step: stepS, series }
    }
  )
}
