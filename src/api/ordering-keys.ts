import { z } from 'zod'
import { fitOptional } from './body.ts'
import { releaseExamples } from './examples.ts'
import { keyed, keysAnswer, refusals, releasedAnswer, unreadable } from './responses.ts'
import { callerOf, mayUse } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { mayChangeDownstream, requireDownstream } from './access.ts'
import { badCursor, keyQuery } from './queries.ts'
import { isDownstream, isOrderingKey, keyParams, taskNo } from './requests.ts'
import type { OrderingKey } from '../db/ordering.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'
import { defined } from '../domain/optional-members.ts'

const releaseBody = z
  .strictObject({
    taskNo: taskNo
      .optional()
      .describe(
        'The task that you saw at the head. Another one is not passed: 409 KEY_NOT_HELD. Default: the task at the head.'
      )
  })
  .optional()

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
    async request => {
      const { held = false, downstream, cursor, limit = 50 } = request.query
      const caller = callerOf(request)
      const { keys, next } = await deps.listOrderingKeys({
        held,
        messageCodes: caller.messageCodes,
        limit,
        ...defined({ downstream }),
        ...(cursor === undefined ? {} : { cursor: keyOf(cursor) })
      })
      const shown = keys.map(key => ({
        ...key,
        mayRelease: mayChangeDownstream(key.downstream, caller, deps.handlers)
      }))
      return { keys: shown, ...(next ? { nextCursor: cursorOf(next) } : {}) }
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
        body: releaseBody.meta({ 'x-examples': releaseExamples }),
        response: {
          200: releasedAnswer,
          ...refusals(
            'KEY_NOT_FOUND',
            'KEY_NOT_HELD',
            'CODE_FORBIDDEN',
            'CROSS_ORIGIN',
            ...unreadable,
            ...keyed
          )
        }
      }
    },
    async request => {
      const { downstream, key: orderingKey } = request.params
      const caller = callerOf(request)
      if (!isOrderingKey(orderingKey)) throw new Problem('KEY_NOT_FOUND')
      requireDownstream(downstream, caller, deps.handlers, 'KEY_NOT_FOUND')
      const seen = fitOptional(releaseBody, request.body) ?? {}
      const passed = await deps.release({ downstream, orderingKey, ...defined(seen) }, caller)
      if (passed === 'not_found') throw new Problem('KEY_NOT_FOUND')
      if (passed === 'not_held')
        throw new Problem('KEY_NOT_HELD', seen.taskNo && 'it is not held by this task')
      const { taskNo, messageCode } = passed
      const shown = mayUse(caller, messageCode) ? { taskNo } : {}
      return { downstream, orderingKey, ...shown }
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
