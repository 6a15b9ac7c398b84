import { mayUse, type Caller } from './auth.ts'
import type { ApiDeps } from './deps.ts'

/**
 * What a key has to do with a downstream: `all` of what goes there is its own, `some`, or `none`. A key that is limited to
 * some messageCodes sees what it has a part in, and may stop only what is wholly its own.
 */
export function holdOn(name: string, caller: Caller, handlers: ApiDeps['handlers']): 'all' | 'some' | 'none' {
  if (caller.messageCodes === null) return 'all'
  const senders = [...handlers.values()].filter(one => one.downstreams.some(to => to.name === name))
  const own = senders.filter(one => mayUse(caller, one.messageCode))
  return own.length === 0 ? 'none' : own.length === senders.length ? 'all' : 'some'
}
