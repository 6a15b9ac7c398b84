// The second phase of a half message: only its producer or an operator decides whether it is committed or rolled back.
import {
  byCheck,
  claimCheck,
  isByCheck,
  readHalf,
  recordCheck,
  rollBackTask,
  type ClaimedCheck,
  type HalfMessage
} from '../db/prepared.ts'
import type { Sql } from '../db/pool.ts'
import type { NewTask } from '../db/tasks.ts'
import type { TaskView } from '../db/views.ts'
import { readBrief } from '../db/read-tasks.ts'
import { nextCheck } from '../domain/retry-policy.ts'
import type { Actor } from '../domain/types.ts'
import type { LoadedHandler } from '../handler/loaded.ts'
import { failpoint } from '../runtime/failpoint.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Metrics } from '../runtime/metrics.ts'
import { createdView } from './accepted-task.ts'
import type { Accept } from './accept.ts'
import { checkTimeoutMs, type Ask } from './ask-producer.ts'
import type { Cluster } from './cluster.ts'
import { orUnavailable } from './unavailable.ts'
import { fanOut } from './fan-out.ts'
import { withSteps } from './steps.ts'

export interface HalfDeps {
  sql: Sql
  handlers: ReadonlyMap<string, LoadedHandler>
  accept: Pick<Accept, 'commit'>
  ask: Ask
  cluster: Cluster
  leaseMarginMs: number
  /** In [0, 1): the jitter. */
  random: () => number
  metrics: Pick<Metrics, 'checked' | 'halfEnded'>
  log: Logger
}

/** The reason why it cannot be ended as requested: unknown, never prepared, or already ended the other way. */
export type NotEnded = 'not_found' | 'not_prepared' | 'committed' | 'rolled_back'

/** Called before the change, with the poster of the half message. */
type WriteAudit = (createdBy: string) => Promise<void>

const unaudited: WriteAudit = async () => {}

/** The lease of a check: meanwhile no other process checks. */
export const checkLeaseMs = ({ leaseMarginMs }: Pick<HalfDeps, 'leaseMarginMs'>): number =>
  checkTimeoutMs + leaseMarginMs

/** Makes its deliveries, as if it were accepted now. `delayMs` replaces its own delay. Idempotent. 'no_handler': another process may have one. */
export async function commit(
  deps: HalfDeps,
  taskNo: string,
  by: string,
  audit: WriteAudit = unaudited,
  delayMs: number | null = null
): Promise<TaskView | NotEnded | 'no_handler'> {
  // A time limit for each statement: waiting behind other commits does not mean that the database is away.
  const half = await orUnavailable(deps.cluster, readHalf(deps.sql, taskNo))
  if (half === null) return 'not_found'
  if (half === 'never') return 'not_prepared'
  if (half.state === 'CANCELLED') return 'rolled_back'
  if (half.state === 'ACTIVE') return orUnavailable(deps.cluster, readBrief(deps.sql, taskNo))
  const handler = deps.handlers.get(half.task.messageCode)
  if (!handler) return 'no_handler'
  await orUnavailable(deps.cluster, audit(half.task.createdBy))
  const task = committing(deps, { ...half, delayMs: delayMs ?? half.delayMs }, handler, by)
  if (task === 'no_handler') return task
  const inserted = await deps.accept.commit(task)
  if (inserted.kind === 'created') {
    ended(deps, half, 'COMMITTED', by)
    return createdView(task, inserted, task.extend)
  }
  // Another call ended it at this moment, or a check was recorded: the next read shows it.
  return commit(deps, taskNo, by, unaudited, delayMs)
}

/** The task as an accept would store it now. If the handler's schema no longer accepts the body, attempts fail, but not the commit. */
function committing(
  deps: HalfDeps,
  { task, ...half }: HalfMessage,
  handler: LoadedHandler,
  by: string
): NewTask | 'no_handler' {
  const whole: NewTask = {
    id: task.id,
    taskNo: task.taskNo,
    messageCode: task.messageCode,
    sceneType: task.sceneType,
    messageBody: task.messageBody,
    contentHash: '', // stored already
    startAt: task.deliverStartTime,
    delayMs: half.delayMs,
    deliverBefore: half.deliverBefore,
    needCallback: task.needCallback,
    retryTimes: task.retryTimes,
    orderingKey: task.orderingKey,
    extend: task.extend === null ? null : JSON.stringify(task.extend),
    traceparent: task.traceparent,
    createdBy: task.createdBy,
    biz: half.biz ?? null,
    committed: { by, createdAt: task.createdAt, seen: half.seen },
    deliveries: fanOut(deps, handler, task, () => ({
      task,
      body: handler.body.parse(JSON.parse(task.messageBody))
    }))
  }
  return withSteps(deps, whole, handler, deps.cluster.now())
}

/** Cancels it: it is never delivered. Idempotent. */
export const rollBack = (
  deps: HalfDeps,
  taskNo: string,
  by: string,
  audit: WriteAudit = unaudited
): Promise<TaskView | NotEnded> =>
  orUnavailable(deps.cluster, cancel(deps, taskNo, by, audit), { mayBeLocked: true })

async function cancel(
  deps: HalfDeps,
  taskNo: string,
  by: string,
  audit: WriteAudit
): Promise<TaskView | NotEnded> {
  const half = await readHalf(deps.sql, taskNo)
  if (half === null) return 'not_found'
  if (half === 'never') return 'not_prepared'
  if (half.state === 'ACTIVE') return 'committed'
  if (half.state === 'CANCELLED') return readBrief(deps.sql, taskNo)
  await audit(half.task.createdBy)
  if (!(await rollBackTask(deps.sql, half.seen, by))) return cancel(deps, taskNo, by, unaudited)
  ended(deps, half, 'ROLLED_BACK', by)
  return readBrief(deps.sql, taskNo)
}

/** Checks it now, and acts on the answer. If a check is running already, the task is returned as it is. */
export async function checkNow(deps: HalfDeps, taskNo: string, who: Actor): Promise<TaskView | NotEnded> {
  const half = await orUnavailable(deps.cluster, readHalf(deps.sql, taskNo))
  if (half === null) return 'not_found'
  if (half === 'never') return 'not_prepared'
  if (half.state !== 'PREPARED') return half.state === 'ACTIVE' ? 'committed' : 'rolled_back'
  const claiming = claimCheck(deps.sql, half.task.id, checkLeaseMs(deps), who)
  const claim = await orUnavailable(deps.cluster, claiming, { mayBeLocked: true })
  if (claim) await check(deps, claim)
  return orUnavailable(deps.cluster, readBrief(deps.sql, taskNo))
}

/** Runs a claimed check, and acts on the producer's answer. */
export async function check(deps: HalfDeps, claim: ClaimedCheck): Promise<void> {
  const { task, check: number } = claim
  const began = performance.now()
  const { answer, reason } = await deps.ask(claim)
  failpoint('check.after_answer')
  const ms = Math.round(performance.now() - began)
  deps.metrics.checked(task.messageCode, answer)
  const { taskNo, messageCode } = task
  deps.log.info({ taskNo, messageCode, check: number, answer, reason, ms }, 'check.done')
  const stale = (): void => deps.log.info({ taskNo, check: number, answer }, 'check.stale')
  if (answer === 'COMMITTED') {
    const done = await commit(deps, taskNo, byCheck(number))
    // Another process may have the handler. If none has it, the task is told as stuck.
    if (done === 'no_handler') await recordOpen(deps, claim, 'NONE', notCommitted)
    else if (typeof done === 'string') stale()
    return
  }
  if (answer === 'ROLLED_BACK') {
    const done = await rollBack(deps, taskNo, byCheck(number))
    if (typeof done === 'string') stale()
    return
  }
  await recordOpen(deps, claim, answer, reason)
}

const notCommitted = 'COMMITTED, but the process that asked has no handler for it or for one of its steps'

/** Records a check that left it open, and when the next one comes. */
async function recordOpen(
  deps: HalfDeps,
  claim: ClaimedCheck,
  answer: 'UNKNOWN' | 'NONE',
  reason: string | null
): Promise<void> {
  const { task, check: number } = claim
  const { taskNo, messageCode } = task
  const checkAfterMs = deps.handlers.get(messageCode)?.dtm?.askEveryMs(task) ?? claim.checkAfterMs
  const next = nextCheck(answer, { ...claim, checkAfterMs }, deps.random())
  const isRecorded = await recordCheck(deps.sql, { taskId: task.id, check: number, answer, reason, ...next })
  if (!isRecorded) deps.log.info({ taskNo, check: number, answer }, 'check.stale')
  else if (next.isStuck)
    deps.log.warn({ taskNo, messageCode, check: number, answer, reason }, 'prepared.stuck')
}

function ended(
  { metrics, log }: HalfDeps,
  { task }: HalfMessage,
  state: 'COMMITTED' | 'ROLLED_BACK',
  by: string
) {
  metrics.halfEnded(task.messageCode, state, isByCheck(by) ? 'check' : 'producer')
  log.info({ taskNo: task.taskNo, messageCode: task.messageCode, state, by }, 'prepared.ended')
}
