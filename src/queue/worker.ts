import type { Logger } from '../runtime/logger.ts'
import { setMaxListeners } from 'node:events'
import { setImmediate as turn } from 'node:timers/promises'
import type { ClaimedBatch } from '../delivery/load.ts'
import type { Backend, JobConsumer, ReceivedJob } from './backend.ts'
import type { Limits } from './prefetch-window.ts'
import { waitAtMost, withTimeout } from '../runtime/with-timeout.ts'
import { sleep } from '../runtime/repeat.ts'
import { reasonOf } from '../runtime/errors.ts'

/** A downstream of a worker. The limits are read before each job: an operator may change them. */
interface WorkerDownstream extends Limits {
  name: string
  /** This process's share of the limits. By default all. */
  share?: () => number
}

interface WorkersOptions {
  backend: Backend
  downstreams: WorkerDownstream[]
  /** Resolves when each delivery of the job has a slot or was released, at the latest when the lease ends. */
  run: (claims: ClaimedBatch) => Promise<void>
  /** Resolves when this process may take jobs for it, or when the signal aborts. */
  mayTake?: (downstream: string, signal: AbortSignal) => Promise<void>
  log: Logger
  signal: AbortSignal
  /** How long a take may last if the server answers: 15,000 ms, except in some tests. */
  takeMs?: number
}

/** Small jobs are taken in parallel, so that jobs of one delivery can also fill the concurrency. */
const mostJobs = 16
const retryMs = 250
/** Time after the stop for a job that is just being taken, and for removing finished jobs from the queue. */
const stopMs = 1000
/** After this time without errors a queue counts as recovered. */
const wellMs = 3000

/**
 * Takes jobs until `signal` aborts. Ends when the running ones are done. A job that was being taken during the
 * abort still runs: its deliveries are released.
 */
export async function runWorkers(options: WorkersOptions): Promise<void> {
  // Each downstream adds listeners for its queue and its slots: many listeners are not a leak.
  setMaxListeners(0, options.signal)
  await Promise.all(options.downstreams.map(downstream => pull(options, downstream)))
}

/**
 * The deliveries that a process may hold because of a rate limit: what starts within an eighth of a lease. More would wait so long
 * for its slot that too little of its lease is left, again and again, and would never be sent.
 */
const ratedMost = ({ perSecond = Infinity, leaseMs, share = () => 1 }: WorkerDownstream): number =>
  Math.max(1, (perSecond * share() * leaseMs) / 8_000)

class UnansweredTakeError extends Error {}

async function pull(options: WorkersOptions, downstream: WorkerDownstream) {
  const { backend, log, signal, takeMs = 15_000 } = options
  const queue = downstream.name
  const trouble = logOnce(log, queue)
  const running = new Set<Promise<void>>()
  const ending = new Set<Promise<void>>()
  let consumer: JobConsumer | undefined
  let held = 0

  // Always two jobs, so that one is loaded while the deliveries of the other wait for slots.
  const full = () =>
    running.size >= mostJobs ||
    (running.size >= 2 && held >= downstream.concurrency) ||
    held >= ratedMost(downstream)

  while (!signal.aborted) {
    if (full()) {
      await Promise.race(running)
      continue
    }
    try {
      await options.mayTake?.(queue, signal)
      if (signal.aborted) break
      consumer ??= await backend.consumer(queue, {
        lockMs: downstream.leaseMs + 60_000,
        onError: error => trouble.failed(error)
      })
      const taken = await answerTo(takeUntil(consumer, signal), { backend, takeMs, start })
      trouble.succeeded()
      if (!taken) continue
      start(taken)
      // Most jobs end within a turn: one round trip then ends this job and takes the next.
      await turn()
    } catch (error) {
      trouble.failed(error)
      if (error instanceof UnansweredTakeError) {
        consumer?.close().catch(() => {})
        consumer = undefined
      }
      await sleep(retryMs, signal)
    }
  }
  await Promise.all(running)
  // Without an answer, the job is later found as stalled and dropped.
  await waitAtMost(stopMs, Promise.all(ending))
  if (consumer) await waitAtMost(stopMs, consumer.close())

  function start(taken: ReceivedJob) {
    held += taken.deliveries.length
    const run = runOne(options, queue, taken).finally(() => {
      held -= taken.deliveries.length
      running.delete(run)
    })
    running.add(run)
    const end = run
      .then(() => taken.done())
      .catch((error: unknown) => {
        // The queue was flushed, or the lock is lost: the job is out of the queue, and that is enough.
        log.debug({ downstream: queue, reason: reasonOf(error) }, 'job.complete_failed')
      })
      .finally(() => {
        ending.delete(end)
      })
    ending.add(end)
  }
}

async function runOne(
  { run, log }: WorkersOptions,
  downstream: string,
  { deliveries }: ReceivedJob
): Promise<void> {
  try {
    if (deliveries.length === 0) return
    await run({ downstream, deliveries: deliveries.map(([taskId, attempt]) => ({ taskId, attempt })) })
  } catch (error) {
    log.error({ err: error, downstream, deliveries: deliveries.length }, 'job.failed')
  }
}

interface Patience {
  backend: Pick<Backend, 'ping'>
  takeMs: number
  /** Gets a job that arrives after all. */
  start: (late: ReceivedJob) => void
}

/**
 * The answer to a take, however long the server is away. BullMQ waits for events of ioredis that may never come: rejects with an
 * UnansweredTakeError if the server answers a ping, but not this take. To give up every take of an outage would fill the memory.
 */
async function answerTo(
  taking: Promise<ReceivedJob | undefined>,
  { backend, takeMs, start }: Patience
): Promise<ReceivedJob | undefined> {
  let isOver = false
  let timer: NodeJS.Timeout | undefined
  // One race for a take of hours: each more would leave its reactions at `taking`.
  const unanswered = new Promise<never>((_, reject) => {
    const wait = (): void => {
      timer = setTimeout(() => void look(), takeMs)
    }
    const look = async (): Promise<void> => {
      const isUp = await answers(backend, takeMs)
      if (isOver) return
      if (!isUp) return wait()
      taking.then(
        late => late && start(late),
        () => {}
      )
      reject(new UnansweredTakeError(`no answer to a take in ${takeMs} ms`))
    }
    wait()
  })
  try {
    return await Promise.race([taking, unanswered])
  } finally {
    isOver = true
    clearTimeout(timer)
  }
}

async function answers(backend: Pick<Backend, 'ping'>, ms: number): Promise<boolean> {
  const pong = backend.ping().then(() => true)
  return withTimeout(pong, ms, () => false).catch(() => false)
}

/** The next job. After the abort, only a job that was already being taken. */
async function takeUntil(consumer: JobConsumer, signal: AbortSignal): Promise<ReceivedJob | undefined> {
  // An abort during the opening of the consumer is not announced again.
  if (signal.aborted) return undefined
  let timer: NodeJS.Timeout | undefined
  let onAbort: (() => void) | undefined
  const abandoned = new Promise<undefined>(resolve => {
    onAbort = () => {
      timer = setTimeout(() => resolve(undefined), stopMs)
      consumer.interrupt().catch(() => {})
    }
    signal.addEventListener('abort', onAbort, { once: true })
  })
  try {
    return await Promise.race([consumer.take(), abandoned])
  } finally {
    clearTimeout(timer)
    if (onAbort) signal.removeEventListener('abort', onAbort)
  }
}

/** One event when a queue starts to fail and one when it has recovered, however often it fails in between. */
function logOnce(log: Logger, downstream: string) {
  let since: number | undefined
  let lastAt = 0
  return {
    failed(error: unknown) {
      lastAt = performance.now()
      if (since !== undefined) return
      since = lastAt
      log.warn({ downstream, reason: reasonOf(error) }, 'queue.failing')
    },
    /** BullMQ hides some errors and answers "no job". So a time without any error counts as recovery. */
    succeeded() {
      if (since === undefined || performance.now() - lastAt < wellMs) return
      log.info({ downstream, ms: Math.round(lastAt - since) }, 'queue.recovered')
      since = undefined
    }
  }
}
