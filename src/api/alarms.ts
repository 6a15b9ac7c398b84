import { z } from 'zod'
import { callerOf } from './auth.ts'
import { fit, json, readBody } from './body.ts'
import { badCursor, listFilterOf } from './deliveries.ts'
import type { ApiDeps } from './deps.ts'
import { alarmExamples } from './examples.ts'
import { alarmQuery } from './queries.ts'
import { alarmBody } from './requests-dashboard.ts'
import { alarmsAnswer, keyed, refusals } from './responses.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'

export function alarmRoutes(app: App, deps: ApiDeps): void {
  app.get(
    '/alarms',
    {
      schema: {
        tags: ['ops'],
        summary: 'Alarms, newest first',
        operationId: 'listAlarms',
        querystring: alarmQuery,
        response: { 200: alarmsAnswer, ...refusals('INVALID', ...keyed, 'CODE_FORBIDDEN') }
      }
    },
    async (request, reply) => {
      const { kind, notKind, open, taskNo, ...page } = request.query
      const from = page.from ?? (taskNo === undefined ? undefined : new Date(0))
      const found = await deps.listAlarms({
        ...listFilterOf({ ...page, from }, callerOf(request), deps.now()),
        ...(taskNo === undefined ? {} : { taskNo }),
        ...(kind === undefined ? {} : { kind }),
        ...(notKind === undefined ? {} : { notKind }),
        ...(open === undefined ? {} : { open })
      })
      if (found === 'bad_cursor') throw badCursor()
      return json(reply, JSON.stringify(found))
    }
  )

  app.post(
    '/alarms/resolve',
    {
      bodyLimit: 4096,
      schema: {
        tags: ['ops'],
        summary: 'Resolve an alarm',
        operationId: 'resolveAlarm',
        description: 'No delivery changes. A new failure raises a new alarm.',
        body: alarmBody.meta({ 'x-examples': alarmExamples }),
        response: {
          200: z.strictObject({ resolved: z.boolean().describe('false: it was already resolved.') }),
          ...refusals('ALARM_NOT_FOUND', 'NOT_JSON', 'INVALID', 'CSRF', 'CROSS_ORIGIN', ...keyed)
        }
      }
    },
    async (request, reply) => {
      const alarm = fit(alarmBody, readBody(request.body, 'plain').value)
      const { name, messageCodes } = callerOf(request)
      const resolved = await deps.resolveAlarm({ ...alarm, who: name, messageCodes })
      if (resolved === null) throw new Problem('ALARM_NOT_FOUND')
      return json(reply, JSON.stringify({ resolved }))
    }
  )
}
