import type { Scope } from '../db/api-keys.ts'
import type { ApiDeps } from './deps.ts'
import { mayUse, type Caller } from './auth.ts'
import { isDownstream } from './requests.ts'
import { Problem, type ProblemCode } from '../runtime/errors.ts'

/**
 * The scopes for each route: any one of them is enough. A route that is missing here stops the start. A test calls every
 * route with every kind of key. HEAD counts as GET.
 */
export const access: Readonly<Record<string, 'open' | readonly Scope[]>> = {
  'POST /tasks': ['tasks:write'],
  'POST /tasks/batch': ['tasks:write'],
  'GET /tasks': ['tasks:read', 'ops:read'],
  'GET /tasks/:taskNo': ['tasks:read', 'ops:read'],
  // It stores nothing and sends nothing.
  'GET /tasks/:taskNo/deliveries/:downstream/request': ['tasks:read'],
  'DELETE /tasks/:taskNo': ['tasks:write', 'ops:write'],
  'POST /tasks/:taskNo/redeliver': ['tasks:write', 'ops:write'],
  'POST /tasks/:taskNo/push': ['ops:write'],
  'POST /tasks/:taskNo/settle': ['ops:write'],
  'POST /tasks/redeliver': ['ops:write'],
  'GET /operations': ['ops:read'],
  'GET /operations/:id': ['ops:read'],
  'GET /operations/:id/deliveries': ['ops:read'],
  'POST /operations/:id/stop': ['ops:write'],
  'GET /audit': ['ops:read'],
  'GET /nodes': ['ops:read'],
  'PATCH /downstreams/:name': ['ops:write'],
  'POST /tasks/:taskNo/commit': ['tasks:write', 'ops:write'],
  'POST /tasks/:taskNo/rollback': ['tasks:write', 'ops:write'],
  'POST /tasks/:taskNo/check': ['tasks:write', 'ops:write'],
  // The token of the delivery proves the sender.
  'POST /callback': 'open',
  'GET /deliveries': ['ops:read'],
  'GET /alarms': ['ops:read'],
  // It only reads, but its parameters are too long for a URL.
  'POST /reconcile': ['tasks:read', 'ops:read'],
  'GET /handlers': ['ops:read'],
  // It stores nothing and sends nothing.
  'POST /handlers/:messageCode/dry-run': ['ops:read'],
  'GET /downstreams': ['ops:read'],
  'GET /keys': ['ops:read'],
  'POST /keys/:downstream/:key/release': ['ops:write'],
  'POST /downstreams/:name/pause': ['ops:write'],
  'POST /downstreams/:name/resume': ['ops:write'],
  'GET /outbox/rejected': ['ops:read'],
  'POST /outbox/rejected/:id/retry': ['ops:write'],
  'DELETE /outbox/rejected/:id': ['ops:write'],
  'POST /outbox/nudge': ['tasks:write', 'ops:write'],
  'GET /stats': ['ops:read'],
  'GET /failures': ['ops:read'],
  'POST /failures/:fingerprint/archive': ['ops:write'],
  'GET /events': ['tasks:read', 'ops:read'],
  'GET /api-keys': ['ops:write'],
  'POST /api-keys': ['ops:write'],
  'DELETE /api-keys/:id': ['ops:write'],
  'POST /alarms/resolve': ['ops:write'],
  // A sign-in proves the caller's key, so no session is required here.
  'GET /session': 'open',
  'POST /session': 'open',
  'DELETE /session': 'open',
  // Only with DTM=on.
  'GET /api/dtmsvr/:operation': ['tasks:write'],
  'POST /api/dtmsvr/:operation': ['tasks:write'],
  'GET /metrics': ['ops:read'],
  'GET /healthz': 'open',
  'GET /readyz': 'open',
  'GET /openapi.json': 'open',
  'GET /': 'open',
  'GET /ui': 'open',
  'GET /ui/*': 'open',
  'GET /docs': 'open',
  'GET /docs/': 'open',
  'GET /docs/*': 'open'
}

/**
 * The acts: each call may write a row of the audit, so the calls of a key are limited (ACTS_PER_SECOND). 'operators': not those of keys
 * that may post. A producer ends its own half messages without a row, and each row of a delete ends a delivery that it has posted. A test
 * compares this list with the rows that the routes write.
 */
export const acts: Readonly<Record<string, 'all' | 'operators'>> = {
  'DELETE /tasks/:taskNo': 'operators',
  'POST /tasks/:taskNo/redeliver': 'all',
  'POST /tasks/:taskNo/push': 'all',
  'POST /tasks/:taskNo/settle': 'all',
  'POST /tasks/redeliver': 'all',
  'POST /operations/:id/stop': 'all',
  'PATCH /downstreams/:name': 'all',
  'POST /tasks/:taskNo/commit': 'operators',
  'POST /tasks/:taskNo/rollback': 'operators',
  'POST /tasks/:taskNo/check': 'all',
  'POST /keys/:downstream/:key/release': 'all',
  'POST /downstreams/:name/pause': 'all',
  'POST /downstreams/:name/resume': 'all',
  'POST /outbox/rejected/:id/retry': 'all',
  'DELETE /outbox/rejected/:id': 'all',
  'POST /failures/:fingerprint/archive': 'all',
  'POST /api-keys': 'all',
  'DELETE /api-keys/:id': 'all',
  'POST /alarms/resolve': 'all'
}

export function accessTo(method: string, url: string): 'open' | readonly Scope[] | undefined {
  const verb = method === 'HEAD' ? 'GET' : method
  // Swagger UI adds routes of its own.
  return access[`${verb} ${url}`] ?? (verb === 'GET' && url.startsWith('/docs/') ? 'open' : undefined)
}

/**
 * Which deliveries of a downstream belong to a key's message codes: `all`, `some`, or `none`. A bound key sees a downstream
 * if it has some, and may stop it only if it has all.
 */
function holdOn(name: string, caller: Caller, handlers: ApiDeps['handlers']): 'all' | 'some' | 'none' {
  if (caller.messageCodes === null) return 'all'
  const senders = [...handlers.values()].filter(handler => handler.downstreams.some(to => to.name === name))
  const own = senders.filter(({ messageCode }) => mayUse(caller, messageCode))
  return own.length === 0 ? 'none' : own.length === senders.length ? 'all' : 'some'
}

/** Whether the caller may see the downstream. */
export const seesDownstream = (name: string, caller: Caller, handlers: ApiDeps['handlers']): boolean =>
  holdOn(name, caller, handlers) !== 'none'

/** Whether the caller may pause, resume and limit the downstream, and release its keys. */
export const mayChangeDownstream = (name: string, caller: Caller, handlers: ApiDeps['handlers']): boolean =>
  caller.scopes.includes('ops:write') && holdOn(name, caller, handlers) === 'all'

/** Refuses a downstream that the caller may not act on. `missing`: the problem if it does not exist for the caller. */
export function requireDownstream(
  name: string,
  caller: Caller,
  handlers: ApiDeps['handlers'],
  missing: ProblemCode = 'DOWNSTREAM_NOT_FOUND'
): void {
  const hold = holdOn(name, caller, handlers)
  if (hold === 'none' || !isDownstream(name)) throw new Problem(missing)
  if (hold === 'some')
    throw new Problem('CODE_FORBIDDEN', 'This downstream also gets tasks of other messageCodes.')
}

/** The message codes that a caller may know. */
export const codesFor = (caller: Caller, handlers: ApiDeps['handlers']): readonly string[] =>
  caller.messageCodes ?? [...handlers.keys()]
