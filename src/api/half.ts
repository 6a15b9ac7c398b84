import { callerOf } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { refuseOverload, unlessOverloaded } from './overload.ts'
import { taskParams } from './requests.ts'
import { keyed, refusals } from './responses.ts'
import { taskAnswer } from './task-answer.ts'
import { checkedTaskNo, actorOn, sendTask } from './tasks.ts'
import type { App } from './typed.ts'
import type { NotEnded } from '../delivery/half.ts'
import type { TaskView } from '../db/views.ts'
import { Problem } from '../runtime/errors.ts'

const refused = ['TASK_NOT_FOUND', 'NOT_PREPARED', 'CROSS_ORIGIN', ...keyed] as const

/** The second phase of a half message. Each call may be repeated. A rollback after a commit gets 409, and vice versa. */
export function halfRoutes(app: App, deps: ApiDeps): void {
  app.post(
    '/tasks/:taskNo/commit',
    {
      bodyLimit: 4096,
      config: { ignoresBody: true },
      preParsing: unlessOverloaded(deps),
      schema: {
        tags: ['tasks'],
        summary: 'Commit a prepared task: deliver it',
        operationId: 'commitTask',
        description:
          'Its deliveries are created now: `delay` counts from now, and `when` of the handler is called now. Repeating the request returns 200. The body is ignored.',
        params: taskParams,
        response: { 200: taskAnswer, ...refusals(...refused, 'TASK_ROLLED_BACK', 'OVERLOADED') }
      }
    },
    async (request, reply) => {
      refuseOverload(deps)
      const taskNo = checkedTaskNo(request.params)
      const who = await actorOn(deps, callerOf(request), taskNo)
      return sendTask(request, reply, ended(await deps.commit(taskNo, who)))
    }
  )

  app.post(
    '/tasks/:taskNo/rollback',
    {
      bodyLimit: 4096,
      config: { ignoresBody: true },
      schema: {
        tags: ['tasks'],
        summary: 'Roll a prepared task back: it becomes CANCELLED and is never delivered',
        operationId: 'rollBackTask',
        description: 'Repeating the request returns 200. The body is ignored.',
        params: taskParams,
        response: { 200: taskAnswer, ...refusals(...refused, 'TASK_COMMITTED') }
      }
    },
    async (request, reply) => {
      const taskNo = checkedTaskNo(request.params)
      const who = await actorOn(deps, callerOf(request), taskNo)
      return sendTask(request, reply, ended(await deps.rollBack(taskNo, who)))
    }
  )

  app.post(
    '/tasks/:taskNo/check',
    {
      bodyLimit: 4096,
      config: { ignoresBody: true },
      schema: {
        tags: ['tasks'],
        summary: 'Check a prepared task with its producer now',
        operationId: 'checkTask',
        description:
          'Returns the task after the check has ended. `prepared.lastAnswer` holds the answer of the producer. If a check is running already, returns the task as it is.',
        params: taskParams,
        response: { 200: taskAnswer, ...refusals(...refused, 'TASK_COMMITTED', 'TASK_ROLLED_BACK') }
      }
    },
    async (request, reply) => {
      const taskNo = checkedTaskNo(request.params)
      const who = await actorOn(deps, callerOf(request), taskNo)
      return sendTask(request, reply, ended(await deps.check(taskNo, who)))
    }
  )
}

/** The task. Throws the problem if it could not be ended as requested. */
export function ended(done: TaskView | NotEnded | 'no_handler'): TaskView {
  switch (done) {
    case 'not_found':
      throw new Problem('TASK_NOT_FOUND')
    case 'not_prepared':
      throw new Problem('NOT_PREPARED')
    case 'committed':
      throw new Problem('TASK_COMMITTED')
    case 'rolled_back':
      throw new Problem('TASK_ROLLED_BACK', 'its status is CANCELLED')
    case 'no_handler':
      // Like HandlerElsewhere: the connection is closed, so that the repeated call may reach another process.
      throw new Problem('UNAVAILABLE', 'this process has no handler for its messageCode', {
        headers: { 'retry-after': '1', connection: 'close' }
      })
    default:
      return done
  }
}
