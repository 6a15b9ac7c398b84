import { nextDue } from '../db/deliveries.ts'
import { isInfrastructure } from '../db/pool.ts'
import { raiseOrphans, rescueOverdue, type RescueDeps } from './rescue.ts'
import { claimAndEnqueue, downstreamsBehind, isBlocked, type ScheduleDeps } from './schedule.ts'

export interface DispatcherDeps extends ScheduleDeps, RescueDeps {
  sweepMs: number
}

export interface Dispatcher {
  /** Looks until the signal aborts; ends when the last look is over. */
  run(signal: AbortSignal): Promise<void>
  /** Something became due: look now. */
  wake(): void
}

/** After a database error, wait so long before treating leases as lost: other processes could not write either. */
const trustMs = 2_000
/** A look over everything, beside the windows, mends what a window may have missed. */
const fullLookMs = 60_000
/** Rows whose downstream nobody knows are looked for this often. */
const orphanLookMs = 60_000
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

/** Schedules what is due and rescues what is overdue. Needs no leader: rows are locked, not nodes. */
export function dispatcher(deps: DispatcherDeps): Dispatcher {
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
    if (performance.now() < yields.until && deps.cluster.seenAt() < yields.from) return yieldPollMs
    try {
      const waitMs = await look(deps, memory)
      failures = 0
      return waitMs
    } catch (err) {
      if (!isInfrastructure(err)) deps.log.error({ err }, 'dispatcher.failed')
      memory.since = null
      memory.trustFrom = Infinity
      failures++
      if (failures < failuresBeforeYield) return Math.min(2_000, 100 * 2 ** failures)
      // Perhaps only we are cut off: then another one does better while we keep away from its rows. Only until the database
      // answers us again: after an outage for all of us each would leave the work to another one for a minute.
      const isOther = deps.cluster.dispatchers() > 1
      deps.log.warn({ err, failures, atMostMs: isOther ? yieldMs : 2_000 }, 'dispatcher.yielded')
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

/** One look: schedule what is due, rescue what is overdue; ms until the next. */
async function look(deps: DispatcherDeps, memory: Memory): Promise<number> {
  if (isBlocked(deps) && performance.now() - memory.lookedAt < deps.sweepMs) return roomPollMs
  memory.lookedAt = performance.now()
  // While a backlog is worked off the other clocks can wait for their sweep, as they do at rest.
  const canWait = memory.lookedAt - memory.sweptAt < deps.sweepMs && memory.trustFrom !== Infinity
  if (canWait && downstreamsBehind(deps).length > 0 && !(await claimAndEnqueue(deps))) return 0
  const names = deps.downstreams.map(one => one.name)
  // Asked before the claim: what becomes due between the two is claimed; the other way round it would wait a sweep.
  const { now, inMs } = await nextDue(deps.sql, names)
  // Only from here on: others too could not write before, and hold answers that they write first of all.
  if (memory.trustFrom === Infinity) memory.trustFrom = performance.now() + trustMs
  memory.sweptAt = performance.now()
  const claimedAll = await claimAndEnqueue(deps)
  const decidedAll = performance.now() < memory.trustFrom || (await rescue(deps, memory, names, now))
  if (performance.now() > memory.orphanLookAt) {
    memory.orphanLookAt = performance.now() + orphanLookMs
    await raiseOrphans(deps, names)
  }
  return claimedAll && decidedAll ? Math.min(deps.sweepMs, Math.max(1, inMs ?? deps.sweepMs)) : 0
}

/** Looks at the clocks that ran out since the last look, and once a minute at all. */
async function rescue(deps: DispatcherDeps, memory: Memory, names: string[], now: Date): Promise<boolean> {
  const full = performance.now() > memory.fullLookAt
  if (!(await rescueOverdue(deps, names, full ? null : memory.since))) return false
  if (full) memory.fullLookAt = performance.now() + fullLookMs
  // A second of overlap: a clock is written by a statement that commits a little later.
  memory.since = new Date(now.getTime() - 1_000)
  return true
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
