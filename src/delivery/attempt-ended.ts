import type { LoadedDelivery } from '../db/deliveries.ts'
import type { Decision } from '../domain/retry-policy.ts'
import type { AttemptEnd } from '../domain/types.ts'
import type { AboutOutcome, AttemptOutcome } from '../handler/define.ts'
import type { LoadedDownstream, LoadedHandler } from '../handler/loaded.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Completed } from './complete.ts'
import { inHookTime, LazyHookContext } from './hooks.ts'

interface EndedDeps {
  handlers: ReadonlyMap<string, LoadedHandler>
  log: Logger
}

/** An ended attempt, and the result of writing its record. */
interface EndedAttempt {
  delivery: LoadedDelivery
  downstream: LoadedDownstream
  outcome: AttemptEnd
  decision: Decision
  ms: number
  applied: Completed
}

/** Logs the attempt and calls the handler's `afterSend`. Resolves when that has ended or its time is over. */
export function attemptEnded(deps: EndedDeps, ended: EndedAttempt): Promise<void> | undefined {
  logEnd(deps, ended)
  return ended.downstream.afterSend && runAfterSend(deps, ended, ended.downstream.afterSend)
}

async function runAfterSend(
  { handlers, log }: EndedDeps,
  { delivery, outcome, ms }: EndedAttempt,
  afterSend: NonNullable<LoadedDownstream['afterSend']>
): Promise<void> {
  try {
    await inHookTime('afterSend', afterSend(new OutcomeContext(handlers, delivery, shown(outcome, ms))))
  } catch (err) {
    const { task, downstream, attempt } = delivery
    log.warn({ err, taskNo: task.taskNo, downstream, attempt }, 'hook.after_send_failed')
  }
}

class OutcomeContext extends LazyHookContext implements AboutOutcome<unknown> {
  readonly outcome: AttemptOutcome

  constructor(
    handlers: ReadonlyMap<string, LoadedHandler>,
    delivery: LoadedDelivery,
    outcome: AttemptOutcome
  ) {
    super(handlers, delivery)
    this.outcome = outcome
  }
}

const shown = (outcome: AttemptEnd, ms: number): AttemptOutcome => ({
  kind: outcome.kind,
  ...('reason' in outcome ? { reason: outcome.reason } : {}),
  ...(outcome.status === undefined ? {} : { status: outcome.status }),
  ...(outcome.messageId === undefined ? {} : { messageId: outcome.messageId }),
  ms
})

/** One line for each attempt that ended. A success is logged at debug: at thousands a second the line costs more than the send. */
function logEnd({ log }: EndedDeps, { delivery, outcome, decision, ms, applied }: EndedAttempt): void {
  const isWell = !('reason' in outcome)
  const stale = applied === 'stale' || applied === 'zombie'
  // A line that is not written is not built either.
  const isQuiet = isWell && !stale && log.isLevelEnabled?.('debug') === false
  if (isQuiet && (log.ended === undefined || (decision.move !== 'handled' && decision.move !== 'probed')))
    return
  const fields = {
    taskNo: delivery.task.taskNo,
    messageCode: delivery.task.messageCode,
    downstream: delivery.downstream,
    attempt: delivery.attempt,
    outcome: outcome.kind,
    move: decision.move,
    ms,
    ...('afterMs' in decision ? { afterMs: decision.afterMs } : {}),
    ...('reason' in outcome ? { reason: outcome.reason } : {}),
    ...(outcome.warning === undefined ? {} : { warning: outcome.warning })
  }
  if (isQuiet) log.ended?.({ status: 'HANDLED', ...fields })
  else if (stale) log.info({ ...fields, applied }, 'attempt.stale')
  else if (isWell) log.debug(fields, 'attempt.done')
  else log.info(fields, 'attempt.done')
}
