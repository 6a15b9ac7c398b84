// The one place that builds things and connects them.
import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { buildApp, buildHealthApp } from './api/app.ts'
import { faultOf, takeReceipt } from './api/receipt.ts'
import type { Config } from './config.ts'
import { beat, leave } from './db/nodes.ts'
import { openDb } from './db/open.ts'
import { egress } from './egress.ts'
import { failpoint } from './failpoint.ts'
import { acceptor } from './flow/accept.ts'
import { deliverer } from './flow/deliver.ts'
import { dispatcher } from './flow/dispatch.ts'
import { fresh } from './flow/fresh.ts'
import { hinter } from './flow/hint.ts'
import type { Log } from './flow/log.ts'
import { nearby } from './flow/nearby.ts'
import { owed } from './flow/owed.ts'
import { pace } from './flow/pace.ts'
import { parcels } from './flow/parcel.ts'
import { receiver } from './flow/receive.ts'
import { recorder } from './flow/record.ts'
import { surroundings } from './flow/surroundings.ts'
import { waiters } from './flow/wait.ts'
import type { Registry } from './handler/load.ts'
import { startLoops } from './loops.ts'
import { createMetrics } from './metrics.ts'
import { operations } from './operations.ts'
import { openBackend } from './queue/backend.ts'
import { openHints } from './queue/hints.ts'
import { QueueServerError } from './queue/redis.ts'
import { slots } from './queue/slots.ts'
import { runWorkers } from './queue/worker.ts'
import { replies } from './reply/index.ts'
import { tokenHeader, tokens } from './task/token.ts'
import { transports } from './transport/index.ts'

export interface WireOptions {
  config: Config
  databaseUrl: string
  secret: string
  registry: Registry
  /** `host:port` of the demo receiver, which may be reached whatever EGRESS_ALLOW says. */
  demoTarget?: string
  version: string
  log: Log
}

export interface Service {
  /** The address it listens on: the API, or in other roles the health of the process; undefined without PORT there. */
  listen(): Promise<string | undefined>
  /** Drains: nothing new is claimed, what is on its way ends, what is loaded is given back. Cuts off at the limit. */
  stop(): Promise<void>
  /** That limit, ms. */
  stopMs: number
}

/** For a balancer to see that readyz says no, before the door is shut. */
const farewellMs = 1_500
const lastWordMs = 3_000

export async function wire(options: WireOptions): Promise<Service> {
  const { config, registry, log } = options
  const { roles } = config
  const node = `${hostname()}-${process.pid}-${randomBytes(3).toString('hex')}`
  const gate = egress(options)
  for (const warning of gate.warnings) log.warn({}, warning)
  const ways = await transports(
    { guard: gate, brokers: config.brokers, log },
    [...registry.downstreams.values()].map(one => one.transport)
  )
  const sql = openDb(options.databaseUrl, { max: config.pgPool })
  const names = [...registry.downstreams.keys()]
  const limits = [...registry.downstreams.values()].map(({ name, concurrency, perSecond, timeoutMs }) => ({
    name,
    concurrency,
    perSecond,
    leaseMs: timeoutMs + config.leaseMarginMs
  }))
  const { handlers } = registry
  const metrics = createMetrics()

  // Ends the loops; then what is loaded but unsent; then what is on its way; then what cannot be written; then the last loop.
  const stopLooking = new AbortController()
  const stopping = new AbortController()
  const cutOff = new AbortController()
  const giveUp = new AbortController()
  const drained = new AbortController()
  let draining = false

  const around = surroundings(sql, names, (name, ageMs) => {
    metrics.oldestDue(name, ageMs)
    metrics.waiting(name, hints.waiting(name))
  })
  const backend = await openBackend({
    redisUrl: config.redisUrl,
    databaseUrl: options.databaseUrl,
    prefix: config.redisPrefix,
    queues: names,
    log
  })
  if (config.redisUrl !== undefined && !backend.up()) {
    await backend.close()
    throw new QueueServerError(
      `Redis at ${new URL(config.redisUrl).host} cannot be reached: check REDIS_URL, and that the server is up`
    )
  }
  const hints = openHints({ backend, downstreams: limits, log })
  const pacing = pace()
  const record = recorder({ sql, pace: pacing, metrics, giveUp: giveUp.signal })
  const limiters = new Map(
    limits.map(one => [one.name, slots({ ...one, share: () => 1 / Math.max(1, around.workers()) })])
  )
  const near = nearby({
    hints,
    run: hint => deliver(hint),
    open: roles.has('worker') ? name => limiters.get(name)?.open() ?? 0 : () => 0,
    stopping: stopping.signal,
    log
  })
  const hinting = hinter(near, record)
  const issued = tokens({ current: options.secret, previous: config.secretPrevious })
  const random = Math.random
  const dispatching = dispatcher({
    sql,
    handlers,
    downstreams: limits,
    hinter: hinting,
    record,
    pace: pacing,
    surroundings: around,
    sweepMs: config.sweepMs,
    random,
    log
  })
  // What one half of this process does the other half need not read back.
  const isBoth = roles.has('worker') && roles.has('api')
  const justAccepted = isBoth ? fresh() : undefined
  const owing = isBoth ? owed() : undefined
  const accept = acceptor({
    sql,
    handlers,
    hinter: hinting,
    surroundings: around,
    leaseMarginMs: config.leaseMarginMs,
    claiming: () => !draining,
    wake: dispatching.wake,
    fresh: justAccepted,
    pace: pacing,
    metrics,
    log
  })
  const deliver = deliverer({
    fresh: justAccepted,
    owed: owing,
    pace: pacing,
    sql,
    handlers,
    transports: ways,
    record,
    surroundings: around,
    node,
    leaseMarginMs: config.leaseMarginMs,
    slots: limiters,
    started: hints.started,
    parcels: parcels({
      downstreams: [...handlers.values()].flatMap(handler => handler.downstreams),
      secret: options.secret,
      secretPrevious: config.secretPrevious,
      tokens: issued,
      publicUrl: config.publicUrl
    }),
    stopping: stopping.signal,
    cutOff: cutOff.signal,
    random,
    metrics,
    log
  })
  const receive = receiver({
    sql,
    handlers,
    tokens: issued,
    record,
    owed: owing,
    surroundings: around,
    random,
    metrics,
    log
  })
  const waiting = waiters({ sql, log })

  const api = operations({
    config,
    sql,
    registry,
    accept,
    receive,
    record,
    dispatching,
    around,
    fresh: justAccepted,
    waiting,
    queued: name => hints.waiting(name),
    queueUp: () => backend.up(),
    draining: () => draining,
    metrics,
    log
  })
  const app = roles.has('api')
    ? await buildApp(api)
    : config.portGiven
      ? await buildHealthApp(api)
      : undefined

  await beat(sql, { id: node, roles: [...roles].join(','), version: options.version })
  await around.refresh()
  const working = roles.has('worker')
    ? runWorkers({
        backend,
        downstreams: limits,
        async run(hint) {
          hints.taken(hint.downstream, hint.deliveries.length)
          await deliver(hint)
        },
        log,
        signal: stopping.signal
      })
    : Promise.resolve()
  const reading = await replies({
    brokers: roles.has('api') ? config.receiptsFrom : [],
    guard: gate,
    take: ({ body, headers }, from) => takeReceipt(api, body, headers[tokenHeader], from),
    faultOf,
    log,
    signal: stopLooking.signal
  })
  const { running, refreshing } = startLoops({
    config,
    sql,
    node,
    version: options.version,
    secret: options.secret,
    surroundings: around,
    dispatching,
    log,
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
      // At the limit sends are cut off; what PostgreSQL does not take soon after is found by its lease.
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
      await Promise.all([...running, reading.done])
      await hinting.idle()
      stopping.abort()
      await Promise.all([working, near.idle()])
      await Promise.all([deliver.idle(), farewell])
      await app?.close()
      await accept.idle()
      await hinting.idle()
      await record.idle()
      failpoint('shutdown.after_drain')
      clearTimeout(limit)
      clearTimeout(lastWord)
      drained.abort()
      await leave(sql, node).catch(() => {})
      await hints.stop()
      await backend.close()
      await Promise.all(Object.values(ways).map(way => way.close()))
      await sql.end({ timeout: 5 })
      // Not before: a look that hangs ends with its connection.
      await refreshing
    }
  }
}

const longestTimeout = ({ downstreams }: Registry): number =>
  Math.max(0, ...[...downstreams.values()].map(one => one.timeoutMs))
