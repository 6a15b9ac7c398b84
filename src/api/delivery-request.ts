import { z } from 'zod'
import { callerOf } from './auth.ts'
import type { ApiDeps } from './deps.ts'
import { downstream, taskParams } from './requests.ts'
import { keyed, refusals } from './responses.ts'
import { requestNowAnswer } from './task-answer.ts'
import { checkedTaskNo, visible } from './tasks.ts'
import type { App } from './typed.ts'
import { Problem } from '../runtime/errors.ts'

const params = taskParams.extend({ downstream: z.string() })

export function deliveryRequestRoutes(app: App, deps: ApiDeps): void {
  app.get(
    '/tasks/:taskNo/deliveries/:downstream/request',
    {
      schema: {
        tags: ['tasks'],
        summary: 'What would be sent to a downstream now',
        operationId: 'readRequest',
        description:
          'Nothing is stored and nothing is sent. The present handler makes the request; its `beforeSend` is not called. Credentials are shown as `[masked]`.',
        params,
        response: {
          200: requestNowAnswer,
          ...refusals(
            'TASK_NOT_FOUND',
            'DOWNSTREAM_NOT_FOUND',
            'TASK_PREPARED',
            'NO_REQUEST',
            'UNKNOWN_CODE',
            ...keyed
          )
        }
      }
    },
    async request => {
      const taskNo = checkedTaskNo(request.params)
      const { status, messageCode } = await visible(deps, callerOf(request), taskNo)
      if (status === 'PREPARED') throw new Problem('TASK_PREPARED')
      const name = downstream.safeParse(request.params.downstream)
      const made = name.success ? await deps.requestNow(taskNo, name.data) : { kind: 'not_found' as const }
      if (!('kind' in made)) return made
      switch (made.kind) {
        case 'not_found':
          throw new Problem('DOWNSTREAM_NOT_FOUND', 'The task has no delivery to it.')
        case 'no_handler':
          if (!deps.handlers.has(messageCode)) throw new Problem('UNKNOWN_CODE', messageCode)
          throw new Problem('NO_REQUEST', `The handler of ${messageCode} has no downstream of this name.`)
        case 'no_request':
          throw new Problem('NO_REQUEST', made.error)
      }
    }
  )
}
