import type { z } from 'zod'
import { deliveriesAnswer, keyed, refusals } from './responses.ts'
import { callerOf, mayUse, type Caller } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { deliveryQuery, type narrowing } from './queries.ts'
import type { App } from './typed.ts'
import { json } from './body.ts'
import { Problem } from '../runtime/errors.ts'

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
    async (request, reply) => {
      const { status, phase, fingerprint, ...query } = request.query
      const found = await deps.listDeliveries({
        ...listFilterOf(query, callerOf(request), deps.now()),
        ...narrowed(query),
        ...(status === undefined ? {} : { status }),
        ...(phase === undefined ? {} : { phase }),
        ...(fingerprint === undefined ? {} : { fingerprint })
      })
      if (found === 'bad_cursor') throw badCursor()
      return json(reply, JSON.stringify(found))
    }
  )
}

interface PageQuery {
  messageCode?: string | undefined
  downstream?: string | undefined
  from?: Date | undefined
  to?: Date | undefined
  cursor?: string | undefined
  limit?: number | undefined
}

const dayMs = 86_400_000

/** Common to all lists: only what this key may see, by default the last 24 hours and 50 rows. */
export function listFilterOf(
  { messageCode, downstream, from, to, cursor, limit }: PageQuery,
  caller: Caller,
  now: Date
) {
  if (messageCode !== undefined && !mayUse(caller, messageCode)) {
    throw new Problem('CODE_FORBIDDEN', '', { pointer: '?/messageCode' })
  }
  return {
    messageCodes: caller.messageCodes,
    from: from ?? new Date((to ?? now).getTime() - dayMs),
    limit: limit ?? 50,
    ...(messageCode === undefined ? {} : { messageCode }),
    ...(downstream === undefined ? {} : { downstream }),
    ...(to === undefined ? {} : { to }),
    ...(cursor === undefined ? {} : { cursor })
  }
}

type Narrowing = { [name in keyof typeof narrowing]?: z.output<(typeof narrowing)[name]> }

/** The filters that tasks and deliveries have in common. */
export function narrowed(query: Narrowing) {
  const { sceneType, bizType, bizKey, createdBy, taskNoPrefix, reason, lastReason } = query
  if (bizKey !== undefined && bizType === undefined)
    throw new Problem('INVALID', 'set bizType too', { pointer: '?/bizKey' })
  return {
    ...(sceneType === undefined ? {} : { sceneType }),
    ...(bizType === undefined ? {} : { bizType }),
    ...(bizKey === undefined ? {} : { bizKey }),
    ...(createdBy === undefined ? {} : { createdBy }),
    ...(taskNoPrefix === undefined ? {} : { taskNoPrefix }),
    ...(reason === undefined ? {} : { reason }),
    ...(lastReason === undefined ? {} : { lastReason })
  }
}

export const badCursor = () =>
  new Problem('INVALID', 'must be the nextCursor of the previous page', { pointer: '?/cursor' })
