import { mayUse, type Caller } from './auth.ts'
import { Problem } from '../errors.ts'

interface AskedPage {
  messageCode?: string | undefined
  downstream?: string | undefined
  from?: Date | undefined
  to?: Date | undefined
  cursor?: string | undefined
  limit?: number | undefined
}

const dayMs = 86_400_000

/** The part that all lists share: what this key may see, the last 24 hours unless asked otherwise, 50 at a time. */
export function windowOf(
  { messageCode, downstream, from, to, cursor, limit }: AskedPage,
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

export const badCursor = () =>
  new Problem('INVALID', 'is not the nextCursor of a page', { pointer: '?/cursor' })
