// The lists for operators besides tasks: the audit and the processes.
import { z } from 'zod'
import { seesDownstream } from './access.ts'
import { callerOf } from './auth.ts'
import { isSpan, page, pageOf, spanError } from './queries.ts'
import type { ApiDeps } from './deps.ts'
import { bizText } from './requests.ts'
import { keyed, refusals } from './responses.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'
import { time } from './task-answer.ts'
import { defined } from '../domain/optional-members.ts'

const auditAnswer = z.strictObject({
  audit: z.array(
    z.looseObject({
      id: z.string(),
      at: time,
      who: z.string().describe('Name of a key, or `cli:` and a user.'),
      keyId: z.string().optional().describe('Id of the key. Several keys may have one name.'),
      what: z.string(),
      target: z.string().optional().describe('A taskNo, the name of a downstream, or an id.'),
      detail: z.unknown().optional().meta({ description: 'The states before and after, by downstream.' })
    })
  ),
  nextCursor: z.string().optional()
})
const nodesAnswer = z.strictObject({
  nodes: z.array(
    z.looseObject({
      id: z.string(),
      roles: z.array(z.string()),
      version: z.string(),
      live: z.boolean().describe('It wrote a heartbeat within the last 15 s.'),
      startedAt: time,
      seenAt: time,
      secret: z.string().optional().describe('Fingerprint of its SECRET. All must be equal.'),
      queue: z.string().optional().describe('Server of its jobs. All must be equal.'),
      handlers: z.string().optional().describe('Fingerprint of its handlers. All should be equal.'),
      yielded: z
        .array(z.strictObject({ downstream: z.string(), until: time, reason: z.string() }))
        .describe('Downstreams that it leaves to others because it cannot reach them.')
    })
  )
})

const word = bizText(200)
const auditQuery = z
  .strictObject({
    who: word.optional(),
    keyId: word.optional().describe('The id of a key, as in GET /api-keys.'),
    what: word.optional().describe('For example task.settle or downstream.pause.'),
    target: word
      .optional()
      .describe('A taskNo or the name of a downstream. Of a task, its bulk redeliveries are listed too.'),
    from: page.from.describe('Default: from the first entry.'),
    to: page.to,
    cursor: page.cursor,
    limit: page.limit
  })
  .refine(isSpan, spanError)

export function operatorRoutes(app: App, deps: ApiDeps): void {
  app.get(
    '/audit',
    {
      schema: {
        tags: ['ops'],
        summary: 'Acts of operators, newest first',
        operationId: 'listAudit',
        description: 'The audit names tasks of all messageCodes. Keys bound to messageCodes cannot read it.',
        querystring: auditQuery,
        response: { 200: auditAnswer, ...refusals('INVALID', 'CODE_FORBIDDEN', ...keyed) }
      }
    },
    async request => {
      if (callerOf(request).messageCodes)
        throw new Problem('CODE_FORBIDDEN', 'Keys bound to messageCodes cannot read the audit.')
      const { limit = 50, ...query } = request.query
      return pageOf(await deps.listAudit({ ...defined(query), limit }))
    }
  )

  app.get(
    '/nodes',
    {
      schema: {
        tags: ['ops'],
        summary: 'The processes of this service',
        operationId: 'listNodes',
        description:
          'Processes of the last hour. Live processes must have the same SECRET and queue, and should have the same handlers.',
        response: { 200: nodesAnswer, ...refusals(...keyed) }
      }
    },
    async request => {
      const caller = callerOf(request)
      const nodes = (await deps.listNodes()).map(one => ({
        ...one,
        yielded: one.yielded.filter(({ downstream: name }) => seesDownstream(name, caller, deps.handlers))
      }))
      return { nodes }
    }
  )
}
