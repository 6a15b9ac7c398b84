import type { Logger } from '../runtime/logger.ts'
import { byDownstream, type QueuedClaim } from '../delivery/enqueue.ts'
import type { SharedQueue } from '../delivery/local-queue.ts'
import type { Backend, DeliveryRef } from './backend.ts'
import { withTimeout } from '../runtime/with-timeout.ts'
import { jobSize, prefetchWindow, type Limits } from './prefetch-window.ts'
import { sleep } from '../runtime/repeat.ts'
import { messageOf } from '../runtime/errors.ts'

export interface QueueDownstream extends Limits {
  name: string
}

interface JobQueueOptions {
  backend: Backend
  downstreams: QueueDownstream[]
  log: Logger
  /** Milliseconds of a monotonic clock. */
  now?: () => number
  /** How long an add may take: 250, except in some tests. */
  addMs?: number
}

export interface JobQueue extends SharedQueue {
  /** Deliveries in the queue, as far as this process knows. */
  queued(downstream: string): number
  /** Called by workers of this process for deliveries that left the queue, so that their room is free at once. */
  taken(downstream: string, deliveries: number): void
  /** Called for each delivery that starts in time. The pace is measured by it. */
  started(downstream: string): void
  /** Finishes the running adds, then adds no more. */
  stop(): Promise<void>
}

const pingMs = 450
const countMs = 200
/** How often an inactive queue is counted: other processes may add to it. */
const quietCountMs = 2000
/** A count that takes longer is given up: the room would otherwise stay as it was, perhaps 0 for ever. */
const unansweredMs = 5_000
/** Deliveries in one round trip. */
const addSize = 4096

interface Call {
  deliveries: QueuedClaim[]
  at: number
  resolve: (notAdded: QueuedClaim[]) => void
}
/** The add that is under way. */
interface PendingAdd {
  calls: Call[]
  deliveries: number
  timer: NodeJS.Timeout
}

export function openJobQueue({
  backend,
  downstreams,
  log,
  now = () => performance.now(),
  addMs = 250
}: JobQueueOptions): JobQueue {
  const lanes = new Map(downstreams.map(downstream => [downstream.name, openLane(downstream)]))
  const stopping = new AbortController()
  let pinging: Promise<void> | undefined
  let outage: { reason: string; isLogged: boolean } | undefined
  let outageLoggedAt = -Infinity

  backend.onLost(() => {
    for (const lane of lanes.values()) lane.lost('connection lost')
  })
  if (!backend.up()) for (const lane of lanes.values()) lane.lost('not connected yet')
  const counting = setInterval(() => {
    for (const lane of lanes.values()) lane.count()
  }, countMs)

  function openLane(downstream: QueueDownstream) {
    const window = prefetchWindow(downstream, now)
    let gathered: Call[] = []
    let pending: PendingAdd | undefined
    let flushing = false
    let away = false
    let asking = false

    function add(deliveries: QueuedClaim[]): Promise<QueuedClaim[]> {
      if (away || stopping.signal.aborted) return Promise.resolve(deliveries)
      return new Promise(resolve => {
        gathered.push({ deliveries, at: now(), resolve })
        // In a microtask, so that adds of one tick share a job. While an add is running, the next ones gather anyway.
        if (pending || flushing) return
        flushing = true
        queueMicrotask(flush)
      })
    }

    function flush() {
      flushing = false
      const oldest = gathered[0]
      if (pending || !oldest) return
      const calls = takeCalls()
      const jobs = chunk(calls, jobSize(downstream))
      const deliveries = calls.reduce((sum, call) => sum + call.deliveries.length, 0)
      const mine: PendingAdd = {
        calls,
        deliveries,
        timer: setTimeout(giveUp, Math.max(0, oldest.at + addMs - now()))
      }
      pending = mine
      backend.add(downstream.name, jobs).then(
        () => {
          // Also after it was given up: the jobs are in the queue nevertheless. The release or a worker gets each delivery,
          // whichever is first (delivery/held-claims.ts).
          window.added(deliveries, jobs.length)
          if (pending === mine) land([])
        },
        (error: unknown) => {
          if (pending === mine) lost(messageOf(error))
        }
      )

      function giveUp() {
        // Timers run before sockets are read: after a blocked event loop the answer may already have arrived.
        setImmediate(() => {
          if (pending === mine) lost(`no answer in ${addMs} ms`)
        })
      }
    }

    function takeCalls(): Call[] {
      let size = 0
      let calls = 0
      while (calls < gathered.length && size < addSize) size += gathered[calls++]?.deliveries.length ?? 0
      return gathered.splice(0, calls)
    }

    /** Resolves the calls of the add under way, and begins the next one. */
    function land(failed: Call[]) {
      const landed = pending
      pending = undefined
      clearTimeout(landed?.timer)
      for (const call of landed?.calls ?? []) call.resolve(failed.includes(call) ? call.deliveries : [])
      if (gathered.length > 0) flush()
    }

    function lost(reason: string) {
      away = true
      const waiting = gathered
      gathered = []
      if (pending) land(pending.calls)
      for (const call of waiting) call.resolve(call.deliveries)
      outage ??= { reason, isLogged: false }
      logOutage()
      pinging ??= pingUntilBack()
    }

    function count() {
      if (away || asking || (window.quiet() && now() - window.countedAt() < quietCountMs)) return
      asking = true
      const look = window.look()
      void withTimeout(backend.count(downstream.name), unansweredMs, () => undefined)
        .catch(() => undefined)
        .then(jobs => {
          if (jobs !== undefined) window.counted(look, jobs)
          else if (!stopping.signal.aborted) lost('no count')
        })
        .finally(() => {
          asking = false
        })
    }

    const underWay = () =>
      gathered.reduce((sum, call) => sum + call.deliveries.length, pending?.deliveries ?? 0)

    return {
      add,
      lost,
      count,
      back() {
        away = false
      },
      isAway: () => away,
      taken: window.taken,
      started: window.started,
      bypassed: window.bypassed,
      queued: () => window.waiting() + underWay(),
      room: () =>
        away || stopping.signal.aborted
          ? 0
          : Math.max(0, Math.floor(window.size() - window.waiting() - underWay())),
      idle: () => !pending && gathered.length === 0
    }
  }

  async function pingUntilBack() {
    const isAway = () => [...lanes.values()].some(lane => lane.isAway())
    while (!stopping.signal.aborted && isAway()) {
      const began = now()
      if (await answers()) {
        for (const lane of lanes.values()) lane.back()
        // In the same turn: a connection that is lost right afterwards must start a new ping.
        pinging = undefined
        if (outage?.isLogged) log.info({ queue: backend.kind }, 'queue.available')
        outage = undefined
        return
      }
      logOutage()
      await sleep(Math.max(50, pingMs - (now() - began)), stopping.signal)
    }
  }

  function answers(): Promise<boolean> {
    const pong = backend.ping().then(
      () => true,
      () => false
    )
    return withTimeout(pong, pingMs - 50, () => false)
  }

  // One event for an outage, not one for each queue or try. Of short outages, one in ten seconds.
  function logOutage() {
    if (!outage || outage.isLogged || stopping.signal.aborted || now() - outageLoggedAt < 10_000) return
    outageLoggedAt = now()
    outage.isLogged = true
    log.warn({ queue: backend.kind, reason: outage.reason }, 'queue.unavailable')
  }

  return {
    async add(deliveries) {
      const groups = byDownstream(deliveries)
      const results = await Promise.all(
        [...groups].map(async ([name, group]) => lanes.get(name)?.add(group) ?? group)
      )
      return results.length === 1 ? (results[0] ?? []) : results.flat()
    },
    room: name => lanes.get(name)?.room() ?? 0,
    queued: name => lanes.get(name)?.queued() ?? 0,
    isAway: name => lanes.get(name)?.isAway() ?? false,
    taken: (name, deliveries) => lanes.get(name)?.taken(deliveries),
    started: name => lanes.get(name)?.started(),
    bypassed: (name, deliveries) => lanes.get(name)?.bypassed(deliveries),
    async stop() {
      const flushed = () => [...lanes.values()].every(lane => lane.idle())
      // Each add ends within `addMs`, or is given up.
      while (!flushed()) await sleep(10)
      stopping.abort()
      clearInterval(counting)
      await pinging
    }
  }
}

/** The deliveries of all calls in one list, cut into jobs. */
function chunk(calls: Call[], size: number): DeliveryRef[][] {
  const jobs: DeliveryRef[][] = []
  let job: DeliveryRef[] = []
  for (const call of calls) {
    for (const { taskId, attempt } of call.deliveries) {
      job.push([taskId, attempt])
      if (job.length < size) continue
      jobs.push(job)
      job = []
    }
  }
  if (job.length > 0) jobs.push(job)
  return jobs
}
