import { z } from 'zod'
import { dryRunAnswer, handlersAnswer, keyed, refusals, unreadable } from './responses.ts'
import { callerOf, mayUse } from './auth.ts'
import type { ApiDeps, HandlerShown } from './deps.ts'
import { codesFor } from './access.ts'
import { dryRunExamples } from './examples.ts'
import { refusalProblem } from './problem.ts'
import { codeParams, dryRunBody } from './requests.ts'
import { readTaskRequest } from './task-request.ts'
import type { App } from './typed.ts'
import { fit, readBody } from './body.ts'

export function handlerRoutes(app: App, deps: ApiDeps): void {
  app.get(
    '/handlers',
    {
      schema: {
        tags: ['ops'],
        summary: 'Loaded handlers',
        operationId: 'listHandlers',
        response: { 200: handlersAnswer, ...refusals(...keyed) }
      }
    },
    async request => {
      const caller = callerOf(request)
      const handlers = [...deps.handlers.values()]
        .filter(handler => mayUse(caller, handler.messageCode))
        .map(shown)
      return { handlers }
    }
  )

  app.post(
    '/handlers/:messageCode/dry-run',
    {
      bodyLimit: 288 * 1024,
      schema: {
        tags: ['ops'],
        summary: 'The requests that its downstreams would get for a task',
        operationId: 'dryRun',
        description:
          'Nothing is stored and nothing is sent. The handler makes its requests; its `beforeSend` is not called. Credentials are shown as `[masked]`.',
        params: codeParams,
        body: dryRunBody.meta({ 'x-examples': dryRunExamples }),
        response: {
          200: dryRunAnswer,
          ...refusals(
            ...unreadable,
            'BODY_TOO_LARGE',
            'UNKNOWN_CODE',
            'CODE_FORBIDDEN',
            'CROSS_ORIGIN',
            'OVERLOADED',
            ...keyed
          )
        }
      }
    },
    async request => {
      const caller = callerOf(request)
      const read = readBody(request.body, 'task')
      const { messageCode } = request.params
      const { handlers, refusal } = deps
      const value = { ...fit(dryRunBody, read.value), messageCode }
      const { taskRequest } = readTaskRequest(
        { value, read, index: 0, pointer: '' },
        {
          caller,
          handlers,
          refusal,
          traceparent: null,
          now: deps.now()
        }
      )
      const made = await deps.dryRun(taskRequest)
      if (made === 'unknown_code')
        throw refusalProblem({ kind: 'unknown_code' }, messageCode, codesFor(caller, handlers), '')
      if ('kind' in made) throw refusalProblem(made, messageCode, codesFor(caller, handlers), '')
      return made
    }
  )
}

function shown({ messageCode, body, checkBack, downstreams }: HandlerShown) {
  return {
    messageCode,
    body: schemaOf(body),
    /** The handler accepts half messages. */
    prepared: checkBack !== undefined,
    downstreams: downstreams.map(({ name, transport, needCallback, policy, limit }) => ({
      name,
      transport,
      needCallback: needCallback ?? false,
      times: policy.times,
      receiptTimeoutMs: policy.receiptTimeoutMs,
      ...limit
    }))
  }
}

/** A handler's schema may contain types without JSON Schema, or come from another copy of zod: then there is none. */
function schemaOf(body: unknown): unknown {
  try {
    return body instanceof z.ZodType
      ? z.toJSONSchema(body, { io: 'input', unrepresentable: 'any' })
      : undefined
  } catch {
    return undefined
  }
}
