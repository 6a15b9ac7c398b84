import { z } from 'zod'
import { callerOf, mayUse, type Caller } from './auth.ts'
import { fit, json, readBody } from './body.ts'
import type { ApiDeps } from './deps.ts'
import { archiveExamples } from './examples.ts'
import { failureQuery, fingerprintParams, noteBody, statsQuery } from './requests-dashboard.ts'
import { fingerprint as fingerprintForm } from './queries.ts'
import { failuresAnswer, keyed, refusals, statsAnswer } from './responses.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'

const tags = ['dashboard'] as const
const dayMs = 86_400_000
const hourMs = 3_600_000
/** Points of a series at most. */
const mostPoints = 750

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
    async (request, reply) => {
      const { from, to = deps.now(), step, by, messageCode, downstream } = request.query
      const caller = callerOf(request)
      const start = from ?? new Date(to.getTime() - hourMs)
      const seconds = Math.max(0, (to.getTime() - start.getTime()) / 1000)
      const least = Math.max(60, Math.ceil(seconds / mostPoints / 60) * 60)
      const stepS = Math.max(least, Math.ceil((step ?? least) / 60) * 60)
      const series = await deps.readStats({
        messageCodes: own(caller, messageCode),
        from: start,
        to,
        stepS,
        byDownstream: by === 'downstream',
        ...(messageCode === undefined ? {} : { messageCode }),
        ...(downstream === undefined ? {} : { downstream })
      })
      return json(
        reply,
        JSON.stringify({ from: start.toISOString(), to: to.toISOString(), step: stepS, series })
      )
    }
  )

  app.get(
    '/failures',
    {
      schema: {
        tags,
        summary: 'Failures, grouped by cause',
        operationId: 'listFailures',
        description:
          'A group has one fingerprint: downstream, reason, status, and the first line of the answer without numbers and ids. `failed` counts those that are FAILED now. The newest 10,000 failures are read; if there are more, the answer is `partial`.',
        querystring: failureQuery,
        response: { 200: failuresAnswer, ...refusals('INVALID', 'CODE_FORBIDDEN', ...keyed) }
      }
    },
    async (request, reply) => {
      const { from, to = deps.now(), messageCode, downstream, fingerprint, archived, limit } = request.query
      const found = await deps.listFailures({
        messageCodes: own(callerOf(request), messageCode),
        from: from ?? new Date(to.getTime() - dayMs),
        to,
        archived: archived ?? false,
        limit: limit ?? 50,
        ...(messageCode === undefined ? {} : { messageCode }),
        ...(downstream === undefined ? {} : { downstream }),
        ...(fingerprint === undefined ? {} : { fingerprint })
      })
      return json(reply, JSON.stringify(found))
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
    async (request, reply) => {
      const { fingerprint } = request.params
      const { note } = fit(noteBody, readBody(request.body, 'plain').value)
      if (!fingerprintForm.safeParse(fingerprint).success) throw new Problem('FAILURE_NOT_FOUND')
      const { name, messageCodes } = callerOf(request)
      if (!(await deps.archiveFailure({ fingerprint, note, who: name, messageCodes })))
        throw new Problem('FAILURE_NOT_FOUND')
      return json(reply, JSON.stringify({ fingerprint }))
    }
  )
}

function own(caller: Caller, messageCode: string | undefined): readonly string[] | null {
  if (messageCode !== undefined && !mayUse(caller, messageCode))
    throw new Problem('CODE_FORBIDDEN', '', { pointer: '?/messageCode' })
  return caller.messageCodes
}
