import type { NewDelivery } from '../db/new-deliveries.ts'
import { limitOf } from '../domain/retry-policy.ts'
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
    tries: limitOf(retryTimes, downstream.policy),
    needsReceipt: downstream.needCallback === undefined ? false : (needCallback ?? downstream.needCallback)
  }))
}

function isSkipped({ log }: FanOutDeps, downstream: LoadedDownstream, about: () => About<unknown>): boolean {
  if (!downstream.when) return false
  let context: About<unknown> | undefined
  try {
    context = about()
    return !downstream.when(context)
  } catch (err) {
    // One delivery too many is better than a missing one.
    log.warn({ err, taskNo: context?.task.taskNo, downstream: downstream.name }, 'hook.when_failed')
    return false
  }
}
