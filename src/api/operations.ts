// Bulk redelivery: all deliveries that match a filter, in the background, with progress.
import { z } from 'zod'
import { codesFor, seesDownstream } from './access.ts'
import { callerOf, requireCode, type Caller } from './auth.ts'
import { fit, readBody } from './body.ts'
import { fingerprint, narrowing, page, pageOf, spanError, pageSize } from './queries.ts'
import type { ApiDeps } from './deps.ts'
import { redeliverAllExamples } from './examples.ts'
import { unknownCode, unknownDownstream } from './problem.ts'
import { downstream, instant, isUuid, messageCode, rfc3339 } from './requests.ts'
import { keyed, refusals, unreadable } from './responses.ts'
import { natural, time } from './task-answer.ts'
import type { App } from './typed.ts'
import { reasons, statusNumber } from '../domain/types.ts'
import { countText } from '../db/page.ts'
import { Problem } from '../runtime/errors.ts'
import { defined } from '../domain/optional-members.ts'

const filterShape = z.strictObject({
  messageCode: messageCode.optional(),
  downstream: downstream.optional(),
  ...narrowing,
  fingerprint: fingerprint.optional().describe('Their last failure belongs to this group of GET /failures.'),
  from: rfc3339.optional().describe('Tasks created at or after. Default: all.'),
  to: rfc3339.optional().describe('Tasks created before.')
})
const redeliverAllBody = z.strictObject({
  filter: filterShape.describe('FAILED deliveries that match every member. {} matches all.'),
  dryRun: z.boolean().optional().describe('true: only count the deliveries.')
})

const count = z
  .union([natural, z.string().regex(/^[\d,]+\+$/)])
  .describe('Above 10,000, or if not all rows were read, a text: "10,000+".')
const statuses = z.enum(Object.keys(statusNumber) as [string, ...string[]])
const operationAnswer = z
  .looseObject({
    id: z.string(),
    kind: z.enum(['redeliver']),
    state: z.enum(['RUNNING', 'STOPPED', 'DONE']),
    filter: filterShape,
    matched: count,
    redelivered: natural,
    skipped: natural.describe(
      'Another change was faster, or force is needed: deliverBefore has passed, or a task that it waited for was deleted.'
    ),
    deliveries: z
      .record(z.string(), natural)
      .optional()
      .describe(
        'Current status of the redelivered deliveries. If more than 10,000 were redelivered, only SENDING and FAILED are counted. Only when one operation is read.'
      ),
    createdAt: time,
    createdBy: z.string(),
    createdById: z.string().optional().describe('The API key that started it.'),
    updatedAt: time,
    endedAt: time.optional(),
    endedBy: z.string().optional().describe('The key that stopped it.')
  })
  .meta({ id: 'Operation' })
const more = { nextCursor: z.string().optional() }
const operationsAnswer = z.strictObject({ operations: z.array(operationAnswer), ...more })
const takenAnswer = z.strictObject({
  deliveries: z.array(
    z.looseObject({
      taskNo: z.string(),
      messageCode: z.string(),
      downstream: z.string(),
      result: z.enum(['redelivered', 'skipped']).optional(),
      status: statuses,
      attempt: natural,
      reason: z.enum(reasons).optional(),
      lastReason: z.string().optional(),
      failedAgain: z.boolean()
    })
  ),
  ...more
})

const params = z.strictObject({ id: z.string().meta({ example: '0199a1b2-c3d4-7e5f-8a6b-0123456789ab' }) })
const query = z.strictObject({ cursor: page.cursor, limit: page.limit })

export function operationRoutes(app: App, deps: ApiDeps): void {
  app.post(
    '/tasks/redeliver',
    {
      bodyLimit: 4096,
      schema: {
        tags: ['operations'],
        summary: 'Redeliver all FAILED deliveries that match a filter',
        operationId: 'redeliverTasks',
        description:
          'Runs in the background, with at most a fifth of the limit of each downstream. It redelivers only deliveries that FAILED before it started, each once. While one runs, another one with the same filter is refused: the detail names the running one.',
        body: redeliverAllBody.meta({ 'x-examples': redeliverAllExamples }),
        response: {
          202: operationAnswer.describe('It is running'),
          200: z
            .strictObject({ dryRun: z.literal(true), matched: count })
            .describe('dryRun: the number of deliveries'),
          ...refusals(
            'DOWNSTREAM_NOT_FOUND',
            'UNKNOWN_CODE',
            'CODE_FORBIDDEN',
            'OPERATION_RUNNING',
            'CROSS_ORIGIN',
            ...unreadable,
            ...keyed
          )
        }
      }
    },
    async (request, reply) => {
      const caller = callerOf(request)
      const { filter, dryRun = false } = fit(redeliverAllBody, readBody(request.body, 'plain').value)
      // PostgreSQL accepts fewer offsets than RFC 3339.
      const { from, to, ...rest } = filter
      const exact = { ...rest, from: inUtc(from), to: inUtc(to) }
      requireCode(caller, filter.messageCode, '/filter/messageCode')
      if (filter.bizKey !== undefined && filter.bizType === undefined)
        throw new Problem('INVALID', 'set bizType too', { pointer: '/filter/bizKey' })
      if (exact.from !== undefined && exact.to !== undefined && exact.to <= exact.from)
        throw new Problem('INVALID', spanError.error, { pointer: '/filter/to' })
      const selection = {
        filter: defined(exact),
        messageCodes: caller.messageCodes
      }
      const counted = await deps.countFailed(selection)
      const { matched, partial } = counted
      if (matched === 0 && !partial) await refuseUnknown(deps, filter, caller)
      if (dryRun) return { dryRun, matched: countText(matched, partial) }
      const begun = await deps.redeliverAll(selection, counted, caller)
      if (typeof begun === 'string') throw new Problem('OPERATION_RUNNING', `operation ${begun}`)
      return reply.code(202).send(begun)
    }
  )

  app.get(
    '/operations',
    {
      schema: {
        tags: ['operations'],
        summary: 'Bulk operations, newest first',
        operationId: 'listOperations',
        querystring: query,
        response: { 200: operationsAnswer, ...refusals('INVALID', ...keyed) }
      }
    },
    async request => {
      const found = await deps.listOperations(pageFilterOf(callerOf(request), request.query))
      return pageOf(found)
    }
  )

  app.get(
    '/operations/:id',
    {
      schema: {
        tags: ['operations'],
        summary: 'One operation, with its progress',
        operationId: 'readOperation',
        params,
        response: { 200: operationAnswer, ...refusals('OPERATION_NOT_FOUND', ...keyed) }
      }
    },
    async request => await readOperation(callerOf(request), request.params.id)
  )

  app.get(
    '/operations/:id/deliveries',
    {
      schema: {
        tags: ['operations'],
        summary: 'Deliveries of an operation in their current state, oldest task first',
        operationId: 'listOperationDeliveries',
        params,
        querystring: query,
        response: { 200: takenAnswer, ...refusals('OPERATION_NOT_FOUND', 'INVALID', ...keyed) }
      }
    },
    async request => {
      const { id } = request.params
      if (!isUuid(id)) throw new Problem('OPERATION_NOT_FOUND')
      const filter = { id, ...pageFilterOf(callerOf(request), request.query) }
      const taken = pageOf(await deps.listOperationDeliveries(filter))
      if (taken === null) throw new Problem('OPERATION_NOT_FOUND')
      return taken
    }
  )

  app.post(
    '/operations/:id/stop',
    {
      bodyLimit: 4096,
      schema: {
        tags: ['operations'],
        summary: 'Stop an operation',
        operationId: 'stopOperation',
        description: 'Deliveries already redelivered are not undone.',
        params,
        response: {
          200: operationAnswer,
          ...refusals('OPERATION_NOT_FOUND', 'OPERATION_ENDED', 'CROSS_ORIGIN', ...keyed)
        }
      }
    },
    async request => {
      const { id } = request.params
      const caller = callerOf(request)
      await readOperation(caller, id)
      const isStopped = await deps.stopOperation({ id, who: caller, messageCodes: caller.messageCodes })
      if (!isStopped) throw new Problem('OPERATION_ENDED')
      return await readOperation(caller, id)
    }
  )

  async function readOperation(caller: Caller, id: string): Promise<object> {
    const operation = isUuid(id) ? await deps.readOperation(id, caller.messageCodes) : null
    if (!operation) throw new Problem('OPERATION_NOT_FOUND')
    return operation
  }
}

const inUtc = (text: string | undefined): string | undefined =>
  text === undefined ? undefined : instant(text)?.toISOString()

const pageFilterOf = (caller: Caller, { cursor, limit }: z.output<typeof query>) => ({
  messageCodes: caller.messageCodes,
  limit: limit ?? pageSize,
  ...defined({ cursor })
})

/** Refuses an unknown name in a filter without matches. A name with FAILED deliveries is accepted, even if no process knows it any more. */
async function refuseUnknown(
  { handlers, listDownstreams }: Pick<ApiDeps, 'handlers' | 'listDownstreams'>,
  filter: z.infer<typeof filterShape>,
  caller: Caller
): Promise<void> {
  const { messageCode: code, downstream: name } = filter
  if (code !== undefined && !handlers.has(code))
    throw unknownCode(code, codesFor(caller, handlers), '/filter/messageCode')
  if (name === undefined) return
  const all = (await listDownstreams()).map(one => one.name)
  const names = all.filter(each => seesDownstream(each, caller, handlers))
  if (!names.includes(name)) throw unknownDownstream(name, names, '/filter/downstream')
}
