// The one place that builds things and connects them.
import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { outboxReader } from '../api/outbox-row.ts'
import { faultOf, takeReceipt } from '../api/receipt.ts'
import type { Config } from './config.ts'
import { countDownstreams } from '../db/lists.ts'
import { openDb } from '../db/pool.ts'
import { openReads } from '../db/reads.ts'
import { egress } from './egress.ts'
import { failpoint } from '../runtime/failpoint.ts'
import { acceptor, type AcceptDeps } from '../delivery/accept.ts'
import { admission } from '../delivery/admission.ts'
import { executor } from '../delivery/execute.ts'
import { dispatcher } from '../delivery/dispatcher.ts'
import { enqueuer } from '../delivery/enqueue.ts'
import type { Logger } from '../runtime/logger.ts'
import { cancelled } from '../delivery/load.ts'
import { localQueue } from '../delivery/local-queue.ts'
import { successors } from '../delivery/ordering.ts'
import { outboxDrainer } from '../delivery/outbox.ts'
import { deliveryHeaders } from '../delivery/headers.ts'
import { reach, untilItMayTake } from '../delivery/reach.ts'
import { receiver } from '../delivery/receive.ts'
import { reconciler } from '../delivery/reconcile.ts'
import { completer } from '../delivery/complete.ts'
import { openCluster } from '../delivery/cluster.ts'
import { waiters } from '../delivery/waiters.ts'
import { longestTimeout, type Registry } from '../handler/load.ts'
import { halfMessages } from './half.ts'
import { liveLimits } from './limits.ts'
import { openHeartbeat } from './heartbeat.ts'
import { startMaintenance } from './maintenance.ts'
import { createMetrics } from '../runtime/metrics.ts'
import { apiCalls, openApp } from './api-calls.ts'
import { presence } from './presence.ts'
import { openQueue } from './queue.ts'
import { openTracing } from './tracing.ts'
import { runWorkers } from '../queue/worker.ts'
import { consumeReceipts } from '../transport/receipt-consumers.ts'
import { tokenHeader, tokens } from '../domain/tokens.ts'
import { transports } from '../transport/registry.ts'

export interface ServiceOptions {
  config: Config
  databaseUrl: string
  secret: string
  registry: Registry
  /** `host:port` of the demo receiver. It is allowed whatever EGRESS_ALLOW says. */
  demoTarget?: string
  version: string
  log: Logger
}

export interface Service {
  /** The address it listens on: of the API, or of the health routes in other roles. Undefined without PORT there. */
  listen(): Promise<string | undefined>
  /** Drains: it claims nothing new, finishes open sends and releases loaded deliveries. At the limit it cuts off. */
  stop(): Promise<void>
  /** That limit, ms. */
  stopMs: number
}

/** Time for a balancer to see the 503 of readyz before the port closes. */
const farewellMs = 1_500
const lastWordMs = 3_000

export async function buildService(options: ServiceOptions): Promise<Service> {
  const { config, databaseUrl, registry, log } = options
  const { roles } = config
  const node = `${hostname()}-${process.pid}-${randomBytes(3).toString('hex')}`
  const gate = egress(options)
  for (const warning of gate.warnings) log.warn({ warning }, 'settings.warn')
  const ways = await transports(
    { guard: gate, brokers: config.brokers, log },
    [...registry.downstreams.values()].map(one => one.transport)
  )
  const sql = openDb(databaseUrl, { max: config.pgPool })
  const reads = openReads(databaseUrl)
  const names = [...registry.downstreams.keys()]
  const limits = liveLimits(registry, config.leaseMarginMs, () => 1 / Math.max(1, cluster.workers()))
  const { handlers } = registry
  const metrics = createMetrics({
    now: () => cluster.now().getTime(),
    handlers: handlers.values(),
    channels: config.alarmChannels.map(one => one.name),
    build: { version: options.version, queue: config.redisUrl === undefined ? 'postgres' : 'redis' }
  })
  const tracing = await openTracing({ version: options.version, node, log })

  // In this order: end the loops, release loaded deliveries, finish open sends, give up failing writes, end the last loop.
  const stopLooking = new AbortController()
  const stopping = new AbortController()
  const cutOff = new AbortController()
  const giveUp = new AbortController()
  const drained = new AbortController()
  let draining = false
  const cluster = openCluster(
    sql,
    names,
    metrics.heldKeys,
    (name, ageMs) => {
      metrics.oldestDue(name, ageMs)
      metrics.waiting(name, jobQueue.waiting(name))
    },
    { node, onLimits: limits.follow }
  )
  const tell = (): void => void here.beat().catch(() => {}) // the next one tells it
  const reaching = reach({ yieldAfter: config.workerYieldAfter, cluster, tell, metrics, log })
  const owner = openHeartbeat({ ...options, node, roles, onDead: dead => dispatching.died(dead) })
  const here = presence({ ...options, sql, node, owner, reach: reaching })
  const { backend, jobQueue, limiters } = await openQueue({ ...config, databaseUrl, node }, limits.all, log)
  const complete = completer({ sql, metrics, giveUp: giveUp.signal, successors: () => succession })
  const local = localQueue({
    queue: jobQueue,
    run: claims => deliver(claims),
    open: name => (roles.has('worker') && !reaching.isClosed(name) ? (limiters.get(name)?.open() ?? 0) : 0),
    stopping: stopping.signal,
    log
  })
  const enqueue = enqueuer({ queue: local, complete, owner, downstreams: names })
  const issued = tokens({ current: options.secret, previous: config.secretPrevious })
  const random = Math.random
  const dispatching = dispatcher({
    sql,
    handlers,
    downstreams: limits.all,
    enqueuer: enqueue,
    complete,
    cluster,
    owner,
    takenBy: backend.takenBy,
    sweepMs: config.sweepMs,
    random,
    log
  })
  const stopped = cancelled()
  const writing: Omit<AcceptDeps, 'admission'> = {
    sql,
    dependents: { accepted: ids => succession.accepted(ids) },
    handlers,
    enqueuer: enqueue,
    cluster,
    owner,
    leaseMarginMs: config.leaseMarginMs,
    claiming: () => !draining,
    wake: dispatching.wake,
    hasWorker: roles.has('worker'),
    metrics,
    log
  }
  const succession = successors({ ...writing, complete, downstreams: limits.all, metrics })
  const accepting: AcceptDeps = { ...writing, admission: admission(writing) }
  const accept = tracing.accept(acceptor(accepting))
  const outbox = outboxDrainer({ sql, accepting, reader: outboxReader(handlers, log), node, metrics, log })
  const half = halfMessages({ ...options, sql, accept, guard: gate, cluster, metrics, cutOff: cutOff.signal })
  const deliver = executor({
    cancelled: stopped,
    enqueuer: enqueue,
    sql,
    handlers,
    transports: ways,
    complete,
    cluster,
    owner,
    node,
    leaseMarginMs: config.leaseMarginMs,
    slots: limiters,
    limits: limits.byName,
    reach: reaching,
    started: jobQueue.started,
    headers: deliveryHeaders({
      ...config,
      handlers: [...handlers.values()],
      secret: options.secret,
      tokens: issued,
      databaseNow: () => cluster.now(),
      traceparentOf: tracing.traceparentOf
    }),
    traced: tracing.attempted,
    stopping: stopping.signal,
    cutOff: cutOff.signal,
    random,
    metrics,
    log
  })
  const receive = receiver({ sql, handlers, tokens: issued, complete, cluster, random, metrics, log })
  const waiting = waiters({ sql, log })
  const api = apiCalls({
    ...options,
    sql,
    reads,
    accept,
    receive: tracing.receive(receive),
    half,
    succession,
    complete,
    dispatching,
    outbox,
    cluster,
    cancelled: stopped,
    waiting,
    guard: gate,
    queued: name => jobQueue.waiting(name),
    queueUp: () => backend.up(),
    draining: () => draining,
    metrics
  })
  const app = await openApp(config, api)

  await here.join()
  await cluster.refresh()
  const working = roles.has('worker')
    ? runWorkers({
        backend,
        downstreams: limits.all,
        opened: (name, signal) => untilItMayTake({ cluster, owner, reach: reaching }, name, signal),
        async run(job) {
          jobQueue.taken(job.downstream, job.deliveries.length)
          await deliver({
            downstream: job.downstream,
            deliveries: job.deliveries.map(([taskId, attempt]) => ({ taskId, attempt }))
          })
        },
        log,
        signal: stopping.signal
      })
    : Promise.resolve()
  const reading = await consumeReceipts({
    brokers: roles.has('api') ? config.receiptsFrom : [],
    guard: gate,
    take: ({ body, headers }, from) => takeReceipt(api, body, headers[tokenHeader], from),
    faultOf,
    log,
    signal: stopLooking.signal
  })
  const { running, refreshing } = await startMaintenance({
    ...options,
    reconciler: reconciler({ sql, reads, handlers, node, log }),
    sql,
    databaseUrl,
    node,
    here,
    hasNews: reaching.hasNews,
    countDeliveries: async () => metrics.countDeliveries(await countDownstreams(reads, names)),
    cluster,
    dispatching,
    outbox,
    dependents: succession,
    checker: half.checker,
    handlers,
    complete,
    limits: limits.byName,
    metrics,
    signal: stopLooking.signal,
    drained: drained.signal
  })

  const stopMs = config.shutdownMs ?? 5_000 + longestTimeout(registry)
  return {
    stopMs,
    async listen() {
      return app?.listen({ host: config.host, port: config.port })
    },
    async stop() {
      // At the limit, sends are cut off. Their leases recover what PostgreSQL does not accept soon after.
      const limit = setTimeout(() => {
        cutOff.abort()
        lastWord = setTimeout(() => giveUp.abort(), lastWordMs)
      }, stopMs)
      let lastWord: NodeJS.Timeout | undefined
      const farewell =
        app && !config.embedded ? new Promise(resolve => setTimeout(resolve, farewellMs)) : undefined
      draining = true
      waiting.stop()
      stopLooking.abort()
      owner.retire()
      await Promise.all([...running, reading.done])
      await enqueue.idle()
      stopping.abort()
      await Promise.all([working, local.idle()])
      await Promise.all([deliver.idle(), farewell])
      await app?.close()
      await accept.idle().then(outbox.idle)
      await enqueue.idle()
      await complete.idle().then(succession.idle)
      failpoint('shutdown.after_drain')
      clearTimeout(limit)
      clearTimeout(lastWord)
      drained.abort()
      await here.leave().catch(() => {})
      await jobQueue.stop()
      await backend.close()
      await Promise.all([half, tracing, ...Object.values(ways)].map(way => way.close()))
      await Promise.all([sql.end({ timeout: 5 }), reads.end()])
      // Not earlier: a hanging query ends with its connection.
      await refreshing
    }
  }
}
