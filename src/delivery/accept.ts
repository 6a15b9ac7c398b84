import { batcher, type Batcher } from '../db/batch.ts'
import { readTasks, type TaskView } from '../db/views.ts'
import type { Sql } from '../db/pool.ts'
import { insertTasks, type InsertResult, type NewTask } from '../db/tasks.ts'
import { Unavailable, type Invalid } from '../runtime/errors.ts'
import { failpoint } from '../runtime/failpoint.ts'
import type { LoadedDownstream, LoadedHandler } from '../handler/define.ts'
import type { Metrics } from '../runtime/metrics.ts'
import { limitOf } from '../domain/retry-policy.ts'
import type { Task } from '../domain/types.ts'
import { uuidv7 } from '../domain/ids.ts'
import { admission, type Admission } from './admission.ts'
import { createdView, loadedOf } from './accepted-task.ts'
import type { ClaimedDelivery, Enqueuer } from './enqueue.ts'
import { messageOf } from './hooks.ts'
import type { Logger } from '../runtime/logger.ts'
import { orUnavailable, type Cluster } from './cluster.ts'

/** What was posted, checked but for the handler's own schema. `body` is `messageBody` parsed. */
export interface TaskRequest {
  taskNo: string
  messageCode: string
  sceneType: string
  messageBody: string
  body: unknown
  contentHash: string
  start: { at: Date } | { delayMs: number } | null
  deliverBefore: Date | null
  needCallback: boolean | null
  retryTimes: number | null
  extend: string | null
  traceparent: string | null
  createdBy: string
}

export type AcceptResult =
  | { kind: 'created' | 'same'; task: TaskView }
  | { kind: 'conflict' }
  | { kind: 'unknown_code' }
  | { kind: 'invalid'; detail: string; pointer: string; errors: readonly Invalid[] }

export interface AcceptDeps {
  sql: Sql
  handlers: ReadonlyMap<string, LoadedHandler>
  enqueuer: Enqueuer
  cluster: Cluster
  leaseMarginMs: number
  /** This process has a worker too: what it accepts need not be read back. */
  hasWorker: boolean
  /** Something due had to wait for a dispatcher. */
  wake: () => void
  /** False once we stop: what is accepted still is committed, and waits for another process. */
  claiming: () => boolean
  metrics: Pick<Metrics, 'accepted'>
  log: Logger
  /** Characters of bodies that may wait for their commit; in memory one is a byte, or two where not all are Latin-1. */
  mostText?: number
}

/** Tasks that may wait for their commit before callers are asked to come back. */
const mostWaiting = 5_000

export interface Accept {
  (request: TaskRequest): Promise<AcceptResult>
  many(request: readonly TaskRequest[]): Promise<AcceptResult[]>
  idle(): Promise<void>
  /** So much waits for its commit, tasks or text, that callers should come back later. */
  isFull(): boolean
}

interface Store {
  tasks: Batcher<NewTask, InsertResult>
  /** Characters of the bodies in it: 5,000 large ones would be more than a gigabyte. */
  text: number
  /** By taskNo, as it stands now. */
  known: Batcher<string, TaskView | undefined>
}

/**
 * Accepts tasks: handler's schema, then one group commit of task and deliveries, already claimed. The hint follows the
 * commit and nobody waits for it. Throws Unavailable when PostgreSQL cannot take it now.
 */
export function acceptor(deps: AcceptDeps): Accept {
  const { mostText = 67_108_864 } = deps
  const places = admission(deps)
  const writes: Store = {
    text: 0,
    // One at a time: two halves of what waits would cost the machine two commits. Unless it is next to nothing (docs/notes/performance-log.md).
    tasks: batcher({ max: 200, inFlight: 1, small: 8, write: tasks => write(deps, places, tasks) }),
    // A producer that posts a batch again asks for all of it at once.
    known: batcher({
      max: 200,
      async write(taskNos) {
        const found = await orUnavailable(deps.cluster, readTasks(deps.sql, taskNos))
        return taskNos.map(taskNo => found.get(taskNo))
      }
    })
  }
  const many = async (request: readonly TaskRequest[]): Promise<AcceptResult[]> => {
    const checked = request.map(one => check(deps, one))
    // The first of a taskNo is written; the others in the same call are compared with it.
    const firsts = new Map<string, { contentHash: string; done: Promise<AcceptResult> }>()
    return Promise.all(
      checked.map(async (one, index): Promise<AcceptResult> => {
        if ('kind' in one) return one
        const first = firsts.get(one.taskNo)
        if (!first) {
          const done = store(deps, writes, one, request[index] as TaskRequest)
          firsts.set(one.taskNo, { contentHash: one.contentHash, done })
          return done
        }
        if (first.contentHash !== one.contentHash) return { kind: 'conflict' }
        const done = await first.done
        return done.kind === 'created' ? { ...done, kind: 'same' } : done
      })
    )
  }
  const accept = (request: TaskRequest): Promise<AcceptResult> => {
    const checked = check(deps, request)
    return 'kind' in checked ? Promise.resolve(checked) : store(deps, writes, checked, request)
  }
  return Object.assign(accept, {
    many,
    idle: () => writes.tasks.idle(),
    isFull: () => writes.tasks.size > mostWaiting || writes.text > mostText
  })
}

function check(
  deps: AcceptDeps,
  request: TaskRequest
): NewTask | Extract<AcceptResult, { kind: 'unknown_code' | 'invalid' }> {
  const handler = deps.handlers.get(request.messageCode)
  if (!handler) return { kind: 'unknown_code' }
  const body = parse(deps, handler, request)
  if ('threw' in body) return { kind: 'invalid', detail: body.threw, pointer: '/messageBody', errors: [] }
  if (!body.success) {
    const errors = body.error.issues.map(({ message, path }) => ({
      detail: message,
      pointer: ['', 'messageBody', ...path.map(escapePointer)].join('/')
    }))
    const [first = { detail: 'does not fit the schema of its handler', pointer: '/messageBody' }] = errors
    return { kind: 'invalid', ...first, errors }
  }
  const id = uuidv7()
  return {
    id,
    taskNo: request.taskNo,
    messageCode: request.messageCode,
    sceneType: request.sceneType,
    messageBody: request.messageBody,
    contentHash: request.contentHash,
    startAt: request.start && 'at' in request.start ? request.start.at : null,
    delayMs: request.start && 'delayMs' in request.start ? request.start.delayMs : null,
    deliverBefore: request.deliverBefore,
    needCallback: request.needCallback,
    retryTimes: request.retryTimes,
    extend: request.extend,
    traceparent: request.traceparent,
    createdBy: request.createdBy,
    deliveries: handler.downstreams.map(downstream => ({
      downstream: downstream.name,
      skipped: isSkipped(deps, downstream, request, id, body.data),
      claim: false, // until it is written
      leaseMs: downstream.limit.timeoutMs + deps.leaseMarginMs,
      tries: limitOf(request.retryTimes, downstream.policy),
      needsReceipt:
        downstream.needCallback === undefined ? false : (request.needCallback ?? downstream.needCallback)
    }))
  }
}

/** A schema that throws (a transform that takes any text for JSON, say) has refused this body in its own way. */
function parse(
  { log }: AcceptDeps,
  { body }: LoadedHandler,
  { taskNo, messageCode, body: value }: TaskRequest
) {
  try {
    return body.safeParse(value)
  } catch (err) {
    log.warn({ err, taskNo, messageCode }, 'schema.failed')
    return { threw: `the schema of its handler threw: ${messageOf(err)}` }
  }
}

/** RFC 6901, section 3. */
const escapePointer = (part: PropertyKey): string => String(part).replaceAll('~', '~0').replaceAll('/', '~1')

function isSkipped(
  { log, cluster }: AcceptDeps,
  downstream: LoadedDownstream,
  request: TaskRequest,
  id: string,
  body: unknown
): boolean {
  if (!downstream.when) return false
  const task: Task = {
    id,
    taskNo: request.taskNo,
    messageCode: request.messageCode,
    sceneType: request.sceneType,
    messageBody: request.messageBody,
    deliverStartTime: request.start && 'at' in request.start ? request.start.at : null,
    needCallback: request.needCallback,
    retryTimes: request.retryTimes,
    extend: request.extend === null ? null : (JSON.parse(request.extend) as unknown),
    traceparent: request.traceparent,
    createdAt: cluster.now(),
    createdBy: request.createdBy
  }
  try {
    return !downstream.when({ task, body })
  } catch (err) {
    // Rather one delivery too many than one that is missing.
    log.warn({ err, taskNo: request.taskNo, downstream: downstream.name }, 'hook.when_failed')
    return false
  }
}

async function store(
  deps: AcceptDeps,
  writes: Store,
  task: NewTask,
  request: TaskRequest
): Promise<AcceptResult> {
  const { length } = task.messageBody
  writes.text += length
  let inserted: InsertResult
  try {
    inserted = await writes.tasks.add(task)
  } finally {
    writes.text -= length
  }
  if (inserted.kind === 'created') {
    deps.metrics.accepted(task.messageCode, 'created')
    return { kind: 'created', task: createdView(task, inserted, request.extend) }
  }
  if (inserted.contentHash !== null && inserted.contentHash !== task.contentHash) {
    deps.metrics.accepted(task.messageCode, 'conflict')
    return { kind: 'conflict' }
  }
  const view = await writes.known.add(task.taskNo)
  // Removed between the two statements by retention: the same POST again makes it anew.
  if (!view) throw new Unavailable('the task was removed at this very moment; post it again')
  deps.metrics.accepted(task.messageCode, 'same')
  return { kind: 'same', task: view }
}

/** One statement, one commit; then the hints of the whole batch, for which nobody waits. */
async function write(deps: AcceptDeps, claims: Admission, tasks: NewTask[]): Promise<InsertResult[]> {
  if (deps.cluster.isDatabaseAway()) throw new Unavailable()
  const leasedFrom = performance.now()
  failpoint('accept.before_commit')
  const places = claims.take(tasks)
  const inserting = insertTasks(deps.sql, tasks)
  // Also when the caller has been told 503 already: what is claimed must be hinted.
  inserting.then(
    inserted => {
      failpoint('accept.after_commit')
      setImmediate(() => {
        claims.give(places)
        enqueue(deps, tasks, inserted, leasedFrom)
      })
    },
    () => claims.give(places)
  )
  return orUnavailable(deps.cluster, inserting)
}

function enqueue(deps: AcceptDeps, tasks: NewTask[], inserted: InsertResult[], leasedFrom: number): void {
  const { enqueuer, cluster } = deps
  const claimed: ClaimedDelivery[] = []
  for (const [index, one] of inserted.entries()) {
    const task = tasks[index]
    if (one.kind !== 'created' || !task) continue
    for (const at of one.inFlight) {
      const delivery = task.deliveries[at]
      if (!delivery) continue
      const claim: ClaimedDelivery = { taskId: task.id, downstream: delivery.downstream, attempt: 1 }
      if (deps.hasWorker)
        claim.loaded = { delivery: loadedOf(task, delivery, one.at), leasedFrom, isAccepted: true }
      claimed.push(claim)
    }
  }
  if (claimed.length > 0) void enqueuer.add(claimed)
  // What is due and had no room comes first from now on, or a steady stream of new ones would starve it.
  let behind = false
  tasks.forEach((task, index) => {
    const one = inserted[index]
    if (one?.kind !== 'created' || task.startAt !== null || task.delayMs !== null) return
    for (const [at, { downstream, skipped, claim }] of task.deliveries.entries()) {
      if (skipped || claim || one.inFlight.includes(at) || cluster.isPaused(downstream)) continue
      cluster.leaveBehind(downstream)
      behind = true
    }
  })
  if (behind) deps.wake()
}
