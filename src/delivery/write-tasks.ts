import type { Sql } from '../db/pool.ts'
import { insertPrepared } from '../db/prepared.ts'
import { insertTasks, type InsertResult, type NewTask } from '../db/tasks.ts'
import { Unavailable } from '../runtime/errors.ts'
import { failpoint } from '../runtime/failpoint.ts'
import { startsNow, type Admission } from './admission.ts'
import { acceptedDeliveryOf } from './accepted-task.ts'
import type { Cluster } from './cluster.ts'
import type { QueuedClaim, Enqueuer } from './enqueue.ts'
import { orUnavailable } from './unavailable.ts'

export interface WriteTasksDeps {
  sql: Sql
  cluster: Cluster
  enqueuer: Pick<Enqueuer, 'add'>
  /** This process is also a worker: it need not read back the tasks that it accepts. */
  hasWorker: boolean
  /** Called when a due delivery must wait for a dispatcher. */
  wake: () => void
  /** Shared by all writers of tasks in this process. */
  admission: Admission
}

/** One statement, one commit. Then the batch is enqueued, which is not awaited. */
export async function writeTasks(
  deps: WriteTasksDeps,
  tasks: NewTask[],
  insert: (sql: Sql, tasks: NewTask[]) => Promise<InsertResult[]> = insertTasks
): Promise<InsertResult[]> {
  if (deps.cluster.isDatabaseAway()) throw new Unavailable()
  const leasedFrom = performance.now()
  failpoint('accept.before_commit')
  const marked = deps.admission.take(tasks)
  const inserting = insert(deps.sql, tasks)
  // Even if the caller already got 503: claimed deliveries must be enqueued.
  inserting.then(
    inserted => {
      failpoint('accept.after_commit')
      setImmediate(() => {
        deps.admission.give(marked)
        enqueue(deps, tasks, inserted, leasedFrom)
      })
    },
    () => deps.admission.give(marked)
  )
  return orUnavailable(deps.cluster, inserting)
}

function enqueue(deps: WriteTasksDeps, tasks: NewTask[], inserted: InsertResult[], leasedFrom: number): void {
  const { enqueuer, cluster } = deps
  const claimed: QueuedClaim[] = []
  for (const [index, one] of inserted.entries()) {
    const task = tasks[index]
    if (one.kind !== 'created' || !task) continue
    for (const at of one.inFlight) {
      const delivery = task.deliveries[at]
      if (!delivery) continue
      const claim: QueuedClaim = { taskId: task.id, downstream: delivery.downstream, attempt: 1 }
      if (deps.hasWorker)
        claim.leased = { delivery: acceptedDeliveryOf(task, delivery, one, at), leasedFrom, isOwnClaim: true }
      claimed.push(claim)
    }
  }
  if (claimed.length > 0) void enqueuer.add(claimed)
  // From now on, due deliveries without room come first. Otherwise a steady stream of new ones would starve them.
  let hasBacklog = false
  tasks.forEach((task, index) => {
    const one = inserted[index]
    if (one?.kind !== 'created' || !startsNow(task, cluster.now)) return
    for (const [at, { downstream, skipped, claim }] of task.deliveries.entries()) {
      const isBlocked = one.places?.[at]?.isBlocked
      if (skipped || claim || isBlocked || one.inFlight.includes(at) || cluster.isPaused(downstream)) continue
      cluster.addBacklog(downstream)
      hasBacklog = true
    }
  })
  if (hasBacklog) deps.wake()
}

/** Stores half messages: no delivery is made. */
export async function writePrepared(
  deps: Pick<WriteTasksDeps, 'sql' | 'cluster'>,
  tasks: NewTask[]
): Promise<InsertResult[]> {
  if (deps.cluster.isDatabaseAway()) throw new Unavailable()
  return orUnavailable(deps.cluster, insertPrepared(deps.sql, tasks))
}
