import { batcher, type Batcher } from '../db/batch.ts'
import { readTasks } from '../db/read.ts'
import type { Sql } from '../db/open.ts'
import { insertTasks, type Inserted, type NewTask } from '../db/tasks.ts'
import type { TaskView } from '../db/view.ts'
import { Unavailable } from '../errors.ts'
import { failpoint } from '../failpoint.ts'
import type { LoadedDownstream, LoadedHandler } from '../handler/define.ts'
import type { Metrics } from '../metrics.ts'
import { limitOf } from '../task/decide.ts'
import type { Task } from '../task/task.ts'
import { uuidv7 } from '../task/uuid.ts'
import { claims, type Claims } from './claims.ts'
import { createdView, loadedOf } from './created.ts'
import type { Fresh } from './fresh.ts'
import type { Hinted, Hinter } from './hint.ts'
import { messageOf } from './hook.ts'
import type { Log } from './log.ts'
import type { Pace } from './pace.ts'
import { prompt } from './prompt.ts'
import type { Surroundings } from './surroundings.ts'

/** What was posted, checked but for the handler's own schema. `body` is `messageBody` parsed. */
export interface AskedTask {
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

export type Accepted =
  | { kind: 'created' | 'same'; task: TaskView }
  | { kind: 'conflict' }
  | { kind: 'unknown_code' }
  | { kind: 'invalid'; detail: string; pointer: string }

export interface AcceptDeps {
  sql: Sql
  handlers: ReadonlyMap<string, LoadedHandler>
  hinter: Hinter
  surroundings: Surroundings
  leaseMarginMs: number
  /** Where this process has a worker too. */
  fresh: Fresh | undefined
  /** Told of every batch that is posted: what is worked off beside it leaves it room. */
  pace: Pick<Pace, 'posting'>
  /** Something due had to wait for a dispatcher. */
  wake: () => void
  /** False once we stop: what is accepted still is committed, and waits for another process. */
  claiming: () => boolean
  metrics: Pick<Metrics, 'accepted'>
  log: Log
  /** Characters of bodies that may wait for their commit; in memory one is a byte, or two where not all are Latin-1. */
  mostText?: number
}

/** Tasks that may wait for their commit before callers are asked to come back. */
const mostWaiting = 5_000

export interface Accept {
  (asked: AskedTask): Promise<Accepted>
  many(asked: readonly AskedTask[]): Promise<Accepted[]>
  idle(): Promise<void>
  /** So much waits for its commit, tasks or text, that callers should come back later. */
  isFull(): boolean
}

interface Store {
  tasks: Batcher<NewTask, Inserted>
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
  const places = claims(deps)
  const writes: Store = {
    text: 0,
    // One at a time: two halves of what waits would cost the machine two commits. Unless it is next to nothing (docs/performance.md).
    tasks: batcher({ max: 200, inFlight: 1, small: 8, write: tasks => write(deps, places, tasks) }),
    // A producer that posts a batch again asks for all of it at once.
    known: batcher({
      max: 200,
      async write(taskNos) {
        const found = await prompt(deps.surroundings, readTasks(deps.sql, taskNos))
        return taskNos.map(taskNo => found.get(taskNo))
      }
    })
  }
  const many = async (asked: readonly AskedTask[]): Promise<Accepted[]> => {
    const checked = asked.map(one => check(deps, one))
    // The first of a taskNo is written; the others in the same call are compared with it.
    const firsts = new Map<string, { contentHash: string; done: Promise<Accepted> }>()
    return Promise.all(
      checked.map(async (one, index): Promise<Accepted> => {
        if ('kind' in one) return one
        const first = firsts.get(one.taskNo)
        if (!first) {
          const done = store(deps, writes, one, asked[index] as AskedTask)
          firsts.set(one.taskNo, { contentHash: one.contentHash, done })
          return done
        }
        if (first.contentHash !== one.contentHash) return { kind: 'conflict' }
        const done = await first.done
        return done.kind === 'created' ? { ...done, kind: 'same' } : done
      })
    )
  }
  const accept = (asked: AskedTask): Promise<Accepted> => {
    const checked = check(deps, asked)
    return 'kind' in checked ? Promise.resolve(checked) : store(deps, writes, checked, asked)
  }
  return Object.assign(accept, {
    many,
    idle: () => writes.tasks.idle(),
    isFull: () => writes.tasks.size > mostWaiting || writes.text > mostText
  })
}

function check(
  deps: AcceptDeps,
  asked: AskedTask
): NewTask | Extract<Accepted, { kind: 'unknown_code' | 'invalid' }> {
  const handler = deps.handlers.get(asked.messageCode)
  if (!handler) return { kind: 'unknown_code' }
  const body = parse(deps, handler, asked)
  if ('threw' in body) return { kind: 'invalid', detail: body.threw, pointer: '/messageBody' }
  if (!body.success) {
    const issue = body.error.issues[0]
    const pointer = ['', 'messageBody', ...(issue?.path.map(escapePointer) ?? [])].join('/')
    return { kind: 'invalid', detail: issue?.message ?? 'does not fit the schema of its handler', pointer }
  }
  const id = uuidv7()
  return {
    id,
    taskNo: asked.taskNo,
    messageCode: asked.messageCode,
    sceneType: asked.sceneType,
    messageBody: asked.messageBody,
    contentHash: asked.contentHash,
    startAt: asked.start && 'at' in asked.start ? asked.start.at : null,
    delayMs: asked.start && 'delayMs' in asked.start ? asked.start.delayMs : null,
    deliverBefore: asked.deliverBefore,
    needCallback: asked.needCallback,
    retryTimes: asked.retryTimes,
    extend: asked.extend,
    traceparent: asked.traceparent,
    createdBy: asked.createdBy,
    deliveries: handler.downstreams.map(downstream => ({
      downstream: downstream.name,
      skipped: isSkipped(deps, downstream, asked, id, body.data),
      claim: false, // until it is written
      leaseMs: downstream.limit.timeoutMs + deps.leaseMarginMs,
      tries: limitOf(asked.retryTimes, downstream.policy),
      needsReceipt:
        downstream.needCallback === undefined ? false : (asked.needCallback ?? downstream.needCallback)
    }))
  }
}

/** A schema that throws (a transform that takes any text for JSON, say) has refused this body in its own way. */
function parse(
  { log }: AcceptDeps,
  { body }: LoadedHandler,
  { taskNo, messageCode, body: value }: AskedTask
) {
  try {
    return body.safeParse(value)
  } catch (err) {
    log.warn({ err, taskNo, messageCode }, 'schema.threw')
    return { threw: `the schema of its handler threw: ${messageOf(err)}` }
  }
}

/** RFC 6901, section 3. */
const escapePointer = (part: PropertyKey): string => String(part).replaceAll('~', '~0').replaceAll('/', '~1')

function isSkipped(
  { log, surroundings }: AcceptDeps,
  downstream: LoadedDownstream,
  asked: AskedTask,
  id: string,
  body: unknown
): boolean {
  if (!downstream.when) return false
  const task: Task = {
    id,
    taskNo: asked.taskNo,
    messageCode: asked.messageCode,
    sceneType: asked.sceneType,
    messageBody: asked.messageBody,
    deliverStartTime: asked.start && 'at' in asked.start ? asked.start.at : null,
    needCallback: asked.needCallback,
    retryTimes: asked.retryTimes,
    extend: asked.extend === null ? null : (JSON.parse(asked.extend) as unknown),
    traceparent: asked.traceparent,
    createdAt: surroundings.now(),
    createdBy: asked.createdBy
  }
  try {
    return !downstream.when({ task, body })
  } catch (err) {
    // Rather one delivery too many than one that is missing.
    log.warn({ err, taskNo: asked.taskNo, downstream: downstream.name }, 'when.threw')
    return false
  }
}

async function store(deps: AcceptDeps, writes: Store, task: NewTask, asked: AskedTask): Promise<Accepted> {
  const { length } = task.messageBody
  writes.text += length
  let inserted: Inserted
  try {
    inserted = await writes.tasks.add(task)
  } finally {
    writes.text -= length
  }
  if (inserted.kind === 'created') {
    deps.metrics.accepted(task.messageCode, 'created')
    return { kind: 'created', task: createdView(task, inserted, asked.extend) }
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
async function write(deps: AcceptDeps, claims: Claims, tasks: NewTask[]): Promise<Inserted[]> {
  if (deps.surroundings.isAway()) throw new Unavailable()
  const askedAt = performance.now()
  failpoint('accept.before_commit')
  const places = claims.take(tasks)
  const inserting = insertTasks(deps.sql, tasks)
  deps.pace.posting(
    inserting,
    tasks.reduce((sum, task) => sum + task.deliveries.length, 0)
  )
  // Also when the caller has been told 503 already: what is claimed must be hinted.
  inserting.then(
    inserted => {
      failpoint('accept.after_commit')
      setImmediate(() => {
        claims.give(places)
        hint(deps, tasks, inserted, askedAt)
      })
    },
    () => claims.give(places)
  )
  return prompt(deps.surroundings, inserting)
}

function hint(deps: AcceptDeps, tasks: NewTask[], inserted: Inserted[], askedAt: number): void {
  const { hinter, surroundings } = deps
  const claimed: Hinted[] = []
  for (const [index, one] of inserted.entries()) {
    const task = tasks[index]
    if (one.kind !== 'created' || !task) continue
    for (const at of one.inFlight) {
      const delivery = task.deliveries[at]
      if (!delivery) continue
      deps.fresh?.keep({ delivery: loadedOf(task, delivery, one.at), askedAt })
      claimed.push({ taskId: task.id, downstream: delivery.downstream, attempt: 1 })
    }
  }
  if (claimed.length > 0) void hinter.add(claimed)
  // What is due and had no room comes first from now on, or a steady stream of new ones would starve it.
  let behind = false
  tasks.forEach((task, index) => {
    const one = inserted[index]
    if (one?.kind !== 'created' || task.startAt !== null || task.delayMs !== null) return
    for (const [at, { downstream, skipped, claim }] of task.deliveries.entries()) {
      if (skipped || claim || one.inFlight.includes(at) || surroundings.isPaused(downstream)) continue
      surroundings.leaveBehind(downstream)
      behind = true
    }
  })
  if (behind) deps.wake()
}
