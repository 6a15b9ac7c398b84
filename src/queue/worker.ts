import type { Logger } from '../runtime/logger.ts'
import { setMaxListeners } from 'node:events'
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises'
import type { Backend, DeliveryRef, JobConsumer, ReceivedJob } from './backend.ts'
import { waitAtMost } from '../runtime/with-timeout.ts'

export interface Job {
  downstream: string
  deliveries: DeliveryRef[]
}

export interface WorkedDownstream {
  name: string
  concurrency: number
  leaseMs: number
}

export interface WorkersOptions {
  backend: Backend
  downstreams: WorkedDownstream[]
  /** Resolves when each delivery of the hint has its slot, or was let go; bounded by the lease. */
  run: (hint: Job) => Promise<void>
  log: Logger
  signal: AbortSignal
}

/** Small jobs are taken side by side, so that hints of one delivery can fill the concurrency too. */
const mostJobs = 16
const retryMs = 250
/** After the stop, for a job that was just being taken; and for taking finished jobs out of the queue. */
const stopMs = 1000
/** This long without trouble, and a queue is called well again. */
const wellMs = 3000

/**
 * Takes hints until `signal` aborts; ends when the running ones are over. A job that was already being taken at the
 * abort still runs: whoever runs it knows that we stop, and releases.
 */
export async function runWorkers(options: WorkersOptions): Promise<void> {
  // Each downstream waits for it, at its queue and for its slots: many are no leak.
  setMaxListeners(0, options.signal)
  await Promise.all(options.downstreams.map(downstream => pull(options, downstream)))
}

async function pull(options: WorkersOptions, downstream: WorkedDownstream) {
  const { backend, log, signal } = options
  const queue = downstream.name
  const trouble = sayOnce(log, queue)
  const running = new Set<Promise<void>>()
  const ending = new Set<Promise<void>>()
  let puller: JobConsumer | undefined
  let held = 0

  // Two jobs always, so that one is loaded while the other's deliveries wait for slots.
  const full = () => running.size >= mostJobs || (running.size >= 2 && held >= downstream.concurrency)

  while (!signal.aborted) {
    if (full()) {
      await Promise.race(running)
      continue
    }
    try {
      puller ??= await backend.puller(queue, {
        lockMs: downstream.leaseMs + 60_000,
        onError: error => trouble.say(error)
      })
      const taken = await takeUntil(puller, signal)
      trouble.well()
      if (!taken) continue
      start(taken)
      // Most are over within a turn: then the next is taken in the same round trip that ends this one.
      await turn()
    } catch (error) {
      trouble.say(error)
      await sleep(retryMs, undefined, { signal }).catch(() => {}) // an abort only ends the wait
    }
  }
  await Promise.all(running)
  // Without an answer the job is found stalled later and dropped.
  await waitAtMost(stopMs, Promise.all(ending))
  if (puller) await waitAtMost(stopMs, puller.close())

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
        // Flushed, or held by nobody any more: it is out of the queue, which is all we want.
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
    if (deliveries.length > 0) await run({ downstream, deliveries })
  } catch (error) {
    log.error({ err: error, downstream, deliveries: deliveries.length }, 'job.failed')
  }
}

/** The next job; after the abort only one that was already on its way to us. */
async function takeUntil(puller: JobConsumer, signal: AbortSignal): Promise<ReceivedJob | undefined> {
  let timer: NodeJS.Timeout | undefined
  let onAbort: (() => void) | undefined
  const abandoned = new Promise<undefined>(resolve => {
    onAbort = () => {
      timer = setTimeout(() => resolve(undefined), stopMs)
      puller.interrupt().catch(() => {})
    }
    signal.addEventListener('abort', onAbort, { once: true })
  })
  try {
    return await Promise.race([puller.take(), abandoned])
  } finally {
    clearTimeout(timer)
    if (onAbort) signal.removeEventListener('abort', onAbort)
  }
}

/** One line when a queue's trouble begins and one when it is over, however often it fails in between. */
function sayOnce(log: Logger, downstream: string) {
  let since: number | undefined
  let lastAt = 0
  return {
    say(error: unknown) {
      lastAt = performance.now()
      if (since !== undefined) return
      since = lastAt
      log.warn({ downstream, reason: reasonOf(error) }, 'queue.failing')
    },
    /** BullMQ keeps some failures to itself and answers "no job": a while without any is what counts. */
    well() {
      if (since === undefined || performance.now() - lastAt < wellMs) return
      log.info({ downstream, ms: Math.round(lastAt - since) }, 'queue.recovered')
      since = undefined
    }
  }
}

/** Cut: a server's error is as long as it likes. */
const reasonOf = (error: unknown) => (error instanceof Error ? error.message : String(error)).slice(0, 200)
