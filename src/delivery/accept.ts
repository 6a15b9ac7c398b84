import { batcher, type Batcher } from '../db/batch.ts'
import { isInfrastructure } from '../db/pool.ts'
import type { TaskView } from '../db/views.ts'
import { readTasks } from '../db/read-tasks.ts'
import type { InsertResult, NewTask } from '../db/tasks.ts'
import { HandlerElsewhere, Unavailable } from '../runtime/errors.ts'
import type { LoadedHandler } from '../handler/loaded.ts'
import type { Metrics } from '../runtime/metrics.ts'
import { isSameContent, type Content } from '../domain/content.ts'
import { uuidv7 } from '../domain/ids.ts'
import { writeDependents, type WriteDependentsDeps } from './write-dependents.ts'
import { inTurn } from './in-turn.ts'
import { withSteps, writeSteps } from './steps.ts'
import { createdView, acceptedTaskOf } from './accepted-task.ts'
import { halfCommits } from './half-commits.ts'
import { fanOut } from './fan-out.ts'
import type { HandlersElsewhere } from './handlers-elsewhere.ts'
import type { Enqueuer } from './enqueue.ts'
import type { Owner } from './lease.ts'
import { checkedByHandler, type HandlerRefusal } from './handler-refusal.ts'
import type { Logger } from '../runtime/logger.ts'
import { orUnavailable } from './unavailable.ts'
import { writePrepared, writeTasks, type WriteTasksDeps } from './write-tasks.ts'

/** A posted task, checked except by the handler's schema. `body` is the parsed `messageBody`. */
export interface TaskRequest extends Omit<NewTask, 'id' | 'committed' | 'deliveries' | 'steps'> {
  body: unknown
}

export type AcceptResult =
  | { kind: 'created' | 'same'; task: TaskView }
  | { kind: 'conflict' }
  | { kind: 'biz_conflict'; by: string }
  | { kind: 'unknown_code' }
  | HandlerRefusal

/** Its caller posts it again. `elsewhere`: another process has its handler. `after_elsewhere`: it must come after such a task of the same call. */
export interface RetryLater {
  kind: 'elsewhere' | 'after_elsewhere'
}

/** `failed`: by an error that is this task's alone. It is logged. */
export type BatchAcceptResult = AcceptResult | RetryLater | { kind: 'failed' }

export interface AcceptDeps extends WriteDependentsDeps, WriteTasksDeps {
  handlers: ReadonlyMap<string, LoadedHandler>
  handlersElsewhere: HandlersElsewhere
  enqueuer: Enqueuer
  owner: Pick<Owner, 'number'>
  leaseMarginMs: number
  /** False during a stop: accepted tasks are committed and wait for another process. */
  claiming: () => boolean
  metrics: Pick<Metrics, 'accepted'>
  log: Logger
  /** Limit of characters of bodies that wait for their commit. In memory a character is a byte, or two if not all are Latin-1. */
  mostText?: number
}

/** Limit of tasks that wait for their commit. */
const mostWaiting = 5_000

export interface Accept {
  (request: TaskRequest): Promise<AcceptResult>
  /** Results in order. Throws an error that tells that PostgreSQL is away. */
  many(requests: readonly TaskRequest[]): Promise<BatchAcceptResult[]>
  /** Makes and claims the deliveries of a half message. 'known' if it is no longer PREPARED. */
  commit(task: NewTask): Promise<InsertResult>
  idle(): Promise<void>
  /** Too many tasks or too much text wait for their commit: callers should come back later. */
  isFull(): boolean
}

interface Store {
  tasks: Batcher<NewTask, InsertResult>
  ordered: Batcher<NewTask, InsertResult>
  /** Tasks that wait for others. */
  dependents: Batcher<NewTask, InsertResult>
  prepared: Batcher<NewTask, InsertResult>
  /** Tasks with steps: each in a separate statement. */
  steps: Batcher<NewTask, InsertResult>
  /** Characters of the waiting bodies: 5,000 large ones would be more than a gigabyte. */
  text: number
  /** The current task with this taskNo. */
  known: Batcher<string, TaskView | undefined>
}

/**
 * Accepts tasks: checks the handler's schema, then commits task and deliveries in a group, already claimed. The enqueueing
 * after the commit is not awaited. Throws Unavailable if PostgreSQL cannot accept the task now.
 */
export function acceptor(deps: AcceptDeps): Accept {
  const { mostText = 67_108_864 } = deps
  const writes: Store = {
    text: 0,
    // One at a time, even small ones: two half batches would cost two statements and two commits.
    tasks: batcher({ max: 200, inFlight: 1, write: tasks => writeTasks(deps, tasks) }),
    // Separate: a key makes the statement of its whole batch longer. One at a time: the tasks keep their order.
    ordered: batcher({ max: 200, inFlight: 1, write: tasks => writeTasks(deps, tasks) }),
    dependents: batcher({ max: 200, inFlight: 1, write: tasks => writeDependents(deps, tasks) }),
    prepared: batcher({ max: 200, inFlight: 1, write: tasks => writePrepared(deps, tasks) }),
    steps: batcher({
      max: 1,
      inFlight: 4,
      write: tasks => Promise.all(tasks.map(task => writeSteps(deps, task)))
    }),
    // A producer that repeats a batch looks up all its tasks at once.
    known: batcher({
      max: 200,
      async write(taskNos) {
        const found = await orUnavailable(deps.cluster, readTasks(deps.sql, taskNos))
        return taskNos.map(taskNo => found.get(taskNo))
      }
    })
  }
  const committing = halfCommits(deps)
  const all = [writes.tasks, writes.ordered, writes.dependents, writes.prepared, writes.steps, committing]
  const many: Accept['many'] = async requests => {
    const checked = requests.map(one => newTaskOf(deps, one))
    const laters = checked.some(isUnknown) ? await findElsewhere(deps, requests) : noneLater
    // The first task with a taskNo is written. The others in the same call are compared with it.
    const firsts = new Map<string, { content: Content; done: Promise<AcceptResult> }>()
    const put = inTurn((task, at) => store(deps, writes, task, requests[at] as TaskRequest))
    const acceptOne = async (one: (typeof checked)[number], index: number): Promise<BatchAcceptResult> => {
      const later = laters.get(index)
      if (later) return later
      if ('kind' in one) return one
      const first = firsts.get(one.taskNo)
      if (!first) {
        const done = put(one, index)
        firsts.set(one.taskNo, { content: one, done })
        return done
      }
      if (!isSameContent(first.content, one)) {
        deps.metrics.accepted(one.messageCode, 'conflict')
        return { kind: 'conflict' }
      }
      const done = await first.done
      if (done.kind !== 'created' && done.kind !== 'same') return done
      deps.metrics.accepted(one.messageCode, 'same')
      return { ...done, kind: 'same' }
    }
    const failed = (err: unknown, taskNo: string | undefined): BatchAcceptResult => {
      // The caller repeats the whole call then, which keeps the order of each key.
      if (err instanceof Unavailable || isInfrastructure(err)) throw err
      deps.log.error({ err, taskNo }, 'accept.failed')
      return { kind: 'failed' }
    }
    return Promise.all(
      checked.map((one, index) =>
        acceptOne(one, index).catch((err: unknown) => failed(err, requests[index]?.taskNo))
      )
    )
  }
  const accept = (request: TaskRequest): Promise<AcceptResult> => {
    const checked = newTaskOf(deps, request)
    if (!('kind' in checked)) return store(deps, writes, checked, request)
    return isUnknown(checked) ? refuseUnknown(deps, request) : Promise.resolve(checked)
  }
  return Object.assign(accept, {
    many,
    commit: (task: NewTask) => (task.steps ? writes.steps : committing).add(task),
    idle: async () => void (await Promise.all(all.map(one => one.idle()))),
    isFull: () => all.some(one => one.size > mostWaiting) || writes.text + committing.text > mostText
  })
}

/** The task to store, or why its handler refuses it. */
export function newTaskOf(
  deps: AcceptDeps,
  request: TaskRequest
): NewTask | Extract<AcceptResult, { kind: 'unknown_code' | 'no_check_back' | 'invalid' }> {
  const handler = deps.handlers.get(request.messageCode)
  if (!handler) return { kind: 'unknown_code' }
  const body = checkedByHandler(deps, handler, request)
  if ('kind' in body) return body
  const task: NewTask = {
    id: uuidv7(),
    taskNo: request.taskNo,
    messageCode: request.messageCode,
    sceneType: request.sceneType,
    messageBody: request.messageBody,
    contentHash: request.contentHash,
    contentNormal: request.contentNormal ?? null,
    startAt: request.startAt,
    delayMs: request.delayMs,
    deliverBefore: request.deliverBefore,
    needCallback: request.needCallback,
    retryTimes: request.retryTimes,
    extend: request.extend,
    traceparent: request.traceparent,
    createdBy: request.createdBy,
    biz: request.biz ?? null,
    orderingKey: request.orderingKey ?? null,
    after: request.after ?? null,
    deliveries: []
  }
  if (request.prepared) return { ...task, prepared: request.prepared } // `when` is called at the commit
  task.deliveries = fanOut(deps, handler, task, () => ({
    task: acceptedTaskOf(task, deps.cluster.now()),
    body: body.data
  }))
  const whole = withSteps(deps, task, handler, deps.cluster.now())
  return whole === 'no_handler' ? { kind: 'unknown_code' } : whole
}

const isUnknown = (one: object): boolean => 'kind' in one && one.kind === 'unknown_code'

const isElsewhere = (
  { handlers }: AcceptDeps,
  { messageCode }: TaskRequest,
  codes: ReadonlySet<string>
): boolean => !handlers.has(messageCode) && codes.has(messageCode)

async function refuseUnknown(deps: AcceptDeps, request: TaskRequest): Promise<AcceptResult> {
  if (isElsewhere(deps, request, await deps.handlersElsewhere())) throw new HandlerElsewhere()
  return { kind: 'unknown_code' }
}

const noneLater: ReadonlyMap<number, RetryLater> = new Map()

/** By index, the tasks that another process has to accept, and those that must come after them: with their taskNo, their key or their `after`. */
async function findElsewhere(
  deps: AcceptDeps,
  requests: readonly TaskRequest[]
): Promise<ReadonlyMap<number, RetryLater>> {
  const codes = await deps.handlersElsewhere()
  const laters = new Map<number, RetryLater>()
  const taskNos = new Set<string>()
  const keys = new Set<string>()
  for (const [index, request] of requests.entries()) {
    const { taskNo, orderingKey = null, after } = request
    const kind = isElsewhere(deps, request, codes) ? 'elsewhere' : 'after_elsewhere'
    const isAfterOne =
      taskNos.has(taskNo) ||
      (orderingKey !== null && keys.has(orderingKey)) ||
      after?.taskNos.some(one => taskNos.has(one))
    if (kind === 'after_elsewhere' && !isAfterOne) continue
    laters.set(index, { kind })
    taskNos.add(taskNo)
    if (orderingKey !== null) keys.add(orderingKey)
  }
  return laters
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
    inserted = await writes[batchOf(task)].add(task)
  } finally {
    writes.text -= length
  }
  if (inserted.kind === 'created') {
    deps.metrics.accepted(task.messageCode, 'created', inserted.at)
    return { kind: 'created', task: createdView(task, inserted, request.extend) }
  }
  if (inserted.kind === 'invalid') {
    const [first = { detail: '', pointer: '/after' }] = inserted.errors
    return { kind: 'invalid', ...first, errors: inserted.errors }
  }
  if (inserted.kind === 'biz_taken') {
    deps.metrics.accepted(task.messageCode, 'conflict')
    return { kind: 'biz_conflict', by: inserted.by }
  }
  if (inserted.content && !isSameContent(inserted.content, task)) {
    deps.metrics.accepted(task.messageCode, 'conflict')
    return { kind: 'conflict' }
  }
  const view = await writes.known.add(task.taskNo)
  // Retention removed it between the two statements: the same POST creates it again.
  if (!view) throw new Unavailable('the task was removed while it was accepted: post it again')
  deps.metrics.accepted(task.messageCode, 'same')
  // The same content includes the same prerequisites, in any order.
  return { kind: 'same', task: task.after ? { ...view, after: [...task.after.taskNos] } : view }
}

/** The batch that stores the task. One statement stores the tasks of a batch, in their order if that matters. */
function batchOf({
  prepared,
  after,
  orderingKey,
  steps
}: NewTask): 'prepared' | 'dependents' | 'ordered' | 'steps' | 'tasks' {
  if (prepared) return 'prepared'
  if (after) return 'dependents'
  if (steps) return 'steps'
  return orderingKey ? 'ordered' : 'tasks'
}
