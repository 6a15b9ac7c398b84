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
import { openPostgres } from './postgres.ts'
import { openRedis } from './redis.ts'

/** What a hint's job says of one delivery; all of it, and nothing else. */
export type DeliveryRef = [taskId: string, attempt: number]

/** Where hints wait: BullMQ on Redis or on PostgreSQL. Every call may reject; none of them is the truth. */
export interface Backend {
  readonly kind: 'redis' | 'postgres'
  /** One job for each list. A rejection may come after some were added all the same. */
  add(queue: string, jobs: DeliveryRef[][]): Promise<void>
  /** Jobs, not deliveries, that no worker has taken yet. */
  count(queue: string): Promise<number>
  puller(queue: string, options: { lockMs: number; onError: (error: Error) => void }): Promise<JobConsumer>
  /** Resolves when the server would take a hint now. */
  ping(): Promise<void>
  up(): boolean
  /** Called at once when the connection for adding is lost; not every backend notices. */
  onLost(listener: () => void): void
  close(): Promise<void>
}

/** One worker's end of one queue. `take` is called by one loop, one call at a time. */
export interface JobConsumer {
  /** The next job; undefined after a while without any. */
  take(): Promise<ReceivedJob | undefined>
  /** Makes a `take` that waits come back. */
  interrupt(): Promise<void>
  close(): Promise<void>
}

export interface ReceivedJob {
  deliveries: DeliveryRef[]
  /** Takes the job out of the queue. */
  done(): Promise<void>
}

export interface BackendOptions {
  redisUrl?: string | undefined
  databaseUrl: string
  /** Before every key in Redis. PostgreSQL keeps its jobs in the schema `bullmq`. */
  prefix: string
  queues: string[]
  log: Logger
}

/** Rejects with `QueueServerError` for a Redis that is too old or refuses our password, else goes on without it. */
export async function openBackend(options: BackendOptions): Promise<Backend> {
  return options.redisUrl ? onRedis(options, options.redisUrl) : onPostgres(options)
}

async function onRedis(options: BackendOptions, url: string): Promise<Backend> {
  const redis = await openRedis(url, options.prefix, options.log)
  const bull = bullmq(createRedisBackend, {
    producer: redis.producer,
    consumer: redis.consumer,
    prefix: options.prefix,
    blockSeconds: redis.blockSeconds
  })
  for (const queue of options.queues) bull.open(queue)
  return {
    kind: 'redis',
    add: bull.add,
    count: bull.count,
    puller: async (queue, { lockMs, onError }) => bull.puller(queue, lockMs, onError),
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
  const postgres = await openPostgres(options.databaseUrl, options.queues.length, options.log)
  const bull = bullmq(createPostgresBackend, {
    producer: postgres.forBullmq,
    consumer: postgres.forBullmq,
    prefix: options.prefix,
    blockSeconds: postgres.blockSeconds
  })
  // BullMQ keeps the outcome of its first connection for ever, so a queue whose first one fails is dead:
  // better to fail the start.
  await Promise.all(options.queues.map(queue => bull.open(queue).waitUntilReady()))
  return {
    kind: 'postgres',
    add: bull.add,
    count: bull.count,
    puller: async (queue, { lockMs, onError }) => {
      const puller = bull.puller(queue, lockMs, onError)
      try {
        await puller.ready()
      } catch (error) {
        await puller.close()
        throw error
      }
      return puller
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

type HintJob = Job<DeliveryRef[], void, string>

/** A job that is ours, by its lock. */
interface Held {
  job: HintJob
  token: string
}

/** A job that waits for its end. */
interface Over {
  held: Held
  settle: (ended: Promise<unknown>) => void
}

/** A hint runs once at most: BullMQ neither repeats it nor keeps it. */
const jobOptions = { attempts: 1, removeOnComplete: { count: 0 }, removeOnFail: { count: 0 } }

interface Connections<C> {
  producer: C
  consumer: C
  prefix: string
  blockSeconds: number
}

function bullmq<B extends IQueueBackend, C>(factory: BackendFactory<B, C>, connections: Connections<C>) {
  const { Queue, Worker } = withBackend(factory)
  // Our own check of the server says it once and clearly; BullMQ's would print at every connection.
  const common = { prefix: connections.prefix, skipVersionCheck: true }
  const queues = new Map<string, ReturnType<typeof open>>()

  function open(name: string) {
    const queue = new Queue<DeliveryRef[], void, string>(name, {
      ...common,
      connection: connections.producer,
      defaultJobOptions: jobOptions,
      // BullMQ writes its events into a stream that nobody here reads.
      streams: { events: { maxLen: 1 } }
    })
    queue.on('error', () => {}) // whatever fails is also told to the caller
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
    // BullMQ's bulk insert makes two temporary tables a call on PostgreSQL: too dear for a single hint.
    if (first && jobs.length === 1) await queue.add('h', first)
    else await queue.addBulk(jobs.map(data => ({ name: 'h', data })))
  }

  function puller(name: string, lockMs: number, onError: (error: Error) => void) {
    const worker = new Worker<DeliveryRef[], void, string>(name, null, {
      ...common,
      connection: connections.consumer,
      autorun: false,
      drainDelay: connections.blockSeconds,
      // We take jobs by hand, so nobody renews locks: one lock outlives all that a job may take here.
      lockDuration: lockMs,
      stalledInterval: 30_000,
      maxStalledCount: 0,
      removeOnComplete: { count: 0 },
      removeOnFail: { count: 0 }
    })
    worker.on('error', onError)
    // Finds the jobs of workers that died, so that they do not stay in the active list for ever.
    worker.startStalledCheckTimer().catch(onError)
    let takes = 0
    let taking = false
    // Their end is told with the next take, in one round trip; where none comes at once, by itself.
    const over: Over[] = []

    const end = ({ job, token }: Held, fetchNext: boolean): Promise<unknown> =>
      job.moveToCompleted(undefined, token, fetchNext)

    async function next(): Promise<Held | undefined> {
      const last = over.pop()
      if (last) {
        const ended = end(last.held, true)
        last.settle(ended)
        // Whoever ended it hears of a failure.
        const [json, id] = (await ended.catch(() => [])) as [JobJson?, string?]
        // As in https://docs.bullmq.io/patterns/manually-fetching-jobs
        return json && { job: Job.fromJSON(worker, json, id), token: last.held.token }
      }
      const token = `${worker.id}:${takes++}`
      const job: HintJob | undefined = await worker.getNextJob(token)
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
        if (!held) return undefined
        const { job, token } = held
        if (job.deferredFailure) {
          // It stalled: its worker died with it, BullMQ put it back only to be failed. What it pointed to hangs
          // on its leases; running it now would send what others may have claimed since.
          await job.moveToFailed(new Error(job.deferredFailure), token, false)
          return undefined
        }
        return { deliveries: readPointers(job.data), done: () => done(held) }
      },
      interrupt: () => worker.getBackend().disconnectBlocking(false),
      close: () => worker.close(true)
    }
  }

  return {
    open,
    add,
    count: (name: string) => queueOf(name).getWaitingCount(),
    puller,
    close: async () => {
      await Promise.allSettled([...queues.values()].map(queue => queue.close()))
    }
  }
}

/** A job may be made by hand or by another version: what is no pointer is left out, the lease brings it back. */
function readPointers(data: unknown): DeliveryRef[] {
  if (!Array.isArray(data)) return []
  return data.filter(
    (pair): pair is DeliveryRef =>
      Array.isArray(pair) && typeof pair[0] === 'string' && Number.isInteger(pair[1])
  )
}
