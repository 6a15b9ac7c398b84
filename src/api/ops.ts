import { z } from 'zod'
import {
  downstreamsAnswer,
  dryRunAnswer,
  handlersAnswer,
  pausedAnswer,
  refusals,
  unreadable
} from './responses.ts'
import { callerOf, mayUse } from './auth.ts'
import type { ApiDeps, HandlerShown } from './deps.ts'
import { codesFor, holdOn } from './access.ts'
import { dryRunExamples } from './examples.ts'
import { refusalProblem } from './problem.ts'
import { codeParams, dryRunBody, isDownstream, nameParams } from './requests.ts'
import { askedTask } from './task-request.ts'
import type { App } from './typed.ts'
import { fit, json, readBody } from './body.ts'
import { Problem } from '../runtime/errors.ts'

const keyed = ['UNAUTHORIZED', 'FORBIDDEN', 'TOO_MANY_REQUESTS', 'UNAVAILABLE'] as const

export function opsRoutes(app: App, deps: ApiDeps): void {
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
    async (request, reply) => {
      const caller = callerOf(request)
      const handlers = [...deps.handlers.values()]
        .filter(handler => mayUse(caller, handler.messageCode))
        .map(shown)
      return json(reply, JSON.stringify({ handlers }))
    }
  )

  app.get(
    '/downstreams',
    {
      schema: {
        tags: ['ops'],
        summary: 'Downstreams, with pause and backlog',
        operationId: 'listDownstreams',
        response: { 200: downstreamsAnswer, ...refusals(...keyed) }
      }
    },
    async (request, reply) => {
      const caller = callerOf(request)
      const all = await deps.listDownstreams()
      const downstreams = all.filter(({ name }) => holdOn(name, caller, deps.handlers) !== 'none')
      return json(reply, JSON.stringify({ downstreams }))
    }
  )

  app.post(
    '/handlers/:messageCode/dry-run',
    {
      bodyLimit: 288 * 1024,
      schema: {
        tags: ['ops'],
        summary: 'What its downstreams would be sent for a task',
        operationId: 'dryRun',
        description:
          'Nothing is stored and nothing is sent. The handler makes its requests; its `beforeSend` is not called. What logs in somewhere is shown as `[masked]`.',
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
            ...keyed
          )
        }
      }
    },
    async (request, reply) => {
      const caller = callerOf(request)
      const read = readBody(request.body, 'task')
      const { messageCode } = request.params
      const { handlers, refusal } = deps
      const value = { ...fit(dryRunBody, read.value), messageCode }
      const { asked } = askedTask(value, read, 0, '', {
        caller,
        handlers,
        refusal,
        traceparent: null,
        now: deps.now()
      })
      const made = await deps.dryRun(asked)
      if (made === 'unknown_code')
        throw refusalProblem({ kind: 'unknown_code' }, messageCode, codesFor(caller, handlers), '')
      if ('kind' in made) throw refusalProblem(made, messageCode, codesFor(caller, handlers), '')
      return json(reply, JSON.stringify(made))
    }
  )

  for (const what of ['pause', 'resume'] as const) {
    app.post(
      `/downstreams/:name/${what}`,
      {
        bodyLimit: 4096,
        schema: {
          tags: ['ops'],
          operationId: `${what}Downstream`,
          params: nameParams,
          summary: what === 'pause' ? 'Pause a downstream: its deliveries wait' : 'Resume a downstream',
          response: {
            200: pausedAnswer,
            ...refusals('DOWNSTREAM_NOT_FOUND', 'CODE_FORBIDDEN', 'CROSS_ORIGIN', ...keyed)
          }
        }
      },
      async (request, reply) => {
        const { name } = request.params
        const caller = callerOf(request)
        const who = caller.name
        const hold = holdOn(name, caller, deps.handlers)
        if (hold === 'none' || !isDownstream(name)) throw new Problem('DOWNSTREAM_NOT_FOUND')
        if (hold === 'some')
          throw new Problem('CODE_FORBIDDEN', 'This downstream also gets tasks of other messageCodes.')
        if (!(await deps[what](name, who))) throw new Problem('DOWNSTREAM_NOT_FOUND')
        return json(reply, JSON.stringify({ name, paused: what === 'pause' }))
      }
    )
  }
}

function shown({ messageCode, body, checkBack, downstreams }: HandlerShown) {
  return {
    messageCode,
    body: schemaOf(body),
    /** It takes half messages. */
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
