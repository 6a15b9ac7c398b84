import { raiseNoHandler } from '../db/alarms.ts'
import { isAway } from '../db/batch.ts'
import type { RequestColumns } from '../db/attempt-rows.ts'
import type { LoadedDelivery } from '../db/deliveries.ts'
import { failpoint } from '../runtime/failpoint.ts'
import { downstreamOf, type LoadedDownstream } from '../handler/loaded.ts'
import type { Metrics } from '../runtime/metrics.ts'
import { decide, isFirstTry, effectiveRetryTimes, triesOf, type Decision } from '../domain/retry-policy.ts'
import type { Move } from '../domain/transitions.ts'
import type { AttemptEnd, SentRequest } from '../domain/types.ts'
import { redactEnd } from '../domain/redact.ts'
import { attempt, keyOf, type AttemptDeps, type Rate } from './attempt.ts'
import type { Complete } from './complete.ts'
import type { HeldClaims } from './held-claims.ts'
import { load, type ClaimedBatch } from './load.ts'
import type { LeasedDelivery } from './lease.ts'
import type { StoppedClaims } from './stopped-claims.ts'
import type { Logger } from '../runtime/logger.ts'
import { attemptRow, outcomes, requestColumns, type Outcomes } from './outcomes.ts'
import { requestShapes, type RequestShapes } from './request-shapes.ts'
import { shapeOf } from './sent-request.ts'
import { unknownJobs } from './unknown-jobs.ts'
import type { Reach } from './reach.ts'
import { semaphore, waitGroup } from '../runtime/semaphore.ts'
import type { Cluster } from './cluster.ts'

/** The limiter, as this file uses it. Slots count deliveries. */
export interface SlotLimiter {
  /** True if a delivery may start at once: it then has its slot. It overtakes no waiting delivery. */
  tryTake(): boolean
  /** Resolves when a delivery may start, in the order of the calls. Rejects with the signal's reason. */
  take(signal: AbortSignal): Promise<void>
  /** A delivery with a slot sends another request. Resolves when the rate allows it, before all that have no slot. Rejects with the signal's reason. */
  takeToken(signal: AbortSignal): Promise<void>
  /** The same without waiting: whatever starts next waits for longer. */
  borrowToken(): void
  /** A delivery with a slot has ended. `isUnused`: nothing was sent, and the next delivery may have its place in the rate. */
  free(isUnused?: boolean): void
}

/** Called for each ended attempt that counts, if tracing is on. */
export type Traced = (delivery: LoadedDelivery, outcome: AttemptEnd, move: string, startedAt: Date) => void

interface ExecuteDeps extends AttemptDeps {
  /** One for each downstream. */
  limiters: ReadonlyMap<string, SlotLimiter>
  reach: Pick<Reach, 'recordAttempt' | 'isSuspended'>
  stoppedClaims: StoppedClaims
  heldClaims: Pick<HeldClaims, 'begin' | 'end'>
  complete: Complete
  cluster: Cluster
  node: string
  /** Random number in [0, 1), for the jitter. */
  random: () => number
  metrics: Pick<Metrics, 'attempted' | 'firstAttempt' | 'queueLag'>
  traced?: Traced | undefined
  log: Logger
  /** See outcomes.ts. */
  mostPending?: number
}

export interface Execute {
  /** Resolves when each delivery has a slot or was released. Sending continues. */
  (claims: ClaimedBatch): Promise<void>
  /** Resolves when no delivery is being sent or written. */
  idle(): Promise<void>
}

/** Limit of jobs of a downstream's backlog that are loaded. More would only wait in memory until V8 treats them as long-lived. */
const mostLoaded = 3

const yes = (): boolean => true
const no = (): boolean => false

type AttemptingDeps = ExecuteDeps & { requestShapes: RequestShapes }

export function executor(given: ExecuteDeps): Execute {
  const deps: AttemptingDeps = { ...given, requestShapes: requestShapes(given.sql) }
  const busy = waitGroup()
  const pending = outcomes(deps, deps.limiters.keys())
  const lookUp = unknownJobs(deps)
  const reading = new Map([...deps.limiters.keys()].map(name => [name, semaphore(mostLoaded)] as const))
  const start = (work: Promise<void>, delivery: LoadedDelivery): void => {
    const lost = (err: unknown): void => {
      // Not written: its lease ends, and the dispatcher decides.
      deps.log.error({ err, taskNo: delivery.task.taskNo, downstream: delivery.downstream }, 'attempt.lost')
    }
    busy.enter()
    // Not `finally`: it creates three more promises for every delivery.
    void work.catch(lost).then(() => {
      deps.heldClaims.end(delivery.downstream, delivery.task.id, delivery.attempt)
      busy.leave()
    })
  }
  const deliver = async (queued: ClaimedBatch): Promise<void> => {
    const claims = deps.heldClaims.begin(queued)
    const ahead = reading.get(claims.downstream)
    const { leased, isRead } = await load(
      deps.sql,
      ahead,
      claims,
      () => deps.owner.number(),
      deps.limits?.get(claims.downstream)
    ).catch((err: unknown) => {
      endUnread(claims, [])
      // Before the next job is taken: this process could not read that job either.
      if (isAway(err)) deps.cluster.setDatabaseAway()
      throw err
    })
    if (isRead) endUnread(claims, leased)
    if (isRead && leased.length === 0) {
      busy.enter()
      // Without an answer the next such job asks.
      void lookUp(claims)
        .catch(() => {})
        .then(busy.leave)
    }
    const limiter = deps.limiters.get(claims.downstream)
    const withoutHandler: LoadedDelivery[] = []
    for (const one of leased) {
      const { delivery } = one
      const downstream = downstreamOf(deps.handlers, delivery.task.messageCode, delivery.downstream)
      if (!downstream || !limiter) {
        withoutHandler.push(delivery)
        continue
      }
      for (let full = pending.full(claims.downstream); full; full = pending.full(claims.downstream))
        await full
      const hasSlot = limiter.tryTake() || (await limiter.take(deps.stopping).then(yes, no))
      const work = hasSlot ? makeAttempt(deps, one, downstream, limiter, pending) : release(deps, delivery, 0)
      start(work, delivery)
    }
    if (isRead) ahead?.leave()
    if (withoutHandler.length === 0) return
    // This process has no handler for them: they are released without a count.
    const raised = raiseNoHandler(deps.sql, withoutHandler.map(keyOf))
    const giveBack = async (one: LoadedDelivery, at: number): Promise<void> =>
      release(deps, one, (await raised)[at]?.afterMs ?? 60_000)
    for (const [at, one] of withoutHandler.entries()) start(giveBack(one, at), one)
  }
  /** Ends the claims whose delivery has changed since. */
  function endUnread({ downstream, deliveries }: ClaimedBatch, leased: readonly LeasedDelivery[]): void {
    if (leased.length === deliveries.length) return
    const ids = new Set(leased.map(one => one.delivery.task.id))
    for (const { taskId, attempt } of deliveries)
      if (!ids.has(taskId)) deps.heldClaims.end(downstream, taskId, attempt)
  }
  return Object.assign(deliver, { idle: () => busy.idle().then(deps.requestShapes.idle) })
}

async function release({ complete }: ExecuteDeps, delivery: LoadedDelivery, afterMs: number): Promise<void> {
  await complete({ move: { ...keyOf(delivery), name: 'release', afterMs } })
}

/** One attempt of a delivery that this process owns, from the hooks to the record. Its slot is free as soon as the answer arrives. */
async function makeAttempt(
  deps: AttemptingDeps,
  leased: LeasedDelivery,
  downstream: LoadedDownstream,
  limiter: SlotLimiter,
  pending: Outcomes
): Promise<void> {
  const startedAt = timeAfter(leased.delivery.task.createdAt, deps.cluster.now())
  const began = performance.now()
  let own: LeasedDelivery | undefined
  let ended: AttemptEnd | Move | undefined
  const rate: Rate | undefined = downstream.probe && { limiter, hasProbed: false }
  try {
    const confirmed = deps.stoppedClaims.confirm(deps.sql, leased, deps.owner.number())
    own = confirmed instanceof Promise ? await confirmed : confirmed
    ended = own && (await attempt(deps, own, downstream, rate))
  } finally {
    limiter.free(rate?.hasProbed !== true && (!ended || 'name' in ended))
  }
  if (!own || !ended) return
  const { delivery } = own
  if ('name' in ended) {
    await deps.complete({ move: ended, task: delivery.task })
    return
  }
  failpoint('execute.after_answer')
  await conclude(deps, { delivery, downstream, outcome: redactEnd(ended) }, { startedAt, began }, pending)
}

/** What this process knows of the database's time is some ms old: nothing starts before its task was accepted. */
const timeAfter = (accepted: Date, now: Date): Date => (now < accepted ? accepted : now)

interface Ended {
  delivery: LoadedDelivery
  downstream: LoadedDownstream
  outcome: AttemptEnd
}

/** Decides on the outcome, writes both, and calls the handler's hook. `began` by performance.now. */
function conclude(
  deps: AttemptingDeps,
  ended: Ended,
  { startedAt, began }: { startedAt: Date; began: number },
  pending: Outcomes
): Promise<void> {
  const { delivery, downstream, outcome } = ended
  const ms = Math.round(performance.now() - began)
  deps.metrics.attempted(downstream.name, outcome.kind, ms)
  const { handlerVersion = null } = downstream
  const row = attemptRow(
    outcome,
    { ms, startedAt, node: deps.node, handlerVersion },
    outcome.request && requestOf(deps, ended, outcome.request)
  )
  const isLeftToOthers =
    outcome.kind !== 'probed' && deps.reach.recordAttempt(downstream.name, outcome, began)
  const isFirst =
    !isLeftToOthers && isFirstTry(delivery, effectiveRetryTimes(delivery.task.retryTimes, downstream.policy))
  const decision = isLeftToOthers ? uncounted : decisionOf(deps, ended)
  if (isLeftToOthers) row.alarm = null
  // Spans of all programs have the times of their hosts.
  else deps.traced?.(delivery, outcome, decision.move, new Date(Date.now() - ms))
  if (isFirst && outcome.kind !== 'probed')
    deps.metrics.firstAttempt(delivery.task.messageCode, downstream.name, outcome.kind)
  return pending.write({ delivery, downstream, outcome, decision, isFirstTry: isFirst, row, ms })
}

function requestOf(
  { requestShapes }: AttemptingDeps,
  { delivery, downstream }: Ended,
  request: SentRequest
): RequestColumns {
  const { handlerVersion = 0, name } = downstream
  const shape = shapeOf({ messageCode: delivery.task.messageCode, downstream: name, handlerVersion }, request)
  requestShapes.write(shape)
  return requestColumns(request, shape)
}

/** Another process reaches the downstream, or may reach it: it delivers, and this attempt does not count. */
const uncounted = { move: 'release', afterMs: 0 } as const

function decisionOf(deps: ExecuteDeps, { delivery, downstream, outcome }: Ended): Decision {
  const isCutOff = deps.cutOff.aborted && outcome.kind === 'failed' && outcome.reason === 'shutdown'
  return decide(
    isCutOff ? { kind: 'shutdown' } : outcome,
    triesOf(delivery),
    downstream.policy,
    deps.random()
  )
}
