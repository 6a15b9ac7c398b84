import type { NewDelivery } from '../db/new-deliveries.ts'
import { effectiveRetryTimes } from '../domain/retry-policy.ts'
import type { Task } from '../domain/types.ts'
import type { About } from '../handler/define.ts'
import type { LoadedDownstream, LoadedHandler } from '../handler/loaded.ts'
import type { Logger } from '../runtime/logger.ts'

export interface FanOutDeps {
  leaseMarginMs: number
  log: Logger
}

/** The deliveries of a task: one for each downstream of its handler. `about` is called only for a downstream with a `when`. */
export function fanOut(
  deps: FanOutDeps,
  handler: LoadedHandler,
  { needCallback, retryTimes }: Pick<Task, 'needCallback' | 'retryTimes'>,
  about: () => About<unknown>
): NewDelivery[] {
  return handler.downstreams.map(downstream => ({
    downstream: downstream.name,
    skipped: isSkipped(deps, downstream, about),
    claim: false, // decided when it is written
    leaseMs: downstream.limit.timeoutMs + deps.leaseMarginMs,
    tries: effectiveRetryTimes(retryTimes, downstream.policy),
    needsReceipt: downstream.needCallback === undefined ? false : (needCallback ?? downstream.needCallback)
  }))
}

function isSkipped({ log }: FanOutDeps, downstream: LoadedDownstream, about: () => About<unknown>): boolean {
  if (!downstream.when) return false
  let context: About<unknown> | undefined
  try {
    context = about()
    return !isWanted(downstream, context)
  } catch (err) {
    // One delivery too many is better than a missing one.
    log.warn({ err, taskNo: context?.task.taskNo, downstream: downstream.name }, 'hook.when_failed')
    return false
  }
}

/** Whether `when` lets the task through. Throws for a result that is no boolean. */
export function isWanted(downstream: Pick<LoadedDownstream, 'when'>, about: About<unknown>): boolean {
  const answer: unknown = downstream.when ? downstream.when(about) : true
  if (typeof answer === 'boolean') return answer
  const isPromise = answer instanceof Promise
  // Nobody awaits it, and its rejection would end the process.
  if (isPromise) answer.catch(() => {})
  const kind = isPromise ? 'a Promise' : answer === null ? 'null' : typeof answer
  throw new TypeError(`when must return true or false, and returned ${kind}`)
}
