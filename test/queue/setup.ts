import { primaryOf } from '../../src/db/hosts.ts'
import type { Logger } from '../../src/runtime/logger.ts'
import { once, EventEmitter } from 'node:events'
import type { Test } from 'tap'
import { openBackend, type Backend, type BackendOptions } from '../../src/queue/backend.ts'
import { openJobQueue, type QueueDownstream } from '../../src/queue/job-queue.ts'
import type { QueuedClaim } from '../../src/delivery/enqueue.ts'
import type { ClaimedBatch } from '../../src/delivery/load.ts'
import { runWorkers } from '../../src/queue/worker.ts'

let prefixes = 0

/** A unique prefix, so that test files can share one Redis. */
export const ownPrefix = () => `t${process.pid}-${++prefixes}`

export const downstream = (name: string, more: Partial<QueueDownstream> = {}): QueueDownstream => ({
  name,
  concurrency: 50,
  leaseMs: 20_000,
  ...more
})

export const queuedDeliveries = (name: string, count: number, from = 0): QueuedClaim[] =>
  Array.from({ length: count }, (_, i) => ({ downstream: name, taskId: `task-${from + i}`, attempt: 1 }))

export interface Line {
  level: 'debug' | 'info' | 'warn' | 'error'
  message: string
  fields: Record<string, unknown>
}

/** A log that keeps its lines. A test can wait for a line. */
export function recordingLog() {
  const lines: Line[] = []
  const events = new EventEmitter()
  const at = (level: Line['level']) => (fields: object, message: string) => {
    lines.push({ level, message, fields: { ...fields } })
    events.emit('line')
  }
  const log: Logger = { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') }
  const has = (start: string) => lines.some(line => line.message.startsWith(start))
  return {
    log,
    lines,
    has,
    async said(start: string) {
      while (!has(start)) await once(events, 'line')
    }
  }
}

export async function openTestBackend(
  t: Test,
  { redisUrl, databaseUrl = '' }: { redisUrl?: string; databaseUrl?: string },
  queues: string[],
  more: Partial<BackendOptions> = {}
): Promise<Backend> {
  const backend = await openBackend({
    redisUrl,
    database: primaryOf(databaseUrl),
    prefix: ownPrefix(),
    queues,
    worker: 'worker-1',
    log: recordingLog().log,
    ...more
  })
  t.teardown(() => backend.close())
  return backend
}

/** For tests that do not check the time limit of an add: on a busy machine an add takes longer. */
export const patientMs = 300_000

export function openTestQueue(
  t: Test,
  backend: Backend,
  downstreams: QueueDownstream[],
  log = recordingLog().log,
  addMs?: number
) {
  const jobQueue = openJobQueue({ backend, downstreams, log, ...(addMs !== undefined && { addMs }) })
  t.teardown(() => jobQueue.stop())
  return jobQueue
}

/** Workers that record their jobs. A job holds its slot until `run` ends. */
export function work(
  t: Test,
  backend: Backend,
  downstreams: QueueDownstream[],
  run: (job: ClaimedBatch) => void | Promise<void> = () => {},
  log = recordingLog().log
) {
  const stop = new AbortController()
  const events = new EventEmitter().setMaxListeners(0)
  const jobs: ClaimedBatch[] = []
  const ended = runWorkers({
    backend,
    downstreams,
    log,
    signal: stop.signal,
    run: async job => {
      jobs.push(job)
      events.emit('job')
      await run(job)
    }
  })
  const stopped = async () => {
    stop.abort()
    await ended
  }
  t.teardown(stopped)
  const deliveries = () => jobs.flatMap(job => job.deliveries.map(({ taskId }) => taskId))
  return {
    jobs,
    deliveries,
    stop: stopped,
    /** Waits until `count` deliveries have arrived. */
    async got(count: number) {
      while (deliveries().length < count) await once(events, 'job')
    }
  }
}

/** Counts the pings of a queue to a server that is away. `more` resolves after this many in vain. */
export function pingsOf(backend: Backend): { more(count: number): Promise<void> } {
  let pings = 0
  const ping = backend.ping.bind(backend)
  backend.ping = () => {
    pings++
    return ping()
  }
  return {
    async more(count) {
      // A ping starts after the one before it was in vain.
      const enough = pings + count + 1
      await until(`${count} pings are in vain`, () => pings >= enough)
    }
  }
}

/** Polls a value that sends no event, such as a count or a status. Fails the test after `ms`. */
export async function until(
  what: string,
  check: () => boolean | Promise<boolean>,
  ms = 300_000
): Promise<void> {
  const end = performance.now() + ms
  while (!(await check())) {
    if (performance.now() > end) throw new Error(`not within ${ms} ms: ${what}`)
    await new Promise(resolve => setTimeout(resolve, 5))
  }
}
