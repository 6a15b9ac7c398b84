// Opens the queue and the limiters of its downstreams.
import { primaryOf } from '../db/hosts.ts'
import { openBackend, type Backend } from '../queue/backend.ts'
import { limiter, type Limiter } from '../queue/limiter.ts'
import { openJobQueue, type JobQueue } from '../queue/job-queue.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Config } from './config.ts'
import type { LiveLimits } from './limits.ts'

export interface OpenQueue {
  backend: Backend
  jobQueue: JobQueue
  /** By downstream. */
  limiters: ReadonlyMap<string, Limiter>
}

/** Throws QueueServerError if Redis cannot be used. */
export async function openQueue(
  config: Pick<Config, 'redisUrl' | 'redisPrefix'> & { databaseUrl: string; node: string },
  limits: LiveLimits[],
  log: Logger
): Promise<OpenQueue> {
  const backend = await openBackend({
    redisUrl: config.redisUrl,
    database: primaryOf(config.databaseUrl),
    prefix: config.redisPrefix,
    queues: limits.map(one => one.name),
    worker: config.node,
    log
  })
  return {
    backend,
    jobQueue: openJobQueue({ backend, downstreams: limits, log }),
    limiters: new Map(limits.map(one => [one.name, limiter(one)]))
  }
}
