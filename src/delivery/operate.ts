import { readTasks, type TaskView } from '../db/views.ts'
import type { Sql } from '../db/pool.ts'
import { readTaskState } from '../db/tasks.ts'
import type { LoadedHandler } from '../handler/define.ts'
import { defaultTimes, limitOf } from '../domain/retry-policy.ts'
import { orUnavailable, type Cluster } from './cluster.ts'
import type { Complete } from './complete.ts'
import type { Cancelled } from './load.ts'

export interface RedeliverDeps {
  sql: Sql
  complete: Complete
  cluster: Cluster
  handlers: ReadonlyMap<string, LoadedHandler>
  /** Something became due. */
  wake: () => void
}

/** `force` also redelivers HANDLED deliveries, and those past their deliverBefore. */
export interface RedeliverRequest {
  taskNo: string
  downstream?: string
  force: boolean
  who: string
}

/**
 * Starts a new round with a new limit for FAILED deliveries. The same statement resolves the alarm. `written` is called before the
 * first change, if there is one. Throws Unavailable if PostgreSQL does not answer.
 */
export const redeliver = (
  deps: RedeliverDeps,
  request: RedeliverRequest,
  written: () => Promise<void>
): Promise<TaskView | 'not_found' | 'nothing' | 'expired' | 'prerequisite_deleted' | 'prepared'> =>
  orUnavailable(deps.cluster, startAnew(deps, request, written))

async function startAnew(
  deps: RedeliverDeps,
  request: RedeliverRequest,
  written: () => Promise<void>
): Promise<TaskView | 'not_found' | 'nothing' | 'expired' | 'prerequisite_deleted' | 'prepared'> {
  const task = await readTaskState(deps.sql, request.taskNo)
  if (!task) return 'not_found'
  if (task.state === 'PREPARED') return 'prepared'
  const eligible = task.deliveries
    .filter(one => one.status === 'FAILED' || (request.force && one.status === 'HANDLED'))
    .filter(one => request.downstream === undefined || one.downstream === request.downstream)
  const timely = request.force ? eligible : eligible.filter(one => !one.expired)
  // What never went, since what it waited for was deleted, goes without it only when somebody says so.
  const wanted = request.force ? timely : timely.filter(one => one.reason !== 'DEPENDENCY_DELETED')
  if (timely.length > wanted.length && wanted.length === 0) return 'prerequisite_deleted'
  if (wanted.length === 0) return eligible.length > 0 ? 'expired' : 'nothing'
  await written()
  const downstreams = deps.handlers.get(task.messageCode)?.downstreams ?? []
  const done = await Promise.all(
    wanted.map(({ downstream, attempt, status }) => {
      const policy = downstreams.find(one => one.name === downstream)?.policy
      const limit = policy ? limitOf(task.retryTimes, policy) : (task.retryTimes ?? defaultTimes)
      const name = status === 'HANDLED' ? 'repeat' : 'redeliver'
      return deps.complete({ move: { taskId: task.id, downstream, attempt, name, limit, by: request.who } })
    })
  )
  if (!done.some(one => one === 'moved' || one === 'late')) return 'nothing'
  deps.wake()
  return (await readTasks(deps.sql, [request.taskNo])).get(request.taskNo) ?? 'not_found'
}

export interface RemoveDeps {
  sql: Sql
  complete: Complete
  cluster: Cluster
  cancelled: Cancelled
}

/** `written` is called before the first change, if there is one. Throws Unavailable if PostgreSQL does not answer: the deletion may still happen. */
export const remove = (
  deps: RemoveDeps,
  taskNo: string,
  who: string,
  written: () => Promise<void>
): Promise<TaskView | 'not_found' | 'nothing' | 'prepared'> =>
  orUnavailable(deps.cluster, stop(deps, taskNo, who, written))

/** Stops the SENDING deliveries of a task. A request in flight cannot be stopped, but its outcome changes nothing. */
async function stop(
  { sql, complete, cancelled }: RemoveDeps,
  taskNo: string,
  who: string,
  written: () => Promise<void>
): Promise<TaskView | 'not_found' | 'nothing' | 'prepared'> {
  let isWritten = false
  let stopped = 0
  // Each turn that comes too late saw the delivery change once more.
  for (let turn = 0; turn < 10; turn++) {
    const task = await readTaskState(sql, taskNo)
    if (!task) return 'not_found'
    if (task.state === 'PREPARED') return 'prepared'
    const sending = task.deliveries.filter(one => one.status === 'SENDING')
    if (sending.length > 0 && !isWritten) {
      await written()
      isWritten = true
    }
    const done = await Promise.all(
      sending.map(async ({ downstream, attempt }) => {
        cancelled.add(task.id, downstream)
        return complete({
          move: { taskId: task.id, downstream, attempt, name: 'delete', reason: 'DELETED', by: who }
        })
      })
    )
    stopped += done.filter(one => one === 'moved').length
    if (done.every(one => one === 'moved')) break
  }
  if (stopped === 0) return 'nothing'
  return (await readTasks(sql, [taskNo])).get(taskNo) ?? 'not_found'
}
