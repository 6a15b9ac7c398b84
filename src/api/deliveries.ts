import { alarmsAnswer, deliveriesAnswer, refusals } from './answers.ts'
import { callerOf } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { alarmQuery, deliveryQuery } from './schemas.ts'
import type { App } from './typed.ts'
import { json } from './view.ts'
import { badCursor, windowOf } from './window.ts'

const refused = refusals(
  'INVALID',
  'UNAUTHORIZED',
  'FORBIDDEN',
  'CODE_FORBIDDEN',
  'TOO_MANY_REQUESTS',
  'UNAVAILABLE'
)

export function deliveryRoutes(app: App, deps: ApiDeps): void {
  app.get(
    '/deliveries',
    {
      schema: {
        tags: ['ops'],
        summary: 'Deliveries, newest first',
        operationId: 'listDeliveries',
        querystring: deliveryQuery,
        response: { 200: deliveriesAnswer, ...refused }
      }
    },
    async (request, reply) => {
      const { status, phase, reason, ...page } = request.query
      const found = await deps.listDeliveries({
        ...windowOf(page, callerOf(request), deps.now()),
        ...(status === undefined ? {} : { status }),
        ...(phase === undefined ? {} : { phase }),
        ...(reason === undefined ? {} : { reason })
      })
      if (found === 'bad_cursor') throw badCursor()
      return json(reply, JSON.stringify(found))
    }
  )

  app.get(
    '/alarms',
    {
      schema: {
        tags: ['ops'],
        summary: 'Alarms, newest first',
        operationId: 'listAlarms',
        querystring: alarmQuery,
        response: { 200: alarmsAnswer, ...refused }
      }
    },
    async (request, reply) => {
      const { kind, open, ...page } = request.query
      const found = await deps.listAlarms({
        ...windowOf(page, callerOf(request), deps.now()),
        ...(kind === undefined ? {} : { kind }),
        ...(open === undefined ? {} : { open })
      })
      if (found === 'bad_cursor') throw badCursor()
      return json(reply, JSON.stringify(found))
    }
  )
}
