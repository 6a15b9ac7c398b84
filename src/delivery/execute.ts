import { raiseNoHandler } from '../db/alarms.ts'
import { isAway } from '../db/batch.ts'
import type { LoadedDelivery } from '../db/deliveries.ts'
import type { Sql } from '../db/pool.ts'
import { failpoint, failpointAmid } from '../runtime/failpoint.ts'
import { downstreamOf, type LoadedDownstream, type LoadedHandler } from '../handler/loaded.ts'
import type { Metrics } from '../runtime/metrics.ts'
import { decide, isFirstTry, limitOf, triesOf, type Decision } from '../domain/retry-policy.ts'
import type { Move } from '../domain/transitions.ts'
import type { AttemptEnd } from '../domain/types.ts'
import type { Transport } from '../transport/types.ts'
import { redactEnd, redactRequestSecrets } from '../domain/redact.ts'
import { attemptRow, type Complete } from './complete.ts'
import { postponed, inHookTime, LazyHookContext } from './hooks.ts'
import type { HeldClaims } from './held-claims.ts'
import { ownedOf, timeLeft, type Owned, type Owner } from './lease.ts'
import { load, type ClaimedBatch, type LeasedDelivery } from './load.ts'
import type { Cancelled } from './cancelled.ts'
import type { Logger } from '../runtime/logger.ts'
import type { DeliveryHeaders } from './headers.ts'
import { askDownstream } from './probe.ts'
import { outcomes, type Outcomes } from './outcomes.ts'
import type { Reach } from './reach.ts'
import { semaphore, waitGroup } from '../runtime/semaphore.ts'
import type { Cluster } from './cluster.ts'
import { reasonOf } from '../runtime/errors.ts'

/** The limiter, as this file uses it. Slots count deliveries. */
export interface SlotLimiter {
  /** True if a delivery may start at once: it then has its slot. It overtakes no waiting delivery. */
  tryTake(): boolean
  /** Resolves when a delivery may start, in the order of the calls. Rejects with the signal's reason. */
  take(signal: AbortSignal): Promise<void>
  /** A delivery with a slot has ended. `isUnused`: nothing was sent, and the next delivery may have its place in the rate. */
  free(isUnused?: boolean): void
}

/** Called for each ended attempt, if tracing is on. */
export type Traced = (delivery: LoadedDelivery, outcome: AttemptEnd, move: string, startedAt: Date) => void

interface ExecuteDeps {
  sql: Sql
  handlers: ReadonlyMap<string, LoadedHandler>
  transports: { readonly [name: string]: Transport }
  /** One for each downstream. */
  limiters: ReadonlyMap<string, SlotLimiter>
  /** The current limits by downstream: an operator may have changed them. */
  limits?: ReadonlyMap<string, { concurrency: number; pipelining?: number }>
  /** Called for each delivery that starts in time: the room in its queue depends on it. */
  started: (downstream: string) => void
  headers: DeliveryHeaders
  reach: Pick<Reach, 'attempted' | 'isClosed'>
  cancelled: Cancelled
  heldClaims: Pick<HeldClaims, 'begin' | 'end'>
  complete: Complete
  cluster: Cluster
  owner: Owner
  node: string
  leaseMarginMs: number
  /** Aborts when the process stops: loaded deliveries that were not sent are released. */
  stopping: AbortSignal
  /** Aborts at the end of the shutdown time: open sends are cut off. */
  cutOff: AbortSignal
  /** Random number in [0, 1), for the jitter. */
  random: () => number
  metrics: Pick<Metrics, 'attempted' | 'firstAttempt' | 'started'>
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

/** Limit of jobs of a backlog that a downstream has loaded. More would only wait in memory until V8 treats them as long-lived. */
const mostLoaded = 3

const yes = (): boolean => true
const no = (): boolean => false

export function executor(deps: ExecuteDeps): Execute {
  const busy = waitGroup()
  const pending = outcomes(deps, deps.limiters.keys())
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
    const { loaded, isRead } = await load(deps.sql, ahead, claims, () => deps.owner.number()).catch(
      (err: unknown) => {
        endUnread(claims, [])
        // Before the next job is taken: this process could not read that job either.
        if (isAway(err)) deps.cluster.setDatabaseAway()
        throw err
      }
    )
    if (isRead) endUnread(claims, loaded)
    const limiter = deps.limiters.get(claims.downstream)
    const unhandled: LoadedDelivery[] = []
    for (const one of loaded) {
      const { delivery } = one
      const downstream = downstreamOf(deps.handlers, delivery.task.messageCode, delivery.downstream)
      if (!downstream || !limiter) {
        unhandled.push(delivery)
        continue
      }
      for (let full = pending.full(claims.downstream); full; full = pending.full(claims.downstream))
        await full
      const hasSlot = limiter.tryTake() || (await limiter.take(deps.stopping).then(yes, no))
      const work = hasSlot ? makeAttempt(deps, one, downstream, limiter, pending) : release(deps, delivery, 0)
      start(work, delivery)
    }
    if (isRead) ahead?.leave()
    if (unhandled.length === 0) return
    // This process has no handler for them: they are released without a count.
    const raised = raiseNoHandler(deps.sql, unhandled.map(keyOf))
    const giveBack = async (one: LoadedDelivery, at: number): Promise<void> =>
      release(deps, one, (await raised)[at]?.afterMs ?? 60_000)
    for (const [at, one] of unhandled.entries()) start(giveBack(one, at), one)
  }
  /** Ends the claims whose delivery has changed since. */
  function endUnread({ downstream, deliveries }: ClaimedBatch, loaded: readonly LeasedDelivery[]): void {
    if (loaded.length === deliveries.length) return
    const ids = new Set(loaded.map(one => one.delivery.task.id))
    for (const { taskId, attempt } of deliveries)
      if (!ids.has(taskId)) deps.heldClaims.end(downstream, taskId, attempt)
  }
  return Object.assign(deliver, { idle: busy.idle })
}

async function release({ complete }: ExecuteDeps, delivery: LoadedDelivery, afterMs: number): Promise<void> {
  await complete({ move: { ...keyOf(delivery), name: 'release', afterMs } })
}

const keyOf = ({
  task,
  downstream,
  attempt
}: LoadedDelivery): Pick<Move, 'taskId' | 'downstream' | 'attempt' | 'orderingKey'> => ({
  taskId: task.id,
  downstream,
  attempt,
  orderingKey: task.orderingKey
})

/** One attempt of a delivery that this process owns, from the hooks to the record. Its slot is free as soon as the answer arrives. */
async function makeAttempt(
  deps: ExecuteDeps,
  loaded: LeasedDelivery,
  downstream: LoadedDownstream,
  limiter: SlotLimiter,
  pending: Outcomes
): Promise<void> {
  const startedAt = new Date()
  const began = performance.now()
  let owned: Owned | undefined
  let ended: AttemptEnd | Move | undefined
  try {
    const confirmed = deps.cancelled.confirm(deps.sql, loaded, deps.owner.number())
    owned = ownedOf(deps, confirmed instanceof Promise ? await confirmed : confirmed, downstream)
    ended = owned && (await send(deps, owned))
  } finally {
    limiter.free(!ended || 'name' in ended)
  }
  if (!owned || !ended) return
  if ('name' in ended) {
    await deps.complete({ move: ended, task: owned.delivery.task })
    return
  }
  failpoint('execute.after_answer')
  await conclude(deps, owned, redactEnd(ended), { startedAt, began }, pending)
}

/** Decides on the outcome, writes both, and calls the handler's hook. `began` by performance.now. */
function conclude(
  deps: ExecuteDeps,
  owned: Owned,
  outcome: AttemptEnd,
  { startedAt, began }: { startedAt: Date; began: number },
  pending: Outcomes
): Promise<void> {
  const { delivery, downstream } = owned
  const ms = Math.round(performance.now() - began)
  deps.metrics.attempted(downstream.name, outcome.kind, ms)
  const row = attemptRow(outcome, { ms, startedAt, node: deps.node })
  const isLeftToOthers = outcome.kind !== 'probed' && deps.reach.attempted(downstream.name, outcome, began)
  const isFirst =
    !isLeftToOthers && isFirstTry(delivery, limitOf(delivery.task.retryTimes, downstream.policy))
  const decision = isLeftToOthers ? uncounted : decisionOf(deps, owned, outcome)
  if (isLeftToOthers) row.alarm = null
  else deps.traced?.(delivery, outcome, decision.move, startedAt)
  if (isFirst && outcome.kind !== 'probed')
    deps.metrics.firstAttempt(delivery.task.messageCode, downstream.name, outcome.kind)
  return pending.write({ delivery, downstream, outcome, decision, isFirstTry: isFirst, row, ms })
}

/** Another process reaches the downstream, or may reach it: it delivers, and this attempt does not count. */
const uncounted = { move: 'release', afterMs: 0 } as const

function decisionOf(deps: ExecuteDeps, { delivery, downstream }: Owned, outcome: AttemptEnd): Decision {
  const isCutOff = deps.cutOff.aborted && outcome.kind === 'failed' && outcome.reason === 'shutdown'
  return decide(
    isCutOff ? { kind: 'shutdown' } : outcome,
    triesOf(delivery),
    downstream.policy,
    deps.random()
  )
}

/** The outcome of the send, or the move that releases the delivery unsent. */
async function send(deps: ExecuteDeps, owned: Owned): Promise<AttemptEnd | Move> {
  const { delivery, downstream } = owned
  const letGo = { ...keyOf(delivery), name: 'release' } as const
  if (performance.now() >= owned.forgetAt)
    return { ...keyOf(delivery), name: 'fail', reason: 'EXPIRED', inFlight: true }
  if (timeLeft(deps, owned) === 0) return letGo
  deps.started(delivery.downstream)
  const about = new LazyHookContext(deps.handlers, delivery)
  const transport = deps.transports[downstream.transport]
  if (!transport) return { kind: 'failed', reason: `no transport ${downstream.transport}` }
  let request: unknown
  try {
    const wish = downstream.beforeSend && (await inHookTime('beforeSend', downstream.beforeSend(about)))
    if (wish && 'skip' in wish) return { ...keyOf(delivery), name: 'skip', reason: 'SKIPPED' }
    if (wish) return { ...letGo, afterMs: postponed(wish.postponeMs) }
  } catch (err) {
    return { kind: 'failed', reason: `hook: ${reasonOf(err)}` }
  }
  let deadline = Infinity
  let unanswered: string | undefined
  if (downstream.probe && delivery.attempt > 1) {
    const timeoutMs = timeLeft(deps, owned) / 2
    if (timeoutMs === 0) return letGo
    // The probe and the send share the timeout of one send.
    deadline = performance.now() + downstream.limit.timeoutMs
    const probed = await askDownstream(deps, { delivery, downstream, transport, about, timeoutMs })
    if (typeof probed === 'object') return probed
    unanswered = probed
  }
  try {
    request = await inHookTime('request', downstream.request(about))
  } catch (err) {
    return { kind: 'failed', reason: `hook: ${reasonOf(err)}` }
  }
  failpoint('execute.before_send')
  // Checked again right before the send: a hook, or a stopped process, may have used up the lease.
  const leftMs = timeLeft(deps, owned)
  if (leftMs === 0) return letGo
  // If a probe has used up the time, the attempt fails by its timeout and counts.
  const timeoutMs = Math.min(leftMs, Math.max(1, deadline - performance.now()))
  deps.metrics.started(
    downstream.name,
    downstream.limit.timeoutMs + deps.leaseMarginMs - (owned.expiresAt - performance.now())
  )
  const { accepted } = downstream
  const sending = transport.send(
    request,
    {
      downstream: downstream.name,
      limit: deps.limits?.get(downstream.name) ?? downstream.limit,
      timeoutMs,
      signal: deps.cutOff,
      raw: delivery.task.messageBody,
      ...(delivery.task.orderingKey !== null && { orderingKey: delivery.task.orderingKey }),
      headers: payload => deps.headers.headers(delivery, payload)
    },
    accepted && (answer => accepted(answer as Parameters<typeof accepted>[0], about))
  )
  const outcome = redactRequestSecrets(await failpointAmid('execute.after_send', sending), request)
  return unanswered === undefined || outcome.warning !== undefined
    ? outcome
    : { ...outcome, warning: unanswered }
}
