import { raiseNoHandler } from '../db/alarms.ts'
import { claimDue, findOrphans, findOverdue, nextDue, type Overdue } from '../db/due.ts'
import { isInfrastructure, type Sql } from '../db/open.ts'
import { failpoint } from '../failpoint.ts'
import type { LoadedHandler } from '../handler/define.ts'
import { decide, type Policy } from '../task/decide.ts'
import type { Move } from '../task/states.ts'
import type { Hinter } from './hint.ts'
import type { Log } from './log.ts'
import type { Pace } from './pace.ts'
import type { Record } from './record.ts'
import type { Surroundings } from './surroundings.ts'

export interface DispatchDeps {
  sql: Sql
  handlers: ReadonlyMap<string, LoadedHandler>
  /** The downstreams this process has handlers for, each with the length of its leases. */
  downstreams: readonly { name: string; leaseMs: number }[]
  hinter: Hinter
  record: Record
  pace: Pick<Pace, 'ask' | 'isYielding'>
  surroundings: Surroundings
  sweepMs: number
  random: () => number
  log: Log
}

export interface Dispatcher {
  /** Looks until the signal aborts; ends when the last look is over. */
  run(signal: AbortSignal): Promise<void>
  /** Something became due: look now. */
  wake(): void
}

/** After an error of its own a dispatcher trusts no clock that ran out meanwhile: others could not write either. */
const trustMs = 2_000
/** A look over everything, beside the windows, mends what a window may have missed. */
const fullLookMs = 60_000
/** Rows whose downstream nobody knows are looked for this often. */
const orphanLookMs = 60_000
const overdueAtOnce = 1_000
/** The most that is claimed of a downstream in one statement: while we yield to who posts, and else. */
const [fewAtOnce, manyAtOnce] = [100, 2_000]
/** How soon a queue without room is asked again; that costs no statement. */
const roomPollMs = 10
const failuresBeforeYield = 5
const yieldMs = 60_000
/** How often it asks itself whether the reason to yield is still there. */
const yieldPollMs = 500

interface Memory {
  /** Clocks that ran out before were seen by an earlier look; null: look at all. */
  since: Date | null
  fullLookAt: number
  orphanLookAt: number
  /** Before it no lease is called lost; Infinity until the database answers again. */
  trustFrom: number
  lookedAt: number
  /** When clocks were looked at last, and not only claimed. */
  sweptAt: number
}

/** Claims what is due and decides what is overdue. Needs no leader: rows are locked, not nodes. */
export function dispatcher(deps: DispatchDeps): Dispatcher {
  const memory: Memory = {
    since: null,
    fullLookAt: 0,
    orphanLookAt: performance.now() + orphanLookMs,
    trustFrom: 0,
    lookedAt: 0,
    sweptAt: -Infinity
  }
  const waiting = nap()
  let failures = 0
  const yields = { from: 0, until: 0 }

  async function turn(): Promise<number> {
    if (performance.now() < yields.until && deps.surroundings.seenAt() < yields.from) return yieldPollMs
    try {
      const waitMs = await look(deps, memory)
      failures = 0
      return waitMs
    } catch (err) {
      if (!isInfrastructure(err)) deps.log.error({ err }, 'dispatch.failed')
      memory.since = null
      memory.trustFrom = Infinity
      failures++
      if (failures < failuresBeforeYield) return Math.min(2_000, 100 * 2 ** failures)
      // Perhaps only we are cut off: then another one does better while we keep away from its rows. Only until the database
      // answers us again: after an outage for all of us each would leave the work to another one for a minute.
      const isOther = deps.surroundings.dispatchers() > 1
      deps.log.warn({ err, failures, atMostMs: isOther ? yieldMs : 2_000 }, 'dispatch.yields')
      if (isOther) {
        yields.from = performance.now()
        yields.until = yields.from + yieldMs
      }
      return 2_000
    }
  }

  return {
    wake: waiting.end,
    async run(signal) {
      while (!signal.aborted) await waiting.take(await turn(), signal)
    }
  }
}

/** One look: claim and hint what is due, decide what is overdue; ms until the next. */
async function look(deps: DispatchDeps, memory: Memory): Promise<number> {
  if (isBlocked(deps) && performance.now() - memory.lookedAt < deps.sweepMs) return roomPollMs
  memory.lookedAt = performance.now()
  // While a backlog is worked off the other clocks can wait for their sweep, as they do at rest.
  const canWait = memory.lookedAt - memory.sweptAt < deps.sweepMs && memory.trustFrom !== Infinity
  if (canWait && behind(deps).length > 0 && !(await claim(deps))) return 0
  const names = deps.downstreams.map(one => one.name)
  // Asked before the claim: what becomes due between the two is claimed; the other way round it would wait a sweep.
  const { now, inMs } = await nextDue(deps.sql, names)
  // Only from here on: others too could not write before, and hold answers that they write first of all.
  if (memory.trustFrom === Infinity) memory.trustFrom = performance.now() + trustMs
  memory.sweptAt = performance.now()
  const claimedAll = await claim(deps)
  const decidedAll = performance.now() < memory.trustFrom || (await decideOverdue(deps, memory, names, now))
  if (performance.now() > memory.orphanLookAt) {
    memory.orphanLookAt = performance.now() + orphanLookMs
    await raiseOrphans(deps, names)
  }
  return claimedAll && decidedAll ? Math.min(deps.sweepMs, Math.max(1, inMs ?? deps.sweepMs)) : 0
}

/** Due deliveries wait, and none of their queues has room: nothing to ask PostgreSQL for yet. */
function isBlocked(deps: DispatchDeps): boolean {
  const names = behind(deps)
  return names.length > 0 && names.every(name => deps.hinter.room(name) === 0)
}

/** Downstreams with more due than the last look claimed. */
const behind = ({ downstreams, surroundings }: DispatchDeps): string[] =>
  downstreams
    .map(({ name }) => name)
    .filter(name => surroundings.isBehind(name) && !surroundings.isPaused(name))

/** false: more was due than was claimed, and there is room for it at once. */
async function claim({ sql, pace, downstreams, hinter, surroundings, log }: DispatchDeps): Promise<boolean> {
  const most = pace.isYielding() ? fewAtOnce : manyAtOnce
  const open = downstreams
    .filter(({ name }) => !surroundings.isPaused(name))
    .map(({ name, leaseMs }) => ({ downstream: name, room: Math.min(hinter.room(name), most), leaseMs }))
  const roomy = open.filter(one => one.room > 0)
  const claimed = roomy.length > 0 ? await pace.ask(() => claimDue(sql, roomy)) : []
  if (claimed.length > 0) {
    failpoint('claim.after_commit')
    log.debug({ deliveries: claimed.length }, 'dispatch.claimed')
    void hinter.add(claimed)
  }
  const taken = new Map<string, number>()
  for (const { downstream } of claimed) taken.set(downstream, (taken.get(downstream) ?? 0) + 1)
  let all = true
  for (const { downstream, room } of open) {
    // Without room nobody looked: what waits shows itself in the age of the oldest, once a second.
    if (room === 0) continue
    const full = (taken.get(downstream) ?? 0) >= room
    surroundings.setBehind(downstream, full)
    if (full) all = false
  }
  return all
}

/** false: there is more than one look takes. */
async function decideOverdue(
  deps: DispatchDeps,
  memory: Memory,
  names: string[],
  now: Date
): Promise<boolean> {
  const full = performance.now() > memory.fullLookAt
  const overdue = await findOverdue(deps.sql, names, full ? null : memory.since, overdueAtOnce)
  const moves = overdue.map(one => moveOf(deps, one))
  if (overdue.length > 0) failpoint('dispatch.after_select')
  const done = await Promise.all(moves.map(move => deps.record({ move })))
  if (overdue.length > 0) failpoint('dispatch.after_commit')
  overdue.forEach((one, index) => {
    const move = moves[index]
    if (done[index] !== 'moved' || !move) return
    deps.log.info(
      {
        taskNo: one.taskNo,
        messageCode: one.messageCode,
        downstream: one.downstream,
        attempt: one.attempt,
        was: one.phase,
        move: move.name,
        reason: move.reason,
        afterMs: move.afterMs
      },
      'overdue.decided'
    )
  })
  if (overdue.length >= overdueAtOnce) return false
  if (full) memory.fullLookAt = performance.now() + fullLookMs
  // A second of overlap: a clock is written by a statement that commits a little later.
  memory.since = new Date(now.getTime() - 1_000)
  return true
}

const defaultPolicy: Policy = {
  times: undefined,
  backoff: { kind: 'exponential', firstMs: 10_000, maxMs: 3_600_000 },
  receiptTimeoutMs: 60_000
}

function moveOf({ handlers, surroundings, random }: DispatchDeps, one: Overdue): Move {
  const key = { taskId: one.taskId, downstream: one.downstream, attempt: one.attempt, overdue: true }
  if (one.phase === 'WAITING') return { ...key, name: 'fail', reason: 'EXPIRED' }
  const policy =
    handlers.get(one.messageCode)?.downstreams.find(d => d.name === one.downstream)?.policy ?? defaultPolicy
  const lost = {
    kind: 'lost',
    workersLive: surroundings.workers() > 0 && !surroundings.isPaused(one.downstream)
  } as const
  const { move: name, ...more } = decide(
    one.phase === 'IN_FLIGHT' ? lost : { kind: 'no_receipt' },
    one,
    policy,
    random()
  )
  return { ...key, name, ...more }
}

/** Deliveries of downstreams that no handler names any more wait where they are; a person must hear of them. */
async function raiseOrphans({ sql, log }: DispatchDeps, names: string[]): Promise<void> {
  const orphans = await findOrphans(sql, names, overdueAtOnce)
  if (orphans.length === 0) return
  await raiseNoHandler(sql, orphans)
  log.warn(
    { downstreams: [...new Set(orphans.map(one => one.downstream))], deliveries: orphans.length },
    'dispatch.no_handler'
  )
}

/** A sleep that can be cut short, also before it began. */
function nap(): { take(ms: number, signal: AbortSignal): Promise<void>; end(): void } {
  let woken = false
  let end = (): void => {
    woken = true
  }
  return {
    end: () => end(),
    take: (ms, signal) =>
      new Promise(resolve => {
        if (woken || signal.aborted) {
          woken = false
          resolve()
          return
        }
        const done = (): void => {
          clearTimeout(timer)
          signal.removeEventListener('abort', done)
          end = () => {
            woken = true
          }
          resolve()
        }
        const timer = setTimeout(done, ms)
        signal.addEventListener('abort', done)
        end = done
      })
  }
}
