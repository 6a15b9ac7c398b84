import { keyed, keysAnswer, refusals, releasedAnswer } from './responses.ts'
import { callerOf, mayUse } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { holdOn } from './access.ts'
import { badCursor } from './deliveries.ts'
import { isDownstream, isOrderingKey, keyParams } from './requests.ts'
import { keyQuery } from './queries.ts'
import type { OrderingKey } from '../db/ordering.ts'
import type { App } from './typed.ts'
import { json } from './body.ts'
import { Problem } from '../runtime/errors.ts'

export function orderingKeyRoutes(app: App, deps: ApiDeps): void {
  app.get(
    '/keys',
    {
      schema: {
        tags: ['ops'],
        summary: 'Ordering keys with deliveries that are not HANDLED',
        operationId: 'listKeys',
        description:
          'With held=true, only keys held by a FAILED delivery, with the number of waiting deliveries and since when.',
        querystring: keyQuery,
        response: { 200: keysAnswer, ...refusals('INVALID', ...keyed) }
      }
    },
    async (request, reply) => {
      const { held = false, downstream, cursor, limit = 50 } = request.query
      const { messageCodes } = callerOf(request)
      const { keys, next } = await deps.listOrderingKeys({
        held,
        messageCodes,
        limit,
        ...(downstream === undefined ? {} : { downstream }),
        ...(cursor === undefined ? {} : { cursor: keyOf(cursor) })
      })
      return json(reply, JSON.stringify({ keys, ...(next ? { nextCursor: cursorOf(next) } : {}) }))
    }
  )

  app.post(
    '/keys/:downstream/:key/release',
    {
      bodyLimit: 4096,
      schema: {
        tags: ['ops'],
        summary: 'Release a key held by a FAILED delivery',
        operationId: 'releaseKey',
        description: 'The failed delivery loses its place. A later redelivery runs in parallel.',
        params: keyParams,
        response: {
          200: releasedAnswer,
          ...refusals('KEY_NOT_FOUND', 'KEY_NOT_HELD', 'CODE_FORBIDDEN', 'CROSS_ORIGIN', ...keyed)
        }
      }
    },
    async (request, reply) => {
      const { downstream, key: orderingKey } = request.params
      const caller = callerOf(request)
      const hold = holdOn(downstream, caller, deps.handlers)
      if (hold === 'none' || !isDownstream(downstream) || !isOrderingKey(orderingKey))
        throw new Problem('KEY_NOT_FOUND')
      if (hold === 'some')
        throw new Problem('CODE_FORBIDDEN', 'This downstream also gets tasks of other messageCodes.')
      const passed = await deps.release({ downstream, orderingKey }, caller.name)
      if (passed === 'not_found') throw new Problem('KEY_NOT_FOUND')
      if (passed === 'not_held') throw new Problem('KEY_NOT_HELD')
      const { taskNo, messageCode } = passed
      const shown = mayUse(caller, messageCode) ? { taskNo } : {}
      return json(reply, JSON.stringify({ downstream, orderingKey, ...shown }))
    }
  )
}

const cursorOf = ({ downstream, orderingKey }: OrderingKey): string =>
  `${downstream}.${Buffer.from(orderingKey).toString('base64url')}`

function keyOf(cursor: string): OrderingKey {
  const [downstream = '', text = ''] = cursor.split('.')
  const orderingKey = Buffer.from(text, 'base64url').toString()
  if (!isDownstream(downstream) || !isOrderingKey(orderingKey)) throw badCursor()
  return { downstream, orderingKey }
}
