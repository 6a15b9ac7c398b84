import type { DeliveryView, TaskView } from '../db/views.ts'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { readTaskRequest, countRefused, knownAmong, traceparentOf } from './task-request.ts'
import { codesFor } from './access.ts'
import { whileConnected } from './connections.ts'
import { acceptedTask } from './problem.ts'
import { acceptBatch } from './batch.ts'
import { callerOf, mayUse, quotaKeyOf, type Caller } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { batchAnswer, keyed, refusals, tasksAnswer, unreadable } from './responses.ts'
import { taskAnswer } from './task-answer.ts'
import { batchExamples, taskExamples } from './examples.ts'
import { refuseOverload, unlessOverloaded } from './overload.ts'
import { bytesOf, readBody, taskText, tasksText } from './body.ts'
import { batchBody, isTaskNo, taskBody, taskParams } from './requests.ts'
import { isUnsettled, listFilterOf, narrowed, pageOf, taskQuery, waitQuery } from './queries.ts'
import type { App } from './typed.ts'
import { deliveryOf } from '../domain/ids.ts'
import { Problem } from '../runtime/errors.ts'
import { defined } from '../domain/optional-members.ts'
import type { Actor } from '../domain/types.ts'

const tags = ['tasks'] as const

export function taskRoutes(app: App, deps: ApiDeps): void {
  const contextOf = (request: FastifyRequest) => ({
    caller: callerOf(request),
    handlers: deps.handlers,
    refusal: deps.refusal,
    traceparent: traceparentOf(request.headers.traceparent),
    now: deps.now()
  })
  const beforeReading = unlessOverloaded(deps)

  app.post(
    '/tasks',
    {
      bodyLimit: 288 * 1024,
      preParsing: beforeReading,
      schema: {
        tags,
        summary: 'Accept a task',
        operationId: 'acceptTask',
        description:
          'Returns after the task is committed. Repeating the same taskNo with the same content returns 200 and the current status. A prepared task is delivered only after POST /tasks/{taskNo}/commit.',
        body: taskBody.meta({ 'x-examples': taskExamples }),
        response: {
          201: taskAnswer.describe('Accepted'),
          200: taskAnswer.describe('Accepted before, with the same content'),
          ...refusals(
            ...unreadable,
            'BODY_TOO_LARGE',
            'UNKNOWN_CODE',
            'NO_CHECK_BACK',
            'TASK_CONFLICT',
            'BIZ_CONFLICT',
            'CODE_FORBIDDEN',
            'OVERLOADED',
            'CROSS_ORIGIN',
            ...keyed
          )
        }
      }
    },
    async (request, reply) => {
      refuseOverload(deps)
      const read = readBody(request.body, 'task')
      const context = contextOf(request)
      let text: string
      try {
        const { taskRequest, ifNew } = readTaskRequest(
          { value: read.value, read, index: 0, pointer: '' },
          context
        )
        // A task that was accepted in time stays known, however late it is posted again.
        if (ifNew && !(await knownAmong(deps, context.caller, [taskRequest]))(taskRequest)) throw ifNew
        const accepted = await deps.accept(taskRequest)
        text = taskText(
          acceptedTask(accepted, taskRequest.messageCode, codesFor(context.caller, deps.handlers))
        )
        reply.code(accepted.kind === 'created' ? 201 : 200)
      } catch (error) {
        countRefused(deps, read.value, error)
        throw error
      }
      return sendJson(reply, text)
    }
  )

  app.get(
    '/tasks/:taskNo',
    {
      schema: {
        tags,
        summary: 'One task, with its deliveries, attempts and receipts',
        operationId: 'readTask',
        description:
          'With wait=HANDLED, returns when the task has ended, or at the timeout with its current state.',
        params: taskParams,
        querystring: waitQuery,
        response: { 200: taskAnswer, ...refusals('TASK_NOT_FOUND', 'INVALID', 'TOO_MANY_WAITERS', ...keyed) }
      }
    },
    async (request, reply) => {
      const taskNo = checkedTaskNo(request.params)
      const { wait, timeout = 30 } = request.query
      if (wait === undefined && request.query.timeout !== undefined)
        throw new Problem('INVALID', 'set wait too', { pointer: '?/timeout' })
      const caller = callerOf(request)
      const first = await visible(deps, caller, taskNo)
      if (wait === undefined && caller.scopes.includes('tasks:read'))
        return sendTask(request, reply, await deps.withRequests(first))
      if (wait === undefined || !isOpen(first)) return sendTask(request, reply, first)
      const task = await whileConnected(request, signal =>
        deps.waitTask(taskNo, quotaKeyOf(deps, request), timeout * 1000, signal, caller.messageCodes)
      )
      if (task === 'busy') throw new Problem('TOO_MANY_WAITERS', '', { headers: { 'retry-after': '1' } })
      // Removed in the meantime, or even posted again by another producer.
      if (!task || !mayUse(callerOf(request), task.messageCode)) throw new Problem('TASK_NOT_FOUND')
      return sendTask(request, reply, task)
    }
  )

  app.get(
    '/tasks',
    {
      schema: {
        tags,
        summary: 'Tasks, newest first',
        operationId: 'listTasks',
        querystring: taskQuery,
        response: { 200: tasksAnswer, ...refusals('INVALID', 'CODE_FORBIDDEN', ...keyed) }
      }
    },
    async (request, reply) => {
      const { status, needCallback, checked, webhookId, ...query } = request.query
      if (checked !== undefined && status !== 'PREPARED' && status !== 'CANCELLED')
        throw new Problem('INVALID', 'set status=PREPARED too', { pointer: '?/checked' })
      // A search for one order covers all times; its own index makes that cheap.
      const delivery = webhookId === undefined ? null : deliveryOf(webhookId)
      const isOfAllTimes = query.bizKey !== undefined || delivery !== null || isUnsettled(status)
      const found = await deps.listTasks({
        ...listFilterOf(query, callerOf(request), deps.now(), isOfAllTimes),
        ...narrowed(query),
        ...(delivery && { id: delivery.taskId, downstream: query.downstream ?? delivery.downstream }),
        ...defined({ status, needCallback, checked })
      })
      const page = pageOf(found)
      const tasks = page.tasks.map(task => forReader(callerOf(request), task))
      return sendJson(reply, tasksText({ ...page, tasks }))
    }
  )

  app.post(
    '/tasks/batch',
    {
      bodyLimit: 8 * 1024 * 1024,
      preParsing: beforeReading,
      schema: {
        tags,
        summary: 'Accept up to 1,000 tasks with one commit',
        operationId: 'acceptTasks',
        description:
          'Each task has its own answer, in order. A taskNo that occurs twice gets 201, then 200 or 409.',
        body: batchBody.meta({ 'x-examples': batchExamples }),
        response: { 200: batchAnswer, ...refusals(...unreadable, 'OVERLOADED', 'CROSS_ORIGIN', ...keyed) }
      }
    },
    async (request, reply) => {
      refuseOverload(deps)
      const { text, hasElsewhere } = await acceptBatch(deps, bytesOf(request.body), contextOf(request))
      if (hasElsewhere) void reply.header('connection', 'close')
      return sendJson(reply, text)
    }
  )
}

/** The task can still change: a half message that is not ended yet may still become HANDLED. */
const isOpen = ({ status }: TaskView): boolean => status === 'SENDING' || status === 'PREPARED'

/** The taskNo of the path. A text that is no taskNo gets the same answer as an unknown one. */
export function checkedTaskNo({ taskNo }: { taskNo: string }): string {
  if (!isTaskNo(taskNo)) throw new Problem('TASK_NOT_FOUND')
  return taskNo
}

/** The text is JSON already, and contains a messageBody as it was posted. */
const sendJson = (reply: FastifyReply, text: string): FastifyReply =>
  reply.type('application/json; charset=utf-8').send(text)

/** Answers with a task as the caller may see it. */
export const sendTask = (request: FastifyRequest, reply: FastifyReply, task: TaskView): FastifyReply =>
  sendJson(reply, taskText(forReader(callerOf(request), task)))

/** Only keys with tasks:read see the content of a task. Other keys see its state. */
function forReader({ scopes }: Caller, task: TaskView): TaskView {
  if (scopes.includes('tasks:read')) return task
  const { messageBody: _, extend, deliveries, ...rest } = task
  const shown = { ...rest, deliveries: deliveries.map(withoutRequests) }
  return extend === undefined ? shown : { ...shown, extend: withoutDifference(extend) }
}

/** The target and the hash of a body tell of its content. */
const withoutRequests = ({ attempts, ...delivery }: DeliveryView): DeliveryView =>
  attempts ? { ...delivery, attempts: attempts.map(({ request: _request, ...rest }) => rest) } : delivery

/** In a task that the dashboard copied from another task, `difference` contains a part of the body. */
function withoutDifference(extend: unknown): unknown {
  if (typeof extend !== 'object' || extend === null || !('copiedFrom' in extend)) return extend
  const { difference: _, ...rest } = extend as Record<string, unknown>
  return rest
}

/** A task that a key may not see does not exist for it: its existence is information too. */
export async function visible(deps: ApiDeps, caller: Caller, taskNo: string): Promise<TaskView> {
  const task = await deps.readTask(taskNo, caller.messageCodes)
  if (!task || !mayUse(caller, task.messageCode)) throw new Problem('TASK_NOT_FOUND')
  return task
}

/** The caller, for the audit. Throws TASK_NOT_FOUND if the caller may not see the task. */
export async function actorOn(deps: ApiDeps, caller: Caller, taskNo: string): Promise<Actor> {
  if (caller.messageCodes) await visible(deps, caller, taskNo)
  return caller
}
