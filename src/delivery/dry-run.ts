// The request to each downstream of a handler for a task. Nothing is stored, and nothing is sent.
import { secretSettings, shownRequest } from '../domain/redact.ts'
import type { Task } from '../domain/types.ts'
import type { Requests } from '../handler/define.ts'
import type { LoadedDownstream, LoadedHandler } from '../handler/loaded.ts'
import type { Logger } from '../runtime/logger.ts'
import { withTimeout } from '../runtime/with-timeout.ts'
import type { TaskRequest } from './accept.ts'
import { isWanted } from './fan-out.ts'
import { checkedByHandler, type HandlerRefusal } from './handler-refusal.ts'
import { messageOf, reasonOf } from '../runtime/errors.ts'
import { dryRunId } from '../handler/checked-request.ts'

export interface DryRunDeps {
  handlers: ReadonlyMap<string, LoadedHandler>
  /** The reason why no request may be sent to this URL. */
  refused: (url: string) => string | undefined
  /** The settings that contain the secrets of handlers. */
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
  /** Its `when` returned false: it gets no request. */
  skipped?: true
  /** As the handler makes it, without secrets. Ackbox adds its headers to it. */
  request?: Record<string, unknown>
  /** Its `when` failed. The task is sent anyway. */
  warning?: string
  /** The reason why no request would be sent. */
  error?: string
}

/** The time limit: a handler's own code may wait for another service. */
const mostMs = 5_000

export async function dryRun(
  deps: DryRunDeps,
  posted: TaskRequest
): Promise<DryRun | HandlerRefusal | 'unknown_code'> {
  const handler = deps.handlers.get(posted.messageCode)
  if (!handler) return 'unknown_code'
  const read = checkedByHandler(deps, handler, posted)
  if ('kind' in read) return read
  const task = dryTask(posted)
  const secrets = secretSettings(deps.settings)
  const downstreams = await Promise.all(
    handler.downstreams.map(async (to): Promise<DryRequest> => {
      const about: DryRequest = {
        downstream: to.name,
        transport: to.transport,
        needCallback: to.needCallback ?? false
      }
      try {
        if (!isWanted(to, { task, body: read.data })) return { ...about, skipped: true }
      } catch (err) {
        about.warning = `the task is sent although its when failed: ${shownError(err, secrets)}`
      }
      try {
        const made = await requestOf(to, task, read.data)
        const refusal = to.transport === 'http' && deps.refused(String((made as Requests['http']).url))
        const request = shownRequest(
          to.transport === 'http' ? { method: 'POST', body: task.messageBody, ...made } : made,
          secrets
        )
        return { ...about, request, ...(refusal ? { error: refusal } : {}) }
      } catch (err) {
        return { ...about, error: shownError(err, secrets) }
      }
    })
  )
  return { messageCode: task.messageCode, taskNo: task.taskNo, downstreams }
}

/** Masked, and then cut: a secret that the cut divides would not be found. */
export function shownError(err: unknown, secrets: readonly string[]): string {
  const { error } = shownRequest({ error: messageOf(err) }, secrets) as { error: string }
  return reasonOf(error)
}

/** `beforeSend` is not called, because it may have effects. */
async function requestOf(to: LoadedDownstream, task: Task, body: unknown): Promise<object> {
  const about = { task, body, raw: task.messageBody, attempt: 1, deliveryId: dryRunId }
  return await withTimeout(Promise.resolve(to.request(about)), mostMs, () => {
    throw new Error(`request took longer than ${mostMs / 1_000} s`)
  })
}

/** A task that is not stored. */
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
