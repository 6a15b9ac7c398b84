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
import { dispatcher as openDispatcher } from '../delivery/dispatcher.ts'
import { enqueuer } from '../delivery/enqueue.ts'
import { handlersElsewhere } from '../delivery/handlers-elsewhere.ts'
import { heldClaims } from '../delivery/held-claims.ts'
import type { Logger } from '../runtime/logger.ts'
import { stoppedClaims as openStoppedClaims } from '../delivery/stopped-claims.ts'
import { localQueue } from '../delivery/local-queue.ts'
import { successors as openSuccessors } from '../delivery/successors.ts'
import { outboxAcceptor } from '../delivery/outbox.ts'
import { deliveryHeaders } from '../delivery/headers.ts'
import { reach as openReach, untilItMayTake } from '../delivery/reach.ts'
import { receiptTaker } from '../delivery/receive.ts'
import { reconciler } from '../delivery/reconcile.ts'
import { completer } from '../delivery/complete.ts'
import { openCluster } from '../delivery/cluster.ts'
import { longPolls } from '../delivery/long-polls.ts'
import { longestTimeout, type Registry } from '../handler/load.ts'
import { halfMessages } from './half.ts'
import { liveLimits } from './limits.ts'
import { openHeartbeat } from './heartbeat.ts'
import { startLoops } from './loops.ts'
import { createMetrics, type Metrics } from '../runtime/metrics.ts'
import { apiCalls, openApp } from './api-calls.ts'
import { presence as openPresence } from './presence.ts'
import { openQueue } from './queue.ts'
import { openTracing } from './tracing.ts'
import { allEnded, stopInOrder, stopLimit } from './stop-in-order.ts'
import { runWorkers } from '../queue/worker.ts'
import { startReceiptReaders } from '../transport/receipt-readers.ts'
import { tokenHeader, tokens as openTokens } from '../domain/tokens.ts'
import { secretSettings } from '../domain/redact.ts'
import { transports as openTransports } from '../transport/registry.ts'

export interface ServiceOptions {
  config: Config
  databaseUrl: string
  secret: string
  registry: Registry
  /** `host:port` of the demo receiver. It is allowed even if EGRESS_ALLOW does not list it. */
  demoTarget?: string
  version: string
  log: Logger
}

export interface Service {
  /** The address of the API, or of the health routes in other roles. Undefined in other roles without PORT. */
  listen(): Promise<string | undefined>
  /** Drains: claims nothing new, finishes open sends and releases loaded deliveries. At the limit, sends are cut off. */
  stop(): Promise<void>
  /** The time limit of `stop`, in ms. */
  stopMs: number
  metrics: Pick<Metrics, 'hookRejected'>
}

/** Time for a balancer to see the 503 of readyz before the port closes. */
const unreadyMs = 1_500

export async function buildService(options: ServiceOptions): Promise<Service> {
  const { config, databaseUrl, registry, log } = options
  const { roles } = config
  const node = `${hostname()}-${process.pid}-${randomBytes(3).toString('hex')}`
  const guard = egress(options)
  for (const warning of guard.warnings) log.warn({ warning }, 'settings.warn')
  const transports = await openTransports(
    { guard, brokers: config.brokers, log },
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
    channels: config.alarmChannels.map(channel => channel.name),
    build: { version: options.version, queue: config.redisUrl === undefined ? 'postgres' : 'redis' }
  })
  const tracing = await openTracing({ version: options.version, node, log })

  // In this order: end the loops, release loaded deliveries, cut off open sends, give up failing writes, end the last loop.
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
      metrics.queued(name, jobQueue.queued(name))
    },
    { node, onLimits: limits.follow, onNodes: metrics.nodes }
  )
  const tell = (): void => void presence.announce().catch(() => {}) // the next announcement repeats it
  const reach = openReach({ yieldAfter: config.workerYieldAfter, cluster, tell, metrics, log })
  const owner = openHeartbeat({ ...options, node, roles, onDead: dead => dispatcher.died(dead) })
  const presence = openPresence({ ...options, sql, node, owner, reach })
  const { backend, jobQueue, limiters } = await openQueue({ ...config, databaseUrl, node }, limits.all, log)
  const complete = completer({ sql, metrics, giveUp: giveUp.signal, successors: () => successors })
  const local = localQueue({
    queue: jobQueue,
    run: claims => execute(claims),
    open: name => (roles.has('worker') && !reach.isSuspended(name) ? (limiters.get(name)?.open() ?? 0) : 0),
    stopping: stopping.signal,
    log
  })
  const held = heldClaims(names)
  const enqueue = enqueuer({ queue: local, complete, heldClaims: held, owner })
  const tokens = openTokens({ current: options.secret, previous: config.secretPrevious })
  const random = Math.random
  const dispatcher = openDispatcher({
    sql,
    handlers,
    downstreams: limits.all,
    enqueuer: enqueue,
    complete,
    cluster,
    owner,
    takenBy: backend.takenBy,
    retire: owner.retire,
    sweepMs: config.sweepMs,
    random,
    log
  })
  const stoppedClaims = openStoppedClaims()
  const writing: Omit<AcceptDeps, 'admission'> = {
    sql,
    dependents: { accepted: ids => successors.accepted(ids) },
    handlers,
    handlersElsewhere: handlersElsewhere({ sql, node, cluster }),
    enqueuer: enqueue,
    cluster,
    owner,
    leaseMarginMs: config.leaseMarginMs,
    claiming: () => !draining,
    wake: dispatcher.wake,
    hasWorker: roles.has('worker'),
    metrics,
    log
  }
  const successors = openSuccessors({ ...writing, complete, downstreams: limits.all, metrics })
  const accepting: AcceptDeps = { ...writing, admission: admission(writing) }
  const accept = tracing.accept(acceptor(accepting))
  const outbox = outboxAcceptor({ sql, accepting, reader: outboxReader(handlers, log), node, metrics, log })
  const half = halfMessages({ ...options, sql, accept, guard, cluster, metrics, cutOff: cutOff.signal })
  const { traceparentOf } = tracing
  const signing = { ...options, ...config, tokens, now: () => cluster.now(), traceparentOf }
  const headers = deliveryHeaders({ ...signing, handlers: [...handlers.values()] })
  const execute = executor({
    ...writing,
    owner,
    stoppedClaims,
    heldClaims: held,
    transports,
    complete,
    node,
    limiters,
    limits: limits.byName,
    reach,
    started: jobQueue.started,
    headers,
    secrets: secretSettings(process.env),
    traced: tracing.attempted,
    stopping: stopping.signal,
    cutOff: cutOff.signal,
    random,
    metrics
  })
  const receive = receiptTaker({ ...writing, tokens, complete, random, metrics })
  const polls = longPolls({ sql, log })
  const api = apiCalls({
    ...options,
    sql,
    reads,
    accept,
    receive: tracing.receive(receive),
    half,
    successors,
    complete,
    dispatcher,
    outbox,
    cluster,
    stoppedClaims,
    longPolls: polls,
    guard,
    headers,
    transports,
    queued: name => jobQueue.queued(name),
    queueUp: () => backend.up(),
    draining: () => draining,
    metrics
  })
  const app = await openApp(config, api)

  await presence.join()
  await cluster.refresh()
  const working = roles.has('worker')
    ? runWorkers({
        backend,
        downstreams: limits.all,
        mayTake: (name, signal) => untilItMayTake({ cluster, owner, reach }, name, signal),
        async run(claims) {
          jobQueue.taken(claims.downstream, claims.deliveries.length)
          await execute(claims)
        },
        log,
        signal: stopping.signal
      })
    : Promise.resolve()
  const reading = await startReceiptReaders({
    brokers: roles.has('api') ? config.receiptsFrom : [],
    guard,
    take: ({ body, headers }, from) => takeReceipt(api, body, headers[tokenHeader], from, true),
    faultOf,
    log,
    signal: stopLooking.signal
  })
  const { claiming, running, refreshing } = await startLoops({
    ...options,
    reconciler: reconciler({ sql, reads, handlers, node, log }),
    sql,
    databaseUrl,
    node,
    presence,
    hasNews: reach.hasNews,
    countDeliveries: async () => metrics.countDeliveries(await countDownstreams(reads, names)),
    cluster,
    dispatcher,
    outbox,
    successors,
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
    metrics,
    async listen() {
      return app?.listen({ host: config.host, port: config.port })
    },
    async stop() {
      const clearLimit = stopLimit(stopMs, [stopping, cutOff], giveUp)
      const farewell =
        app && !config.embedded ? new Promise(resolve => setTimeout(resolve, unreadyMs)) : undefined
      draining = true
      polls.stop()
      stopLooking.abort()
      await stopInOrder(log, [
        // Workers take no more jobs while the other loops end: a turn of retention may last.
        ['loops', () => allEnded([...claiming, reading.done])],
        ['enqueue', enqueue.idle],
        ['workers', () => allEnded([(stopping.abort(), working), local.idle()])],
        ['sends', () => allEnded([execute.idle(), farewell, ...running])],
        ['api', () => app?.close()],
        ['accept', accept.idle],
        ['outbox', outbox.idle],
        ['enqueue', enqueue.idle],
        ['complete', complete.idle],
        ['successors', successors.idle],
        ['failpoint', () => failpoint('shutdown.after_drain')],
        ['limit', clearLimit],
        ['drained', () => drained.abort()],
        ['presence', () => presence.leave().catch(() => {})],
        ['queue', () => jobQueue.stop()],
        ['backend', () => backend.close()],
        [
          'connections',
          () => allEnded([half, tracing, ...Object.values(transports)].map(async part => part.close()))
        ],
        ['database', () => allEnded([sql.end({ timeout: 5 }), reads.end()])],
        // Last: a hanging query ends only with its connection.
        ['refresh', () => refreshing]
      ])
    }
  }
}
