import { findTasks, insertDependents, isNotStored, type Wait } from '../db/dependents.ts'
import type { Sql } from '../db/pool.ts'
import type { InsertResult, NewTask } from '../db/tasks.ts'
import { Unavailable, type Invalid } from '../runtime/errors.ts'
import { failpoint } from '../runtime/failpoint.ts'
import type { Cluster } from './cluster.ts'
import { orUnavailable } from './unavailable.ts'
import type { Dependents } from './dependents.ts'

export interface WriteDependentsDeps {
  sql: Sql
  cluster: Cluster
  dependents: Pick<Dependents, 'accepted'>
}

/**
 * Group commit of tasks that wait for others, in their order: a task may wait for an earlier one of the batch. A task that names a task
 * for which it cannot wait is not stored. Throws Unavailable if PostgreSQL cannot accept them now.
 */
export async function writeDependents(deps: WriteDependentsDeps, tasks: NewTask[]): Promise<InsertResult[]> {
  if (deps.cluster.isDatabaseAway()) throw new Unavailable()
  failpoint('accept.before_commit')
  const writing = write(deps, tasks)
  // Even if the caller already got 503.
  writing.then(
    inserted => {
      failpoint('accept.after_commit')
      const created = tasks.filter((_, at) => inserted[at]?.kind === 'created')
      if (created.length > 0) deps.dependents.accepted(created.map(task => task.id))
    },
    () => {}
  )
  return orUnavailable(deps.cluster, writing)
}

async function write({ sql }: WriteDependentsDeps, tasks: NewTask[]): Promise<InsertResult[]> {
  try {
    return await insert(sql, tasks)
  } catch (err) {
    if (!isNotStored(err)) throw err
    // Another process has just stored a task that others of this batch wait for. Try again; if it happens again, one by one.
    const again = await insert(sql, tasks).catch((cause: unknown) => {
      if (!isNotStored(cause)) throw cause
    })
    if (again) return again
    const results: InsertResult[] = []
    for (const task of tasks) results.push(...(await insert(sql, [task])))
    return results
  }
}

async function insert(sql: Sql, tasks: readonly NewTask[]): Promise<InsertResult[]> {
  const named = tasks.flatMap(task => [task.taskNo, ...(task.after?.taskNos ?? [])])
  const stored = await findTasks(sql, [...new Set(named)])
  const fresh = new Map<string, NewTask>()
  const waits: Wait[] = []
  const answered = new Map<NewTask, InsertResult>()
  /** The same taskNo again in this batch, as by a client that repeats its POST. */
  const repeats: { task: NewTask; first: NewTask }[] = []
  for (const task of tasks) {
    const known = stored.get(task.taskNo)
    if (known) {
      answered.set(task, { kind: 'known', content: known })
      continue
    }
    const first = fresh.get(task.taskNo)
    if (first) {
      repeats.push({ task, first })
      continue
    }
    const found = resolve(task, stored, fresh)
    if (found.errors.length > 0) {
      answered.set(task, { kind: 'invalid', errors: found.errors })
      continue
    }
    fresh.set(task.taskNo, task)
    waits.push(...found.waits)
  }
  const taken = [...fresh.values()]
  const inserted = taken.length === 0 ? [] : await insertDependents(sql, taken, waits)
  // A task that waits has no delivery in flight.
  for (const [at, result] of inserted.entries())
    answered.set(taken[at]!, result.kind === 'created' ? { ...result, inFlight: [] } : result)
  for (const { task, first } of repeats) {
    const result = answered.get(first)
    if (result?.kind === 'created') answered.set(task, { kind: 'known', content: first })
    else if (result) answered.set(task, result)
  }
  return tasks.map(task => {
    const result = answered.get(task)
    if (!result) throw new Error('insertDependents answered for fewer tasks than it was given')
    return result
  })
}

/** The waits of a task, or all errors of its `after`. */
function resolve(
  task: NewTask,
  stored: Awaited<ReturnType<typeof findTasks>>,
  fresh: ReadonlyMap<string, NewTask>
): { waits: Wait[]; errors: Invalid[] } {
  const { taskNos = [], codes = null, later } = task.after ?? {}
  const waits = new Map<string, Wait>()
  const errors: Invalid[] = []
  for (const [at, taskNo] of taskNos.entries()) {
    const known = later?.has(taskNo) ? undefined : stored.get(taskNo)
    const own = fresh.get(taskNo)
    const messageCode = known?.messageCode ?? own?.messageCode
    const id = known?.id ?? own?.id
    // A task that the caller's key may not see gets the same answer as a task that does not exist.
    if (id === undefined || messageCode === undefined || (codes && !codes.includes(messageCode)))
      errors.push({ detail: 'no such task', pointer: `/after/${at}` })
    else if (known && known.state !== 'ACTIVE')
      errors.push({
        detail: `task is ${known.state}; other tasks cannot wait for it`,
        pointer: `/after/${at}`
      })
    else waits.set(id, { taskId: task.id, afterId: id, isNew: !known })
  }
  return { waits: [...waits.values()], errors }
}
