// What each downstream of a handler would be sent for a task. Nothing is stored, and nothing is sent.
import { secretSettings, shownRequest } from '../domain/redact.ts'
import type { Task } from '../domain/types.ts'
import type { Requests } from '../handler/define.ts'
import type { LoadedDownstream, LoadedHandler } from '../handler/loaded.ts'
import type { Logger } from '../runtime/logger.ts'
import { withTimeout } from '../runtime/with-timeout.ts'
import type { TaskRequest } from './accept.ts'
import { checkedByHandler, type HandlerRefusal } from './handler-refusal.ts'
import { reasonOf } from '../runtime/errors.ts'

export interface DryRunDeps {
  handlers: ReadonlyMap<string, LoadedHandler>
  /** Why no request may go to this URL. */
  refused: (url: string) => string | undefined
  /** Where handlers have their secrets from. */
  settings: Readonly<Record<string, string | undefined>>
  log: Pick<Logger, 'warn'>
}

interface DryRun {
  messageCode: string
  taskNo: string
  downstreams: DryRequest[]
}

interface DryRequest {
  downstream: string
  transport: string
  needCallback: boolean
  /** Its `when` says false: it gets none. */
  skipped?: true
  /** As the handler makes it, without secrets. The headers of Ackbox come to it. */
  request?: Record<string, unknown>
  /** Why there would be none. */
  error?: string
}

/** A handler's own code may wait for something else. */
const mostMs = 5_000

export async function dryRun(
  deps: DryRunDeps,
  asked: TaskRequest
): Promise<DryRun | HandlerRefusal | 'unknown_code'> {
  const handler = deps.handlers.get(asked.messageCode)
  if (!handler) return 'unknown_code'
  const read = checkedByHandler(deps, handler, asked)
  if ('kind' in read) return read
  const task = dryTask(asked)
  const secrets = secretSettings(deps.settings)
  const downstreams = await Promise.all(
    handler.downstreams.map(async (to): Promise<DryRequest> => {
      const about = { downstream: to.name, transport: to.transport, needCallback: to.needCallback ?? false }
      try {
        const made = await requestOf(to, task, read.data)
        if (made === null) return { ...about, skipped: true }
        const why = to.transport === 'http' && deps.refused(String((made as Requests['http']).url))
        const request = shownRequest(
          to.transport === 'http' ? { method: 'POST', body: task.messageBody, ...made } : made,
          secrets
        )
        return { ...about, request, ...(why ? { error: why } : {}) }
      } catch (err) {
        return { ...about, ...(shownRequest({ error: reasonOf(err) }, secrets) as { error: string }) }
      }
    })
  )
  return { messageCode: task.messageCode, taskNo: task.taskNo, downstreams }
}

/** Null: `when` says that it gets none. Its `beforeSend` is not asked, which may do something. */
async function requestOf(to: LoadedDownstream, task: Task, body: unknown): Promise<object | null> {
  if (to.when?.({ task, body }) === false) return null
  const about = { task, body, raw: task.messageBody, attempt: 1, deliveryId: 'dry-run' }
  return await withTimeout(Promise.resolve(to.request(about)), mostMs, () => {
    throw new Error(`request took longer than ${mostMs / 1_000} s`)
  })
}

/** A task that is nowhere. */
export const dryTask = ({
  taskNo,
  messageCode,
  sceneType,
  messageBody,
  extend = null
}: Pick<Task, 'taskNo' | 'messageCode' | 'sceneType' | 'messageBody'> &
  Partial<Pick<Task, 'extend'>>): Task => ({
  id: '00000000-0000-7000-8000-000000000000',
  taskNo,
  messageCode,
  sceneType,
  messageBody,
  deliverStartTime: null,
  needCallback: null,
  retryTimes: null,
  orderingKey: null,
  extend,
  traceparent: null,
  createdAt: new Date(),
  createdBy: 'dry-run'
})
