import { z } from 'zod'
import { callerOf } from './auth.ts'
import { fit, readBody } from './body.ts'
import { alarmQuery, listFilterOf, pageOf } from './queries.ts'
import type { ApiDeps } from './deps.ts'
import { alarmExamples } from './examples.ts'
import { taskNo } from './requests.ts'
import { alarmsAnswer, keyed, refusals } from './responses.ts'
import type { App } from './typed.ts'
import { alarmKinds } from '../domain/types.ts'
import { Problem } from '../runtime/errors.ts'
import { defined } from '../domain/optional-members.ts'

const alarmBody = z.strictObject({
  taskNo,
  downstream: z.string().max(200),
  attempt: z.int().min(0).max(2_147_483_647),
  kind: z.enum(alarmKinds)
})

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
    async request => {
      const { kind, notKind, open, taskNo, ...page } = request.query
      // What is open needs somebody, whatever its age.
      const isOfAllTimes = taskNo !== undefined || open === true
      const found = await deps.listAlarms({
        ...listFilterOf(page, callerOf(request), deps.now(), isOfAllTimes),
        ...defined({ taskNo, kind, notKind, open })
      })
      return pageOf(found)
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
    async request => {
      const alarm = fit(alarmBody, readBody(request.body, 'plain').value)
      const who = callerOf(request)
      const resolved = await deps.resolveAlarm({ ...alarm, who, messageCodes: who.messageCodes })
      if (resolved === null) throw new Problem('ALARM_NOT_FOUND')
      return { resolved }
    }
  )
}
