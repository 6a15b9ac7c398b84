import type { Logger } from '../runtime/logger.ts'
import {
  createPostgresBackend,
  createRedisBackend,
  Job,
  withBackend,
  type BackendFactory,
  type IQueueBackend,
  type JobJson
} from 'bullmq'
import { openPostgres, type QueueDatabase } from './postgres.ts'
import { openRedis } from './redis.ts'

/** The entry of one delivery in a job. It contains nothing else. */
export type DeliveryRef = [taskId: string, attempt: number]

/** The queue server: BullMQ on Redis or on PostgreSQL. Every call may reject. It never holds the truth. */
export interface Backend {
  readonly kind: 'redis' | 'postgres'
  /** One job for each list. After a rejection some jobs may still have been added. */
  add(queue: string, jobs: DeliveryRef[][]): Promise<void>
  /** Jobs, not deliveries, that no worker has taken yet. */
  count(queue: string): Promise<number>
  /** The deliveries of the jobs that this worker has taken and not ended. */
  takenBy(queue: string, worker: string): Promise<DeliveryRef[]>
  consumer(queue: string, options: { lockMs: number; onError: (error: Error) => void }): Promise<JobConsumer>
  /** Resolves when the server can accept a job. */
  ping(): Promise<void>
  up(): boolean
  /** Called at once when the connection for adding is lost. Not every backend notices it. */
  onLost(listener: () => void): void
  close(): Promise<void>
}

/** A worker's access to one queue. One loop calls `take`, one call at a time. */
export interface JobConsumer {
  /** The next job. Undefined after a while without one. */
  take(): Promise<ReceivedJob | undefined>
  /** Ends a waiting `take`. */
  interrupt(): Promise<void>
  close(): Promise<void>
}

export interface ReceivedJob {
  deliveries: DeliveryRef[]
  /** Removes the job from the queue. */
  done(): Promise<void>
}

export interface BackendOptions {
  redisUrl?: string | undefined
  database: QueueDatabase
  /** Prefix of every key in Redis. On PostgreSQL jobs are in the schema `bullmq`. */
  prefix: string
  queues: string[]
  /** The name of this process. Other processes find by it the jobs that it has taken. */
  worker: string
  log: Logger
}

/** Rejects with `QueueServerError` if Redis cannot be used. */
export async function openBackend(options: BackendOptions): Promise<Backend> {
  return options.redisUrl ? onRedis(options, options.redisUrl) : onPostgres(options)
}

async function onRedis(options: BackendOptions, url: string): Promise<Backend> {
  const redis = await openRedis(url, options.prefix, options.log)
  const bull = bullmq(createRedisBackend, {
    producer: redis.producer,
    consumer: redis.consumer,
    prefixOf: redis.prefixOf,
    blockSeconds: redis.blockSeconds,
    worker: options.worker
  })
  for (const queue of options.queues) bull.open(queue)
  return {
    kind: 'redis',
    add: bull.add,
    count: bull.count,
    takenBy: bull.takenBy,
    consumer: async (queue, { lockMs, onError }) => bull.consumer(queue, lockMs, onError),
    ping: redis.ping,
    up: redis.up,
    onLost: redis.onLost,
    close: async () => {
      await redis.close()
      await bull.close()
    }
  }
}

async function onPostgres(options: BackendOptions): Promise<Backend> {
  const postgres = await openPostgres(options.database, options.queues.length, options.log)
  const bull = bullmq(createPostgresBackend, {
    producer: postgres.forBullmq,
    consumer: postgres.forBullmq,
    prefixOf: () => options.prefix,
    blockSeconds: postgres.blockSeconds,
    worker: options.worker
  })
  // BullMQ keeps the result of its first connection for ever. A queue whose first connection fails is dead,
  // so the start fails instead.
  await Promise.all(options.queues.map(queue => bull.open(queue).waitUntilReady()))
  return {
    kind: 'postgres',
    add: bull.add,
    count: bull.count,
    takenBy: bull.takenBy,
    consumer: async (queue, { lockMs, onError }) => {
      const consumer = postgres.consumer(onError, listener => bull.consumer(queue, lockMs, listener))
      try {
        await consumer.ready()
      } catch (error) {
        await consumer.close()
        throw error
      }
      return consumer
    },
    ping: postgres.ping,
    up: () => true,
    onLost: () => {},
    close: async () => {
      await bull.close()
      await postgres.close()
    }
  }
}

type DeliveryJob = Job<DeliveryRef[], void, string>

/** A job that this process owns, by its lock. */
interface Held {
  job: DeliveryJob
  token: string
}

/** A finished job that is not removed from the queue yet. */
interface Over {
  held: Held
  settle: (ended: Promise<unknown>) => void
}

/** A job runs at most once: BullMQ neither repeats it nor keeps it. */
const jobOptions = { attempts: 1, removeOnComplete: { count: 0 }, removeOnFail: { count: 0 } }

interface Connections<C> {
  producer: C
  consumer: C
  prefixOf: (queue: string) => string
  blockSeconds: number
  worker: string
}

function bullmq<B extends IQueueBackend, C>(factory: BackendFactory<B, C>, connections: Connections<C>) {
  const { Queue, Worker } = withBackend(factory)
  // Our own check of the server warns once. BullMQ's check would print at every connection.
  const common = { skipVersionCheck: true }
  const queues = new Map<string, ReturnType<typeof open>>()

  function open(name: string) {
    const queue = new Queue<DeliveryRef[], void, string>(name, {
      ...common,
      prefix: connections.prefixOf(name),
      connection: connections.producer,
      defaultJobOptions: jobOptions,
      // BullMQ writes its events into a stream that Ackbox does not read.
      streams: { events: { maxLen: 1 } }
    })
    queue.on('error', () => {}) // the caller gets every error too
    queues.set(name, queue)
    return queue
  }

  function queueOf(name: string) {
    const queue = queues.get(name)
    if (!queue) throw new Error(`no queue ${name}`)
    return queue
  }

  async function add(name: string, jobs: DeliveryRef[][]) {
    const queue = queueOf(name)
    const [first] = jobs
    // On PostgreSQL BullMQ's bulk insert creates two temporary tables per call: too expensive for a single job.
    if (first && jobs.length === 1) await queue.add('h', first)
    else await queue.addBulk(jobs.map(data => ({ name: 'h', data })))
  }

  function consumer(name: string, lockMs: number, onError: (error: Error) => void) {
    const worker = new Worker<DeliveryRef[], void, string>(name, null, {
      ...common,
      prefix: connections.prefixOf(name),
      connection: connections.consumer,
      name: connections.worker,
      autorun: false,
      drainDelay: connections.blockSeconds,
      // Jobs are taken by hand, so BullMQ does not renew their locks: a lock is longer than any job may take here.
      lockDuration: lockMs,
      stalledInterval: 30_000,
      maxStalledCount: 0,
      maximumRateLimitDelay: 1_000,
      removeOnComplete: { count: 0 },
      removeOnFail: { count: 0 }
    })
    worker.on('error', onError)
    // Finds the jobs of dead workers, so that they do not stay in the active list for ever.
    worker.startStalledCheckTimer().catch(onError)
    let takes = 0
    let taking = false
    // Finished jobs. The next take removes one in the same round trip. Without a next take soon, they are removed separately.
    const over: Over[] = []

    const end = ({ job, token }: Held, fetchNext: boolean): Promise<unknown> =>
      job.moveToCompleted(undefined, token, fetchNext)

    async function next(): Promise<Held | undefined> {
      const last = over.pop()
      if (last) {
        const ended = end(last.held, true)
        last.settle(ended)
        // The caller of `done` gets the error.
        const [json, id] = (await ended.catch(() => [])) as [JobJson?, string?]
        // As in https://docs.bullmq.io/patterns/manually-fetching-jobs
        return json && { job: Job.fromJSON(worker, json, id), token: last.held.token }
      }
      const token = `${worker.id}:${takes++}`
      const job: DeliveryJob | undefined = await worker.getNextJob(token)
      return job && { job, token }
    }

    function done(held: Held): Promise<void> {
      return new Promise((resolve, reject) => {
        const settle = (ended: Promise<unknown>) => {
          ended.then(() => resolve(), reject)
        }
        if (taking) {
          settle(end(held, false))
          return
        }
        const mine = { held, settle }
        over.push(mine)
        setImmediate(() => {
          const at = over.indexOf(mine)
          if (at < 0) return
          over.splice(at, 1)
          settle(end(held, false))
        })
      })
    }

    return {
      ready: () => worker.waitUntilReady(),
      async take(): Promise<ReceivedJob | undefined> {
        taking = true
        const held = await next().finally(() => {
          taking = false
        })
        if (!held) {
          // Another client may have set a rate limit on the queue. BullMQ then returns no job, without a turn of the event
          // loop. Its own loop waits here too. The method is not public.
          await worker['waitForRateLimit']()
          return undefined
        }
        const { job, token } = held
        if (job.deferredFailure) {
          // It stalled: its worker died, and BullMQ put it back only to fail it. Its deliveries depend on their leases.
          // Running it now could send deliveries that other workers have claimed since.
          await job.moveToFailed(new Error(job.deferredFailure), token, false)
          return undefined
        }
        return { deliveries: readRefs(job.data), done: () => done(held) }
      },
      interrupt: () => worker.getBackend().disconnectBlocking(false),
      close: () => worker.close(true)
    }
  }

  return {
    open,
    add,
    count: (name: string) => queueOf(name).getWaitingCount(),
    async takenBy(name: string, worker: string): Promise<DeliveryRef[]> {
      const active: (DeliveryJob | undefined)[] = await queueOf(name).getActive()
      return active.flatMap(job => (job?.processedBy === worker ? readRefs(job.data) : []))
    },
    consumer,
    close: async () => {
      await Promise.allSettled([...queues.values()].map(queue => queue.close()))
    }
  }
}

/** A job may come from another version or be made by hand. Invalid entries are dropped; the lease brings the delivery back. */
function readRefs(data: unknown): DeliveryRef[] {
  if (!Array.isArray(data)) return []
  return data.filter(
    (pair): pair is DeliveryRef =>
      Array.isArray(pair) && typeof pair[0] === 'string' && Number.isInteger(pair[1])
  )
}
