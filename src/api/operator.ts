// The hands of an operator: push, settle, limits; and what they look at: the audit, the processes.
import { z } from 'zod'
import { holdOn } from './access.ts'
import { callerOf } from './auth.ts'
import { fit, json, readBody, taskText } from './body.ts'
import { badCursor } from './deliveries.ts'
import type { ApiDeps } from './deps.ts'
import { limitExamples, pushExamples, settleExamples } from './examples.ts'
import { bizText, downstream, isDownstream, nameParams, taskParams } from './requests.ts'
import { page } from './queries.ts'
import { refusals, unreadable } from './responses.ts'
import { taskAnswer } from './task-answer.ts'
import { known, mine } from './tasks.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'

const keyed = ['UNAUTHORIZED', 'FORBIDDEN', 'TOO_MANY_REQUESTS', 'UNAVAILABLE'] as const
const only = downstream.optional().describe('Only this downstream. Default: all of the task.')
const pushBody = z.strictObject({ downstream: only }).optional()
const settleBody = z.strictObject({
  status: z.enum(['HANDLED', 'DELETED']).describe('The final status.'),
  reason: z
    .string()
    .min(1)
    .max(1_000)
    // oxlint-disable-next-line eslint/no-control-regex -- PostgreSQL's text cannot hold U+0000
    .regex(/^[^\u0000]*$/, 'must not contain U+0000')
    .describe('Your reason, for the audit.'),
  downstream: only
})
const limit = (most: number) => z.int().min(1).max(most).nullable().optional()
const limitsBody = z
  .strictObject({
    concurrency: limit(100_000).describe("Parallel requests over all workers. null: the handler's."),
    perSecond: limit(1_000_000).describe("Requests per second over all workers. null: the handler's.")
  })
  .refine(({ concurrency, perSecond }) => concurrency !== undefined || perSecond !== undefined, {
    error: 'must have concurrency or perSecond'
  })

const time = z.string().meta({ format: 'date-time' })
const limitsAnswer = z.looseObject({
  name: z.string(),
  concurrency: z.int().min(1).optional().describe('The current limit.'),
  perSecond: z.number().optional(),
  limits: z.looseObject({}).optional().describe('The limits set by an operator, with who and when.'),
  handlerLimits: z.looseObject({}).optional().describe("The handler's limits, if others are set.")
})
const auditAnswer = z.strictObject({
  audit: z.array(
    z.looseObject({
      id: z.string(),
      at: time,
      who: z.string().describe('Name of a key, or `cli:` and a user.'),
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
const auditQuery = z.strictObject({
  who: word.optional(),
  what: word.optional().describe('For example task.settle or downstream.pause.'),
  target: word.optional().describe('A taskNo or the name of a downstream.'),
  from: page.from.describe('Default: from the first entry.'),
  to: page.to,
  cursor: page.cursor,
  limit: page.limit
})

export function operatorRoutes(app: App, deps: ApiDeps): void {
  app.post(
    '/tasks/:taskNo/push',
    {
      bodyLimit: 4096,
      schema: {
        tags: ['tasks'],
        summary: 'Deliver now instead of waiting for the next try',
        operationId: 'pushTask',
        description:
          'Deliveries that wait for their next try are due now. A task that waits for its start time or for other tasks cannot be pushed.',
        params: taskParams,
        body: pushBody.meta({ 'x-examples': pushExamples }),
        response: {
          200: taskAnswer,
          ...refusals(
            'TASK_NOT_FOUND',
            'NOTHING_TO_PUSH',
            'TASK_NOT_STARTED',
            'TASK_BLOCKED',
            'TASK_PREPARED',
            'CROSS_ORIGIN',
            ...unreadable,
            ...keyed
          )
        }
      }
    },
    async (request, reply) => {
      const taskNo = known(request.params)
      const empty = !Buffer.isBuffer(request.body) || request.body.length === 0
      const body = (empty ? undefined : fit(pushBody, readBody(request.body, 'plain').value)) ?? {}
      const who = await mine(deps, callerOf(request), taskNo)
      const task = await deps.push({
        taskNo,
        who,
        ...(body.downstream === undefined ? {} : { downstream: body.downstream })
      })
      if (task === 'not_found') throw new Problem('TASK_NOT_FOUND')
      if (task === 'nothing') throw new Problem('NOTHING_TO_PUSH')
      if (task === 'prepared') throw new Problem('TASK_PREPARED')
      if (task === 'blocked') throw new Problem('TASK_BLOCKED')
      if (task === 'early') throw new Problem('TASK_NOT_STARTED')
      return json(reply, taskText(task))
    }
  )

  app.post(
    '/tasks/:taskNo/settle',
    {
      bodyLimit: 8192,
      schema: {
        tags: ['tasks'],
        summary: 'Set the final status of deliveries that were fixed by hand',
        operationId: 'settleTask',
        description:
          'Open and FAILED deliveries become HANDLED (handledBy operator) or DELETED, and their alarms are resolved. A request in flight cannot be stopped.',
        params: taskParams,
        body: settleBody.meta({ 'x-examples': settleExamples }),
        response: {
          200: taskAnswer,
          ...refusals(
            'TASK_NOT_FOUND',
            'NOTHING_TO_SETTLE',
            'TASK_PREPARED',
            'CROSS_ORIGIN',
            ...unreadable,
            ...keyed
          )
        }
      }
    },
    async (request, reply) => {
      const taskNo = known(request.params)
      const who = await mine(deps, callerOf(request), taskNo)
      const { downstream: name, ...said } = fit(settleBody, readBody(request.body, 'plain').value)
      const task = await deps.settle({
        taskNo,
        who,
        ...said,
        ...(name === undefined ? {} : { downstream: name })
      })
      if (task === 'not_found') throw new Problem('TASK_NOT_FOUND')
      if (task === 'nothing') throw new Problem('NOTHING_TO_SETTLE')
      if (task === 'prepared') throw new Problem('TASK_PREPARED')
      return json(reply, taskText(task))
    }
  )

  app.patch(
    '/downstreams/:name',
    {
      bodyLimit: 4096,
      schema: {
        tags: ['ops'],
        summary: 'Set the limits of a downstream without a restart',
        operationId: 'setLimits',
        description:
          "Every process applies them within a second. They are stored and replace the handler's limits until set to null.",
        params: nameParams,
        body: limitsBody.meta({ 'x-examples': limitExamples }),
        response: {
          200: limitsAnswer,
          ...refusals('DOWNSTREAM_NOT_FOUND', 'CODE_FORBIDDEN', 'CROSS_ORIGIN', ...unreadable, ...keyed)
        }
      }
    },
    async (request, reply) => {
      const { name } = request.params
      const caller = callerOf(request)
      const hold = holdOn(name, caller, deps.handlers)
      if (hold === 'none' || !isDownstream(name)) throw new Problem('DOWNSTREAM_NOT_FOUND')
      if (hold === 'some')
        throw new Problem('CODE_FORBIDDEN', 'This downstream also gets tasks of other messageCodes.')
      const limits = fit(limitsBody, readBody(request.body, 'plain').value)
      const isSet = await deps.setLimits(
        name,
        limits as { concurrency?: number | null; perSecond?: number | null },
        caller.name
      )
      const found = isSet && (await deps.listDownstreams()).find(one => one.name === name)
      if (!found) throw new Problem('DOWNSTREAM_NOT_FOUND')
      return json(reply, JSON.stringify(found))
    }
  )

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
    async (request, reply) => {
      if (callerOf(request).messageCodes)
        throw new Problem('CODE_FORBIDDEN', 'Keys bound to messageCodes cannot read the audit.')
      const { limit: most, ...query } = request.query
      const asked = Object.fromEntries(Object.entries(query).filter(([, value]) => value !== undefined))
      const found = await deps.listAudit({ ...asked, limit: most ?? 50 })
      if (found === 'bad_cursor') throw badCursor()
      return json(reply, JSON.stringify(found))
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
    async (request, reply) => {
      const caller = callerOf(request)
      const nodes = (await deps.listNodes()).map(one => ({
        ...one,
        yielded: one.yielded.filter(({ downstream: name }) => holdOn(name, caller, deps.handlers) !== 'none')
      }))
      return json(reply, JSON.stringify({ nodes }))
    }
  )
}
