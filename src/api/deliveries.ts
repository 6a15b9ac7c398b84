import { callerOf } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { deliveryQuery, isUnsettled, listFilterOf, narrowed, pageOf } from './queries.ts'
import { deliveriesAnswer, keyed, refusals } from './responses.ts'
import type { App } from './typed.ts'
import { defined } from '../domain/optional-members.ts'

export function deliveryRoutes(app: App, deps: ApiDeps): void {
  app.get(
    '/deliveries',
    {
      schema: {
        tags: ['ops'],
        summary: 'Deliveries, newest first',
        operationId: 'listDeliveries',
        querystring: deliveryQuery,
        response: { 200: deliveriesAnswer, ...refusals('INVALID', ...keyed, 'CODE_FORBIDDEN') }
      }
    },
    async request => {
      const { status, phase, fingerprint, ...query } = request.query
      const found = await deps.listDeliveries({
        ...listFilterOf(query, callerOf(request), deps.now(), isUnsettled(status) || phase !== undefined),
        ...narrowed(query),
        ...defined({ status, phase, fingerprint })
      })
      return pageOf(found)
    }
  )
}
