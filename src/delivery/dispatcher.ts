import { isTimeout } from '../db/batch.ts'
import { nextDue } from '../db/deliveries.ts'
import { cursorAt, type ScanCursor } from '../db/overdue.ts'
import { isInfrastructure } from '../db/pool.ts'
import { lowWater, overlapMs, untilFullLook, type LowWater } from './low-water.ts'
import { interruptibleSleep } from '../runtime/repeat.ts'
import type { DeadOwner } from '../db/owners.ts'
import { raiseOrphans, rescueOverdue, rescueOwned, type RescueDeps, type TakenBy } from './rescue.ts'
import { claimAndEnqueue, downstreamsWithBacklog, areQueuesFull, type ScheduleDeps } from './schedule.ts'

interface DispatcherDeps extends ScheduleDeps, RescueDeps {
  sweepMs: number
  takenBy: TakenBy
  /** From now on this process declares no other one dead. Resolves when the dead ones so far are reported, or after a second. */
  retire: () => Promise<void>
}

export interface Dispatcher {
  /** Sweeps until the signal aborts. Resolves when the last sweep has ended. */
  run(signal: AbortSignal): Promise<void>
  /** A delivery became due: sweep now. */
  wake(): void
  /** These processes are dead. No other dispatcher takes back their deliveries. */
  died(owners: readonly DeadOwner[]): void
}

/** After a database error, wait this long before treating leases as lost: other processes could not write either. */
const leaseTrustMs = 2_000
/** How often to look for rows whose downstream has no handler. */
const orphanLookMs = 60_000
/** How soon a full queue is checked again. This costs no statement. */
const roomPollMs = 10
const failuresBeforeYield = 5
const yieldMs = 60_000
/** How often a dispatcher that yielded checks whether it may continue. */
const yieldPollMs = 500

interface Memory {
  marks: LowWater
  /** By downstream: sweeps look at the clocks that ended later. Database time, ms since 1970. None before the first sweep. */
  since: Map<string, number>
  /** By downstream: the look at the clocks since then, if it is not at its end, and when it began. */
  unfinished: Map<string, { place: ScanCursor; beganMs: number }>
  /** The look at all clocks, if it is not at its end, and the ms that it took so far. */
  full: { left: readonly ScanCursor[]; ms: number } | null
  fullLookAt: number
  orphanLookAt: number
  /** No lease is treated as lost before this time. Infinity until the database answers again. */
  trustFrom: number
  lookedAt: number
  /** The time of the last sweep that looked at the clocks and did not only claim. */
  sweptAt: number
  /** Dead processes whose deliveries are not taken back yet. */
  dead: DeadOwner[]
}

/** Schedules due deliveries and rescues overdue ones. It needs no leader: it locks rows, not nodes. */
export function dispatcher(deps: DispatcherDeps): Dispatcher {
  const memory: Memory = {
    marks: lowWater(deps.downstreams.map(one => one.name)),
    since: new Map(),
    unfinished: new Map(),
    full: null,
    fullLookAt: 0,
    orphanLookAt: performance.now() + orphanLookMs,
    trustFrom: 0,
    lookedAt: 0,
    sweptAt: -Infinity,
    dead: []
  }
  const waiting = interruptibleSleep()
  let failures = 0
  const yields = { from: 0, until: 0 }

  async function turn(): Promise<number> {
    if (memory.dead.length === 0 && performance.now() < yields.until && deps.cluster.seenAt() < yields.from)
      return yieldPollMs
    try {
      const waitMs = await sweep(deps, memory)
      failures = 0
      return waitMs
    } catch (err) {
      if (!isInfrastructure(err)) deps.log.error({ err }, 'dispatcher.failed')
      // PostgreSQL is not away then: nothing else would say it.
      else if (isTimeout(err)) deps.log.warn({ err }, 'dispatcher.failed')
      if (!isTimeout(err)) {
        memory.unfinished.clear()
        memory.full = null
        memory.fullLookAt = 0
      }
      memory.marks.forget()
      memory.trustFrom = Infinity
      failures++
      if (failures < failuresBeforeYield) return Math.min(2_000, 100 * 2 ** failures)
      // Perhaps only this process is cut off: then another dispatcher works better without it. It yields only until the database
      // answers again. Otherwise, after an outage, every dispatcher would leave the work to another one for a minute.
      if (deps.cluster.dispatchers() > 1) {
        // Only the first of an outage is logged.
        if (failures === failuresBeforeYield)
          deps.log.warn({ err, failures, atMostMs: yieldMs }, 'dispatcher.yielded')
        yields.from = performance.now()
        yields.until = yields.from + yieldMs
      }
      return 2_000
    }
  }

  return {
    wake: waiting.end,
    died(owners) {
      memory.dead.push(...owners)
      waiting.end()
    },
    async run(signal) {
      while (!signal.aborted) await waiting.take(await turn(), signal)
      await deps.retire()
      // No other process takes back their deliveries.
      for (const one of memory.dead.splice(0))
        await rescueOwned(deps, one).catch((err: unknown) =>
          deps.log.warn({ err, ...one }, 'dispatcher.failed')
        )
    }
  }
}

/** One sweep: schedule due deliveries, rescue overdue ones. Returns the ms until the next sweep. */
async function sweep(deps: DispatcherDeps, memory: Memory): Promise<number> {
  // First: all other work may wait for these deliveries.
  for (let one = memory.dead[0]; one; one = memory.dead[0]) {
    try {
      await rescueOwned(deps, one)
    } catch (err) {
      // Too many clocks to read: its leases end. It must not keep due deliveries waiting.
      if (!isTimeout(err)) throw err
      deps.log.warn({ err, ...one }, 'dispatcher.failed')
    }
    memory.dead.shift()
  }
  // Clocks that could not be read yet must not wait for a whole sweep.
  const isOnTime = memory.unfinished.size === 0
  if (isOnTime && areQueuesFull(deps) && performance.now() - memory.lookedAt < deps.sweepMs) return roomPollMs
  memory.lookedAt = performance.now()
  // While a backlog is claimed, the other clocks wait for the next regular sweep.
  const canWait = isOnTime && memory.lookedAt - memory.sweptAt < deps.sweepMs && memory.trustFrom !== Infinity
  if (canWait && downstreamsWithBacklog(deps).length > 0 && !(await claimAndEnqueue(deps, memory.marks.from)))
    return 0
  const names = deps.downstreams.map(one => one.name)
  // Read before the claim: deliveries that become due in between are then claimed. In the other order they would wait for a sweep.
  const { now, inMs } = await memory.marks.look(from =>
    nextDue(
      deps.sql,
      names.map(name => ({ name, fromMs: from(name) })),
      deps.sweepMs
    )
  )
  // Only from here on: the other processes could not write either, and first write the answers that they hold.
  if (memory.trustFrom === Infinity) memory.trustFrom = performance.now() + leaseTrustMs
  memory.sweptAt = performance.now()
  const claimedAll = await claimAndEnqueue(deps, memory.marks.from)
  const decidedAll =
    performance.now() < memory.trustFrom || (await lookAtEndedClocks(deps, memory, names, now))
  if (performance.now() > memory.orphanLookAt) {
    memory.orphanLookAt = performance.now() + orphanLookMs
    await raiseOrphans(deps, names)
  }
  return claimedAll && decidedAll ? Math.min(deps.sweepMs, Math.max(1, inMs ?? deps.sweepMs)) : 0
}

/**
 * Looks at the clocks that ended since the last look, then at a part of all. The look at all finds deliveries that were due already and waited
 * until their deliverBefore passed, and those that somebody had locked. False: the first look has not reached the end of each downstream.
 */
async function lookAtEndedClocks(
  deps: DispatcherDeps,
  memory: Memory,
  names: string[],
  now: Date
): Promise<boolean> {
  const { since, unfinished } = memory
  const newest = now.getTime() - overlapMs
  const { left } = await rescueOverdue(
    deps,
    names.map(
      name => unfinished.get(name)?.place ?? cursorAt(name, Math.min(since.get(name) ?? newest, newest))
    )
  )
  const places = new Map(left.map(place => [place.downstream, place]))
  for (const name of names) {
    const beganMs = unfinished.get(name)?.beganMs ?? now.getTime()
    const place = places.get(name)
    if (place) unfinished.set(name, { place, beganMs })
    else {
      unfinished.delete(name)
      since.set(name, beganMs - overlapMs)
    }
  }
  if (performance.now() > memory.fullLookAt) await lookAtNextPart(deps, memory, names)
  return unfinished.size === 0
}

/** The next part of the look at all clocks. Its failure does not end the look at those that ended just now. */
async function lookAtNextPart(deps: DispatcherDeps, memory: Memory, names: string[]): Promise<void> {
  const full = (memory.full ??= {
    left: names.map(name => cursorAt(name, memory.marks.from(name))),
    ms: 0
  })
  try {
    const { left, lookMs } = await rescueOverdue(deps, full.left)
    const isWhole = left.length === 0
    const ms = full.ms + lookMs
    memory.full = isWhole ? null : { left, ms }
    memory.fullLookAt =
      performance.now() + (isWhole ? untilFullLook(ms) : Math.min(deps.sweepMs, untilFullLook(lookMs)))
  } catch (err) {
    if (!isTimeout(err)) throw err
    deps.log.warn({ err }, 'dispatcher.failed')
    memory.fullLookAt = performance.now() + untilFullLook(Infinity)
  }
}
