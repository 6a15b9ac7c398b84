import type { LoadedDelivery } from '../db/deliveries.ts'
import type { AttemptRow, RequestColumns } from '../db/attempt-rows.ts'
import type { RequestShape } from '../db/request-shapes.ts'
import type { Decision } from '../domain/retry-policy.ts'
import { redact, redactBytes } from '../domain/redact.ts'
import type { Move } from '../domain/transitions.ts'
import type { AttemptEnd, SentRequest } from '../domain/types.ts'
import type { AboutOutcome, AttemptOutcome } from '../handler/define.ts'
import type { LoadedDownstream, LoadedHandler } from '../handler/loaded.ts'
import type { Logger } from '../runtime/logger.ts'
import { semaphore } from '../runtime/semaphore.ts'
import type { Complete, Completed } from './complete.ts'
import { inHookTime, LazyHookContext } from './hooks.ts'

interface OutcomesDeps {
  handlers: ReadonlyMap<string, LoadedHandler>
  complete: Complete
  log: Logger
  /** Limit of outcomes that wait to be written, and of the hooks of one downstream that run (1,000). */
  mostPending?: number
}

interface EndedAttempt {
  delivery: LoadedDelivery
  downstream: LoadedDownstream
  outcome: AttemptEnd
  decision: Decision
  isFirstTry: boolean
  row: AttemptRow
  ms: number
}

export interface Outcomes {
  /** Writes an ended attempt and its move, logs it, and calls the handler's `afterSend`. Resolves when that has ended or its time is over. */
  write(ended: EndedAttempt): Promise<void>
  /**
   * Undefined while there is room for another outcome of this downstream. More would only fill the memory, and those that are not written would
   * be sent again after a crash. Hooks that hang hold back their own downstream alone.
   */
  full(downstream: string): Promise<void> | undefined
}

export function outcomes(deps: OutcomesDeps, downstreams: Iterable<string>): Outcomes {
  const { mostPending = 1_000 } = deps
  const unwritten = semaphore(mostPending)
  const hooks = new Map([...downstreams].map(name => [name, semaphore(mostPending)] as const))
  return {
    async write(ended) {
      const { delivery, downstream, decision, isFirstTry, row } = ended
      let applied: Completed
      unwritten.enter()
      try {
        const move = moveOf(delivery, decision)
        applied = await deps.complete({ move, task: delivery.task, isFirstTry, attempt: row })
      } finally {
        unwritten.leave()
      }
      logEnd(deps, ended, applied)
      if (!downstream.afterSend) return
      hooks.get(downstream.name)?.enter()
      await runAfterSend(deps, ended, downstream.afterSend)
      hooks.get(downstream.name)?.leave()
    },
    full: downstream => unwritten.full() ?? hooks.get(downstream)?.full()
  }
}

/** Never rejects. */
async function runAfterSend(
  { handlers, log }: OutcomesDeps,
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
function logEnd(
  { log }: OutcomesDeps,
  { delivery, outcome, decision, ms }: EndedAttempt,
  applied: Completed
): void {
  const isWell = !('reason' in outcome)
  const stale = applied === 'stale' || applied === 'recorded'
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

/** The move of an attempt that this process has in flight. */
function moveOf({ task, downstream, attempt }: LoadedDelivery, decision: Decision): Move {
  const { id: taskId, orderingKey } = task
  const move: Move = { taskId, downstream, attempt, orderingKey, name: decision.move, ifStill: 'IN_FLIGHT' }
  // No spread: for each attempt it would cost as much as the whole decision.
  if ('afterMs' in decision) move.afterMs = decision.afterMs
  if ('reason' in decision) move.reason = decision.reason
  if ('handledBy' in decision) move.handledBy = decision.handledBy
  return move
}

/** The longest stored message id of a broker, in characters. The known brokers use at most 300. */
const mostMessageId = 512

/** The row of an attempt, without the secrets that were sent with it. */
export function attemptRow(
  outcome: AttemptEnd,
  {
    ms,
    startedAt,
    node,
    handlerVersion = null
  }: Pick<AttemptRow, 'ms' | 'startedAt' | 'node' | 'handlerVersion'>,
  request?: RequestColumns
): AttemptRow {
  return {
    outcome: outcome.kind,
    reason: 'reason' in outcome ? storable(outcome.reason) : null,
    statusCode: outcome.status ?? null,
    answer: outcome.answer?.length ? redactBytes(outcome.answer) : null,
    headers: outcome.headers?.length ? redact(JSON.stringify(outcome.headers)) : null,
    address: outcome.address ?? null,
    warning: outcome.warning === undefined ? null : storable(outcome.warning),
    messageId: outcome.messageId === undefined ? null : storable(outcome.messageId.slice(0, mostMessageId)),
    alarm: outcome.kind === 'failed' ? (outcome.alarm ?? null) : null,
    ms,
    startedAt,
    node,
    handlerVersion,
    request
  }
}

export const requestColumns = ({ target, body }: SentRequest, shape: RequestShape): RequestColumns => ({
  requestShape: shape.id,
  target: target === undefined ? null : storable(target),
  bodyBytes: body?.bytes ?? null,
  bodySha256: body?.sha256 ?? null
})

/** PostgreSQL's text cannot hold NUL, and the text of an error may contain anything, even the headers that were sent. */
const storable = (text: string): string => redact(text).replaceAll('\0', '\uFFFD')
