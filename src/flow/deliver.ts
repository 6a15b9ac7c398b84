import { raiseNoHandler } from '../db/alarms.ts'
import type { Loaded } from '../db/load.ts'
import type { Sql } from '../db/open.ts'
import { failpoint, failpointAmid } from '../failpoint.ts'
import type { LoadedDownstream, LoadedHandler } from '../handler/define.ts'
import type { Metrics } from '../metrics.ts'
import { decide, type Decision } from '../task/decide.ts'
import type { Move } from '../task/states.ts'
import type { Outcome } from '../task/task.ts'
import { tokenHeader } from '../task/token.ts'
import type { Transport } from '../transport/transport.ts'
import { discreet } from './discreet.ts'
import { attemptRow } from './evidence.ts'
import { load, type Fresh, type Hint } from './fresh.ts'
import { messageOf, postponed, within } from './hook.ts'
import type { Log } from './log.ts'
import type { Owed } from './owed.ts'
import type { Pace } from './pace.ts'
import type { Parcels } from './parcel.ts'
import type { Record } from './record.ts'
import { room, underway, type Room } from './room.ts'
import { LazySending } from './sending.ts'
import type { Surroundings } from './surroundings.ts'

/** What the flow needs of a limiter: slots count deliveries. */
export interface Slots {
  tryTake(): boolean
  take(signal: AbortSignal): Promise<void>
  free(): void
}

export interface DeliverDeps {
  sql: Sql
  handlers: ReadonlyMap<string, LoadedHandler>
  transports: { readonly [name: string]: Transport }
  /** One for each downstream. */
  slots: ReadonlyMap<string, Slots>
  /** Told of each that starts in time: the room in its queue follows. */
  started: (downstream: string) => void
  parcels: Parcels
  /** Where this process accepts too. */
  fresh: Fresh | undefined
  /** Where this process takes receipts too. */
  owed: Owed | undefined
  pace: Pick<Pace, 'ask' | 'next'>
  record: Record
  surroundings: Surroundings
  node: string
  leaseMarginMs: number
  /** Aborts when we stop: what is loaded but unsent is released. */
  stopping: AbortSignal
  /** Aborts when we can wait no longer: what is on its way is cut off. */
  cutOff: AbortSignal
  /** In [0, 1): the jitter. */
  random: () => number
  metrics: Pick<Metrics, 'attempted' | 'started'>
  log: Log
}

export interface Deliver {
  /** Resolves once each delivery of the hint has its slot or was let go; sending goes on. */
  (hint: Hint): Promise<void>
  /** Resolves when nothing is being sent or written. */
  idle(): Promise<void>
}

/** Kept back of every lease, so that our own record comes before somebody calls the lease lost. */
const leaseSafetyMs = 1_000

/** Answers that wait to be written down. More of them would only fill the memory, and come again after a crash. */
const mostUnwritten = 1_000

/** Hints of a backlog that a downstream has loaded at a time. More would only wait in memory, until V8 takes them for long-lived. */
const mostLoaded = 3

const yes = (): boolean => true
const no = (): boolean => false

/** A loaded delivery with what it needs to be sent. `expiresAt` is the end of its lease by our monotonic clock. */
interface Owned {
  delivery: Loaded
  downstream: LoadedDownstream
  expiresAt: number
  beforeAt: number
}

export function deliverer(deps: DeliverDeps): Deliver {
  const busy = underway()
  const unwritten = room(mostUnwritten)
  const loaded = new Map([...deps.slots.keys()].map(name => [name, room(mostLoaded)] as const))
  const start = (work: Promise<void>, delivery: Loaded): void => {
    const lost = (err: unknown): void => {
      // Not written: its lease runs out and the dispatcher decides.
      deps.log.error({ err, taskNo: delivery.task.taskNo, downstream: delivery.downstream }, 'attempt.lost')
    }
    busy.enter()
    // Not `finally`, which makes three more promises for every delivery.
    void work.catch(lost).then(busy.leave)
  }
  const deliver = async (hint: Hint): Promise<void> => {
    const ahead = loaded.get(hint.downstream)
    const { ones, isBacklog } = await load(deps.sql, deps.fresh, deps.pace, ahead, hint)
    const slots = deps.slots.get(hint.downstream)
    for (const { delivery, askedAt } of ones) {
      // Whoever posts meanwhile should not wait until a backlog has left. What was posted just now leaves whole (docs/performance.md).
      if (isBacklog) await deps.pace.next()
      const downstream = deps.handlers
        .get(delivery.task.messageCode)
        ?.downstreams.find(one => one.name === delivery.downstream)
      if (!downstream || !slots) {
        start(postpone(deps, delivery), delivery)
        continue
      }
      const owned = {
        delivery,
        downstream,
        expiresAt: askedAt + delivery.leaseMs,
        beforeAt: delivery.beforeMs === null ? Infinity : askedAt + delivery.beforeMs
      }
      for (let full = unwritten.full(); full; full = unwritten.full()) await full
      const took = slots.tryTake() || (await slots.take(deps.stopping).then(yes, no))
      start(took ? attempt(deps, owned, slots, unwritten) : release(deps, delivery, 0), delivery)
    }
    if (isBacklog) ahead?.leave()
  }
  return Object.assign(deliver, { idle: busy.idle })
}

/** No handler here knows it: uncounted, later and later, with one alarm. */
async function postpone(deps: DeliverDeps, delivery: Loaded): Promise<void> {
  const [afterMs = 60_000] = await raiseNoHandler(deps.sql, [
    { taskId: delivery.task.id, downstream: delivery.downstream, attempt: delivery.attempt }
  ])
  await release(deps, delivery, afterMs)
}

async function release({ record }: DeliverDeps, delivery: Loaded, afterMs: number): Promise<void> {
  await record({ move: { ...keyOf(delivery), name: 'release', afterMs } })
}

const keyOf = ({ task, downstream, attempt }: Loaded): Pick<Move, 'taskId' | 'downstream' | 'attempt'> => ({
  taskId: task.id,
  downstream,
  attempt
})

/** One try of a delivery that we own, from the hooks to the record. Its slot is free as soon as the answer is here. */
async function attempt(deps: DeliverDeps, owned: Owned, slots: Slots, unwritten: Room): Promise<void> {
  const startedAt = new Date()
  const began = performance.now()
  let sent: Outcome | Move
  try {
    sent = await send(deps, owned)
  } finally {
    slots.free()
  }
  if ('name' in sent) {
    await deps.record({ move: sent })
    return
  }
  failpoint('deliver.after_answer')
  const ms = Math.round(performance.now() - began)
  const { delivery, downstream } = owned
  deps.metrics.attempted(downstream.name, sent.kind, ms)
  const cut = deps.cutOff.aborted && sent.kind === 'failed' && sent.reason === 'shutdown'
  const decision = decide(
    cut ? { kind: 'shutdown' } : sent,
    {
      triesLeft: delivery.triesLeft,
      lost: delivery.lost,
      needsReceipt: delivery.needsReceipt,
      retryTimes: delivery.task.retryTimes
    },
    downstream.policy,
    deps.random()
  )
  const row = attemptRow(sent, { ms, startedAt, node: deps.node })
  unwritten.enter()
  try {
    const applied = await deps.record({ move: moveOf(delivery, decision), attempt: row })
    say(deps, delivery, sent, decision, ms, applied)
  } finally {
    unwritten.leave()
  }
}

/** How long this attempt may take, ms; 0 when it must not start now. */
function timeLeft(
  { surroundings, stopping }: DeliverDeps,
  { delivery, downstream, expiresAt, beforeAt }: Owned
): number {
  const now = performance.now()
  if (
    stopping.aborted ||
    surroundings.isPaused(delivery.downstream) ||
    surroundings.isAway() ||
    now >= beforeAt
  )
    return 0
  const left = Math.min(downstream.limit.timeoutMs, expiresAt - leaseSafetyMs - now)
  // A deadline cut to less than half would call a healthy downstream slow.
  return left < downstream.limit.timeoutMs / 2 ? 0 : left
}

/** The outcome of sending it; or the move that lets it go unsent. */
async function send(deps: DeliverDeps, owned: Owned): Promise<Outcome | Move> {
  const { delivery, downstream } = owned
  const letGo = { ...keyOf(delivery), name: 'release' } as const
  if (timeLeft(deps, owned) === 0) return letGo
  deps.started(delivery.downstream)
  const about = new LazySending(deps.handlers, delivery)
  let request: unknown
  try {
    const wish = downstream.beforeSend && (await within('beforeSend', downstream.beforeSend(about)))
    if (wish && 'skip' in wish) return { ...keyOf(delivery), name: 'skip', reason: 'SKIPPED' }
    if (wish) return { ...letGo, afterMs: postponed(wish.postponeMs) }
    request = await within('request', downstream.request(about))
  } catch (err) {
    return { kind: 'failed', reason: `hook: ${messageOf(err)}` }
  }
  failpoint('deliver.before_send')
  // Again right before it leaves: a hook, or a stopped process, may have used up the lease.
  const timeoutMs = timeLeft(deps, owned)
  if (timeoutMs === 0) return letGo
  const transport = deps.transports[downstream.transport]
  if (!transport) return { kind: 'failed', reason: `no transport ${downstream.transport}` }
  const { accepted } = downstream
  deps.metrics.started(
    downstream.name,
    downstream.limit.timeoutMs + deps.leaseMarginMs - (owned.expiresAt - performance.now())
  )
  const sending = transport.send(
    request,
    {
      downstream: downstream.name,
      limit: downstream.limit,
      timeoutMs,
      signal: deps.cutOff,
      raw: delivery.task.messageBody,
      headers(payload) {
        const headers = deps.parcels.headers(delivery, payload)
        // Before it leaves: the receipt may be faster than the answer.
        deps.owed?.keep(headers[tokenHeader], delivery)
        return headers
      }
    },
    accepted && (answer => accepted(answer as Parameters<typeof accepted>[0], about))
  )
  return discreet(await failpointAmid('deliver.after_send', sending), request)
}

function moveOf({ task, downstream, attempt }: Loaded, decision: Decision): Move {
  const move: Move = { taskId: task.id, downstream, attempt, name: decision.move }
  // Not spread: once for each attempt, that would cost as much as the whole decision.
  if ('afterMs' in decision) move.afterMs = decision.afterMs
  if ('reason' in decision) move.reason = decision.reason
  if ('handledBy' in decision) move.handledBy = decision.handledBy
  return move
}

/** One line for every attempt that ended. A plain success is debug: at thousands a second info would cost more than sending. */
function say(
  { log }: DeliverDeps,
  delivery: Loaded,
  outcome: Outcome,
  decision: Decision,
  ms: number,
  applied: string
): void {
  const stale = applied === 'stale' || applied === 'zombie'
  // What nobody reads is not even put together.
  if (outcome.kind === 'delivered' && !stale && log.isLevelEnabled?.('debug') === false) return
  const fields = {
    taskNo: delivery.task.taskNo,
    messageCode: delivery.task.messageCode,
    downstream: delivery.downstream,
    attempt: delivery.attempt,
    outcome: outcome.kind,
    move: decision.move,
    ms,
    ...('afterMs' in decision ? { afterMs: decision.afterMs } : {}),
    ...(outcome.kind === 'delivered' ? {} : { reason: outcome.reason }),
    ...(outcome.warning === undefined ? {} : { warning: outcome.warning })
  }
  if (stale) log.info({ ...fields, applied }, 'attempt.stale')
  else if (outcome.kind === 'delivered') log.debug(fields, 'attempt.done')
  else log.info(fields, 'attempt.done')
}
