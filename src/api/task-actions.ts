// The acts on a single task: redeliver, push, settle, delete.
import { z } from 'zod'
import type { TaskView } from '../db/views.ts'
import { callerOf } from './auth.ts'
import { fit, fitOptional, readBody } from './body.ts'
import type { ApiDeps } from './deps.ts'
import { pushExamples, redeliverExamples, settleExamples } from './examples.ts'
import { downstream, redeliverBody, taskParams } from './requests.ts'
import { keyed, refusals, unreadable } from './responses.ts'
import { taskAnswer } from './task-answer.ts'
import { actorOn, checkedTaskNo, sendTask } from './tasks.ts'
import type { App } from './typed.ts'
import { Problem, type ProblemCode } from '../runtime/errors.ts'
import { defined } from '../domain/optional-members.ts'

const tags = ['tasks'] as const
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
  downstream: only,
  from: z
    .record(downstream, z.enum(['SENDING', 'FAILED']))
    .optional()
    .describe(
      'By downstream, the status that you saw. Only these deliveries change, each only if it still has this status. Default: all that are open or FAILED.'
    )
})

export function taskActionRoutes(app: App, deps: ApiDeps): void {
  app.delete(
    '/tasks/:taskNo',
    {
      schema: {
        tags,
        summary: 'Stop deliveries that have not ended',
        operationId: 'deleteTask',
        params: taskParams,
        response: {
          200: taskAnswer,
          ...refusals('TASK_NOT_FOUND', 'NOTHING_TO_STOP', 'TASK_PREPARED', 'CROSS_ORIGIN', ...keyed)
        }
      }
    },
    async (request, reply) => {
      const taskNo = checkedTaskNo(request.params)
      const who = await actorOn(deps, callerOf(request), taskNo)
      const task = await deps.remove(taskNo, who)
      return sendTask(request, reply, acted(task, 'NOTHING_TO_STOP'))
    }
  )

  app.post(
    '/tasks/:taskNo/redeliver',
    {
      bodyLimit: 4096,
      schema: {
        tags,
        summary: 'Redeliver FAILED deliveries',
        operationId: 'redeliverTask',
        description: 'Each gets a new limit of tries. With force, HANDLED deliveries are redelivered too.',
        params: taskParams,
        body: redeliverBody.meta({ 'x-examples': redeliverExamples }),
        response: {
          200: taskAnswer,
          ...refusals(
            'TASK_NOT_FOUND',
            'NOTHING_TO_REDELIVER',
            'DOWNSTREAM_NOT_FOUND',
            'TASK_PREPARED',
            'TASK_EXPIRED',
            'PREREQUISITE_DELETED',
            'CROSS_ORIGIN',
            ...unreadable,
            ...keyed
          )
        }
      }
    },
    async (request, reply) => {
      const taskNo = checkedTaskNo(request.params)
      const { downstream, force = false } = fitOptional(redeliverBody, request.body) ?? {}
      const who = await actorOn(deps, callerOf(request), taskNo)
      const task = await deps.redeliver({ taskNo, force, who, ...defined({ downstream }) })
      if (task === 'nothing') await knownDownstreams(taskNo, [{ name: downstream, pointer: '/downstream' }])
      return sendTask(request, reply, acted(task, 'NOTHING_TO_REDELIVER'))
    }
  )

  app.post(
    '/tasks/:taskNo/push',
    {
      bodyLimit: 4096,
      schema: {
        tags,
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
            'DOWNSTREAM_NOT_FOUND',
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
      const taskNo = checkedTaskNo(request.params)
      const { downstream } = fitOptional(pushBody, request.body) ?? {}
      const who = await actorOn(deps, callerOf(request), taskNo)
      const task = await deps.push({ taskNo, who, ...defined({ downstream }) })
      if (task === 'nothing') await knownDownstreams(taskNo, [{ name: downstream, pointer: '/downstream' }])
      return sendTask(request, reply, acted(task, 'NOTHING_TO_PUSH'))
    }
  )

  app.post(
    '/tasks/:taskNo/settle',
    {
      bodyLimit: 8192,
      schema: {
        tags,
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
            'DOWNSTREAM_NOT_FOUND',
            'TASK_PREPARED',
            'CROSS_ORIGIN',
            ...unreadable,
            ...keyed
          )
        }
      }
    },
    async (request, reply) => {
      const taskNo = checkedTaskNo(request.params)
      const who = await actorOn(deps, callerOf(request), taskNo)
      const settlement = fit(settleBody, readBody(request.body, 'plain').value)
      const task = await deps.settle({ taskNo, who, ...defined(settlement) })
      if (task === 'nothing') {
        const names = Object.keys(settlement.from ?? {})
        await knownDownstreams(taskNo, [
          { name: settlement.downstream, pointer: '/downstream' },
          ...names.map(name => ({ name, pointer: `/from/${name}` }))
        ])
      }
      return sendTask(request, reply, acted(task, 'NOTHING_TO_SETTLE'))
    }
  )

  /** Refuses a downstream to which the task has no delivery: the name is wrong, not the time of the call. */
  async function knownDownstreams(
    taskNo: string,
    given: readonly { name: string | undefined; pointer: string }[]
  ): Promise<void> {
    if (given.every(({ name }) => name === undefined)) return
    const task = await deps.readTask(taskNo)
    if (!task) return
    const known = new Set(task.deliveries.map(one => one.downstream))
    for (const { name, pointer } of given)
      if (name !== undefined && !known.has(name))
        throw new Problem('DOWNSTREAM_NOT_FOUND', 'The task has no delivery to it.', { pointer })
  }
}

type Refusal = 'not_found' | 'nothing' | 'prepared' | 'prerequisite_deleted' | 'expired' | 'blocked' | 'early'

/** The task after the act. Throws the problem of a refused act. `nothing`: the problem if there was nothing to do. */
function acted(task: TaskView | Refusal, nothing: ProblemCode): TaskView {
  switch (task) {
    case 'not_found':
      throw new Problem('TASK_NOT_FOUND')
    case 'nothing':
      throw new Problem(nothing)
    case 'prepared':
      throw new Problem('TASK_PREPARED')
    case 'prerequisite_deleted':
      throw new Problem('PREREQUISITE_DELETED', 'Set force to deliver it anyway.')
    case 'expired':
      throw new Problem('TASK_EXPIRED', 'Set force to deliver it anyway.')
    case 'blocked':
      throw new Problem('TASK_BLOCKED')
    case 'early':
      throw new Problem('TASK_NOT_STARTED')
    default:
      return task
  }
}
