import type { z } from 'zod'
import { deliveriesAnswer, keyed, refusals } from './responses.ts'
import { callerOf, requireCode, type Caller } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { deliveryQuery, type narrowing } from './queries.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'
import { defined } from '../domain/optional-members.ts'
import type { TaskStatus } from '../domain/types.ts'

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

interface PageQuery {
  messageCode?: string | undefined
  downstream?: string | undefined
  from?: Date | undefined
  to?: Date | undefined
  cursor?: string | undefined
  limit?: number | undefined
}

const dayMs = 86_400_000

/** A list of these needs no `from`: they wait for something or somebody, whatever their age, and have indexes of their own. */
export const isUnsettled = (status: TaskStatus | undefined): boolean =>
  status === 'FAILED' || status === 'SENDING' || status === 'PREPARED'

/**
 * The filter of all lists: only rows that this key may see, by default 50 rows. Without `from` they are those of the last 24 hours,
 * or of all times.
 */
export function listFilterOf(
  { messageCode, downstream, from, to, cursor, limit }: PageQuery,
  caller: Caller,
  now: Date,
  isOfAllTimes: boolean
) {
  requireCode(caller, messageCode, '?/messageCode')
  return {
    messageCodes: caller.messageCodes,
    from: from ?? new Date(isOfAllTimes ? 0 : (to ?? now).getTime() - dayMs),
    limit: limit ?? 50,
    ...defined({ messageCode, downstream, to, cursor })
  }
}

type Narrowing = { [name in keyof typeof narrowing]?: z.output<(typeof narrowing)[name]> }

/** The filters that tasks and deliveries have in common. */
export function narrowed(query: Narrowing) {
  const { sceneType, bizType, bizKey, createdBy, taskNoPrefix, reason, lastReason } = query
  if (bizKey !== undefined && bizType === undefined)
    throw new Problem('INVALID', 'set bizType too', { pointer: '?/bizKey' })
  return {
    ...defined({ sceneType, bizType, bizKey, createdBy, taskNoPrefix, reason, lastReason })
  }
}

export const badCursor = () =>
  new Problem('INVALID', 'must be the nextCursor of the previous page', { pointer: '?/cursor' })

/** The page of a list. Throws if the cursor is invalid. */
export function pageOf<Page>(found: Page | 'bad_cursor'): Page {
  if (found === 'bad_cursor') throw badCursor()
  return found
}
