import { readAhead, readBlocks } from '../db/blocks.ts'
import type { Reads } from '../db/reads.ts'
import type { TaskView } from '../db/views.ts'
import { present } from '../domain/optional-members.ts'
import { waitingFor, waitingText } from '../domain/waiting-for.ts'
import type { LoadedHandler } from '../handler/loaded.ts'
import type { Cluster } from './cluster.ts'

interface WaitingForDeps {
  reads: Reads
  handlers: ReadonlyMap<string, LoadedHandler>
  cluster: Pick<Cluster, 'now' | 'workers' | 'dispatchers'>
}

/** The task, with the reason of the wait on each open delivery. `codes`: tasks of other messageCodes are not named. */
export async function withWaitingFor(
  { reads, handlers, cluster }: WaitingForDeps,
  found: TaskView | null,
  codes: readonly string[] | null
): Promise<TaskView | null> {
  const task = await withAhead(reads, found, codes)
  if (!task?.deliveries.some(one => one.phase !== undefined)) return task
  const names = task.deliveries.map(one => one.downstream)
  const { paused, blockers, heads } = await readBlocks(reads, task.taskNo, names, codes)
  const known = handlers.get(task.messageCode)?.downstreams ?? []
  const deliveries = task.deliveries.map(one => {
    const pause = paused.get(one.downstream)
    const head = heads.get(one.downstream)
    const waiting = waitingFor(one, {
      now: cluster.now(),
      workers: cluster.workers(),
      dispatchers: cluster.dispatchers(),
      hasHandler: known.some(({ name }) => name === one.downstream),
      blockers: head ? [...blockers, head] : blockers,
      ...(pause ? { paused: pause } : {})
    })
    return waiting
      ? {
          ...one,
          waitingFor: { ...waiting, text: { en: waitingText(waiting, 'en'), zh: waitingText(waiting, 'zh') } }
        }
      : one
  })
  return { ...task, deliveries }
}

/** Adds to each delivery the task before it in its orderingKey. */
async function withAhead(
  reads: Reads,
  task: TaskView | null,
  codes: readonly string[] | null
): Promise<TaskView | null> {
  if (task?.orderingKey === undefined) return task
  const ahead = await readAhead(reads, task.taskNo, codes)
  const deliveries = task.deliveries.map(one => ({ ...one, ...present('ahead', ahead.get(one.downstream)) }))
  return { ...task, deliveries }
}
