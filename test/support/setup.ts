// The flow of a task as a story: a real PostgreSQL, a queue and a downstream that the test controls, and a clock:
// `later` makes time pass by moving the times in the database into the past.

import { setMaxListeners } from 'node:events'
import { setImmediate as turn } from 'node:timers/promises'
import type { Test } from 'tap'
import { z } from 'zod'
import { outboxReader } from '../../src/api/outbox-row.ts'
import { readTask } from '../../src/db/lists.ts'
import type { TaskView } from '../../src/db/views.ts'
import { writeNode } from '../../src/db/cluster.ts'
import type { DeadOwner } from '../../src/db/owners.ts'
import type { Sql } from '../../src/db/pool.ts'
import type { Completion } from '../../src/db/transitions.ts'
import { acceptor, type Accept, type AcceptDeps, type TaskRequest } from '../../src/delivery/accept.ts'
import { admission } from '../../src/delivery/admission.ts'
import { executor, type Execute } from '../../src/delivery/execute.ts'
import { dispatcher } from '../../src/delivery/dispatcher.ts'
import type { Owner } from '../../src/delivery/lease.ts'
import { stoppedClaims } from '../../src/delivery/stopped-claims.ts'
import { successors, type Successors } from '../../src/delivery/successors.ts'
import { enqueuer, type Enqueuer } from '../../src/delivery/enqueue.ts'
import { handlersElsewhere } from '../../src/delivery/handlers-elsewhere.ts'
import { heldClaims } from '../../src/delivery/held-claims.ts'
import { outboxAcceptor, type Outbox, type OutboxDeps } from '../../src/delivery/outbox.ts'
import { deliveryHeaders } from '../../src/delivery/headers.ts'
import type { TakenBy } from '../../src/delivery/rescue.ts'
import type { Reach } from '../../src/delivery/reach.ts'
import { receiptTaker, type ReceiptRequest, type ReceiveResult } from '../../src/delivery/receive.ts'
import { completer, type Complete, type Completed } from '../../src/delivery/complete.ts'
import { redeliver, releaseHeldKey, remove, settle } from '../../src/delivery/operate.ts'
import { openCluster, type Cluster } from '../../src/delivery/cluster.ts'
import type { LoadedDownstream, LoadedHandler } from '../../src/handler/loaded.ts'
import type { Logger } from '../../src/runtime/logger.ts'
import { createMetrics } from '../../src/runtime/metrics.ts'
import type { Counts } from '../../src/runtime/statistics.ts'
import { limiter } from '../../src/queue/limiter.ts'
import { tokens } from '../../src/domain/tokens.ts'
import type { Transport } from '../../src/transport/types.ts'
import { taskRequest } from './task-request.ts'
import type { Reads } from '../../src/db/reads.ts'
import { readsOf, testDb } from './postgres.ts'
import { FakeQueue } from './queue-in-hand.ts'
import { keepNodes } from './rows.ts'
import { ScriptedDownstream } from './scripted.ts'

export interface Line {
  level: 'debug' | 'info' | 'warn' | 'error'
  message: string
  [field: string]: unknown
}

export interface SetupOptions {
  /** Members of the only downstream, `warehouse`, or several downstreams by name. */
  downstream?: Partial<LoadedDownstream>
  downstreams?: { [name: string]: Partial<LoadedDownstream> }
  handler?: Partial<Pick<LoadedHandler, 'body' | 'onReceipt' | 'checkBack'>>
  transport?: Transport
  /** Default: 30 days. */
  forgetMs?: number
  /** By default as in a process with all roles; false if another process works on the accepted tasks. */
  hasWorker?: boolean
  /** The test's own pool, for a database that becomes unreachable. */
  sql?: Sql
  leaseMarginMs?: number
  mostText?: number
  queuedWaitMs?: number
  /** Limit of outcomes that wait to be written, and of the hooks of a downstream that run. */
  mostPending?: number
  sweepMs?: number
  random?: () => number
  /** The owner of claims. By default none: a lost delivery returns when its lease ends. */
  owner?: Owner
  /** The jobs that other processes have taken from the queue. By default none. */
  takenBy?: TakenBy
  /** Called when a dispatcher stops. Returns the owners that its process has declared dead by then. */
  retire?: () => readonly DeadOwner[]
  /** By default no attempt counts against the reachability of a downstream. */
  reach?: Pick<Reach, 'recordAttempt' | 'isSuspended'>
}

export interface Story {
  sql: Sql
  reads: Reads
  queue: FakeQueue
  downstream: ScriptedDownstream
  accept: Accept
  deliver: Execute
  /** By default for an `order.paid`. */
  record: ((completion: Completion) => Promise<Completed>) & Pick<Complete, 'idle'>
  enqueuing: Enqueuer
  around: Cluster
  succession: Successors
  lines: Line[]
  log: Logger
  handlers: Map<string, LoadedHandler>
  stopping: AbortController
  cutOff: AbortController
  /** Posts a task. Returns its taskNo. */
  post(request?: Partial<TaskRequest>): Promise<string>
  read(taskNo: string): Promise<TaskView>
  /** The delivery to `warehouse`, or to another. */
  delivery(taskNo: string, downstream?: string): Promise<TaskView['deliveries'][number]>
  receive(receipt: Partial<ReceiptRequest> & Pick<ReceiptRequest, 'taskNo'>): Promise<ReceiveResult>
  redeliver(taskNo: string, more?: { force?: boolean; downstream?: string }): ReturnType<typeof redeliver>
  remove(taskNo: string): ReturnType<typeof remove>
  /** Says that its open and FAILED deliveries are HANDLED. */
  settle(taskNo: string): ReturnType<typeof settle>
  /** Releases a key of `warehouse`. */
  release(orderingKey: string, seen?: string): ReturnType<typeof releaseHeldKey>
  /** One pass of a new dispatcher, until all its work is done. `dead`: owners that it has declared dead. */
  dispatch(dead?: readonly DeadOwner[]): Promise<void>
  /** A dispatcher that runs until the test ends. */
  dispatching(signal?: AbortSignal): { wake(): void; done: Promise<void> }
  /** The outbox of another process. */
  outboxOfAnother(more?: Partial<OutboxDeps>): Outbox
  /** One pass of an outbox, by default a new one, until all its work is done. */
  acceptRows(one?: Outbox): Promise<void>
  metrics: () => Promise<string>
  /** The counts of the charts, all minutes together. */
  counts: () => Promise<Counts[]>
  /** Waits until no work is left: all is queued, sent as far as possible, and written. Not usable while the downstream holds. */
  quiet(): Promise<void>
  /** Makes time pass, by the database's clock. */
  later(interval: string): Promise<void>
  /** Sets the number of workers of other processes that are alive. */
  workers(count: number): Promise<void>
  logged(message: string): Line[]
}

const nobody: Owner = { number: () => null, isSilent: () => false, since: () => -Infinity }

function downstreamOf(name: string, more: Partial<LoadedDownstream> = {}): LoadedDownstream {
  return {
    name,
    transport: 'http',
    request: ({ raw }) => ({ url: `http://${name}.test/`, body: raw }),
    needCallback: false,
    policy: { times: undefined, backoff: { kind: 'list', ms: [10_000] }, receiptTimeoutMs: 60_000 },
    limit: { concurrency: 50, timeoutMs: 10_000 },
    ...more
  }
}

export async function setup(t: Test, options: SetupOptions = {}): Promise<Story> {
  const { leaseMarginMs = 10_000, sweepMs = 1_000, random = () => 0.5, owner = nobody } = options
  const sql = options.sql ?? (await testDb(t, { max: 8 })).sql
  const reads = readsOf(t, sql)
  const wished = options.downstreams ?? { warehouse: options.downstream ?? {} }
  const all = Object.entries(wished).map(([name, more]) => downstreamOf(name, more))
  const handler: LoadedHandler = {
    messageCode: 'order.paid',
    file: 'handlers/order-paid.js',
    body: z.unknown(),
    downstreams: all,
    ...options.handler
  }
  const handlers = new Map([[handler.messageCode, handler]])
  const names = all.map(one => one.name)
  const lines: Line[] = []
  const say = (level: Line['level']) => (fields: object, message: string) => {
    lines.push({ ...fields, level, message })
  }
  const log = { debug: say('debug'), info: say('info'), warn: say('warn'), error: say('error') }
  const metrics = createMetrics({ processMetrics: false })
  const stopping = new AbortController()
  const cutOff = new AbortController()
  // Every open request adds a listener to it.
  setMaxListeners(0, cutOff.signal)
  const giveUp = new AbortController()
  const downstream = new ScriptedDownstream()
  const nothing = (): void => {}
  const around = openCluster(sql, names, nothing, nothing)
  const record = completer({
    sql,
    metrics,
    giveUp: giveUp.signal,
    successors: () => succession
  })
  const stopped = stoppedClaims()
  const elsewhere = handlersElsewhere({ sql, node: 'test', cluster: around })
  const queue = new FakeQueue(async job => {
    const [first] = job
    if (!first) return
    await deliver({ downstream: first.downstream, deliveries: job }).catch((err: unknown) =>
      log.warn({ err }, 'job.failed')
    )
  })
  const held = heldClaims(names)
  const enqueuing = enqueuer({ queue, complete: record, heldClaims: held, owner })
  const issued = tokens({ current: 'a test secret' })
  const running: Promise<void>[] = []
  const stopAll = new AbortController()
  let wake = (): void => {}
  const deliver = executor({
    sql,
    handlers,
    transports: {
      http: downstream,
      ...(options.transport && { [all[0]?.transport ?? 'http']: options.transport })
    },
    limiters: new Map(all.map(({ name, limit }) => [name, limiter({ ...limit, share: () => 1 })])),
    started: () => {},
    reach: options.reach ?? { recordAttempt: () => false, isSuspended: () => false },
    stoppedClaims: stopped,
    heldClaims: held,
    secrets: [],
    headers: deliveryHeaders({
      handlers: [handler],
      secret: 'a test secret',
      secretPrevious: undefined,
      tokens: issued,
      publicUrl: 'http://ackbox.test',
      forgetMs: options.forgetMs ?? 30 * 86_400_000
    }),
    complete: record,
    cluster: around,
    owner,
    node: 'test',
    stopping: stopping.signal,
    cutOff: cutOff.signal,
    random,
    metrics,
    log,
    ...(options.mostPending === undefined ? {} : { mostPending: options.mostPending })
  })
  const writing: Omit<AcceptDeps, 'admission'> = {
    sql,
    dependents: { accepted: ids => succession.accepted(ids) },
    handlers,
    handlersElsewhere: elsewhere,
    enqueuer: enqueuing,
    cluster: around,
    owner,
    leaseMarginMs,
    wake: () => wake(),
    hasWorker: options.hasWorker ?? true,
    claiming: () => !stopping.signal.aborted,
    metrics,
    log,
    ...(options.mostText === undefined ? {} : { mostText: options.mostText })
  }
  const leases = all.map(({ name, limit, onFailed }) => ({
    name,
    leaseMs: limit.timeoutMs + leaseMarginMs,
    onFailed
  }))
  const succession = successors({ ...writing, complete: record, downstreams: leases, metrics })
  const accepting: AcceptDeps = { ...writing, admission: admission(writing) }
  const accept = acceptor(accepting)
  let outboxes = 0
  const receive = receiptTaker({
    sql,
    handlers,
    handlersElsewhere: elsewhere,
    tokens: issued,
    complete: record,
    cluster: around,
    random,
    metrics,
    log,
    ...(options.mostText === undefined ? {} : { mostText: options.mostText }),
    ...(options.queuedWaitMs === undefined ? {} : { queuedWaitMs: options.queuedWaitMs })
  })
  const newDispatcher = () => {
    const created = dispatcher({
      sql,
      handlers,
      downstreams: leases,
      enqueuer: enqueuing,
      complete: record,
      cluster: around,
      owner,
      takenBy: options.takenBy ?? (async () => []),
      retire: async () => created.died(options.retire?.() ?? []),
      sweepMs,
      random,
      log
    })
    return created
  }
  t.teardown(async () => {
    stopAll.abort()
    stopping.abort()
    cutOff.abort()
    giveUp.abort()
    await Promise.all(running)
    await quiet()
  })

  async function quiet(): Promise<void> {
    // Each part may give work to the others: three rounds without a request are its end. The deliveries of a key go one after the other.
    let sent = downstream.requests.length
    for (let calm = 0; calm < 3; calm++) {
      await accept.idle()
      await succession.idle()
      await turn()
      await enqueuing.idle()
      await queue.idle()
      await deliver.idle()
      await record.idle()
      await turn()
      if (downstream.requests.length > sent) calm = -1
      sent = downstream.requests.length
    }
  }

  await writeNode(sql, {
    id: 'another',
    roles: 'worker,dispatcher',
    version: 'test',
    handles: [],
    channels: {}
  })
  await around.refresh()

  const story: Story = {
    sql,
    reads,
    queue,
    downstream,
    accept,
    deliver,
    record: Object.assign((completion: Completion) => record({ ...completion, task: handler }), {
      idle: record.idle
    }),
    enqueuing: enqueuing,
    around,
    succession,
    lines,
    log,
    handlers,
    stopping,
    cutOff,
    async post(more) {
      const request = taskRequest(more)
      const accepted = await accept(request)
      if (accepted.kind !== 'created') throw new Error(`${request.taskNo}: ${accepted.kind}`)
      return request.taskNo
    },
    async read(taskNo) {
      const task = await readTask(reads, taskNo)
      if (!task) throw new Error(`no task ${taskNo}`)
      return task
    },
    async delivery(taskNo, name = 'warehouse') {
      const { deliveries } = await story.read(taskNo)
      const found = deliveries.find(one => one.downstream === name)
      if (!found) throw new Error(`${taskNo} has no delivery to ${name}`)
      return found
    },
    receive(more) {
      const last = downstream.requests.findLast(one => one.taskNo === more.taskNo)
      return receive({
        messageCode: 'order.paid',
        result: 'HANDLED',
        token: last?.token,
        remote: '127.0.0.1',
        ...more
      })
    },
    redeliver: (taskNo, { force = false, downstream: name } = {}) =>
      redeliver(
        { sql, complete: record, handlers, wake: () => wake() },
        { taskNo, force, who: { name: 'operator' }, ...(name === undefined ? {} : { downstream: name }) },
        async () => {}
      ),
    remove: taskNo =>
      remove({ sql, complete: record, stoppedClaims: stopped }, taskNo, { name: 'operator' }, async () => {}),
    settle: taskNo =>
      settle(
        { sql, complete: record, stoppedClaims: stopped },
        { taskNo, status: 'HANDLED', who: { name: 'operator' } },
        async () => {}
      ),
    release: (orderingKey, seen) =>
      releaseHeldKey(
        { sql, promote: succession.promote },
        { downstream: 'warehouse', orderingKey, ...(seen === undefined ? {} : { taskNo: seen }) },
        async () => {}
      ),
    async dispatch(dead = []) {
      const stop = new AbortController()
      const one = newDispatcher()
      one.died(dead)
      const done = one.run(stop.signal)
      stop.abort()
      await done
      if (downstream.holds) await enqueuing.idle()
      else await quiet()
    },
    dispatching(signal = stopAll.signal) {
      const one = newDispatcher()
      const done = one.run(AbortSignal.any([signal, stopAll.signal]))
      running.push(done)
      wake = one.wake
      return { wake: one.wake, done }
    },
    outboxOfAnother: more =>
      outboxAcceptor({
        sql,
        accepting,
        reader: outboxReader(handlers, log),
        node: `outbox ${++outboxes}`,
        metrics,
        log,
        ...more
      }),
    async acceptRows(one = story.outboxOfAnother()) {
      const stop = new AbortController()
      const done = one.run(stop.signal)
      stop.abort()
      await done
      await quiet()
    },
    metrics: metrics.render,
    async counts() {
      const all: Counts[] = []
      await metrics.statistics.flush(async counts => {
        all.push(...counts)
      })
      return all
    },
    quiet,
    async later(interval) {
      await sql`
        update delivery set next_action_at = next_action_at - ${interval}::text::interval,
          deliver_before = deliver_before - ${interval}::text::interval,
          delivered_at = delivered_at - ${interval}::text::interval,
          round_at = round_at - ${interval}::text::interval,
          created_at = created_at - ${interval}::text::interval`
      await sql`
        update prepared set next_action_at = next_action_at - ${interval}::text::interval,
          leased_until = leased_until - ${interval}::text::interval,
          prepared_at = prepared_at - ${interval}::text::interval`
      await sql`
        update alarm set next_action_at = next_action_at - ${interval}::text::interval,
          created_at = created_at - ${interval}::text::interval`
    },
    async workers(count) {
      await sql`delete from node`
      for (let i = 0; i < count; i++)
        await writeNode(sql, { id: `worker ${i}`, roles: 'worker', version: 'test' })
      await keepNodes(sql)
      await around.refresh()
    },
    logged: message => lines.filter(line => line.message === message)
  }
  return story
}
