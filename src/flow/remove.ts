import { readTasks } from '../db/read.ts'
import type { Sql } from '../db/open.ts'
import { readStanding } from '../db/standing.ts'
import type { TaskView } from '../db/view.ts'
import type { Fresh } from './fresh.ts'
import { prompt } from './prompt.ts'
import type { Record } from './record.ts'
import type { Surroundings } from './surroundings.ts'

export interface RemoveDeps {
  sql: Sql
  record: Record
  surroundings: Surroundings
  fresh?: Fresh | undefined
}

/** Throws Unavailable when PostgreSQL does not answer; what was asked may be done all the same. */
export const remove = (deps: RemoveDeps, taskNo: string): Promise<TaskView | 'not_found' | 'nothing'> =>
  prompt(deps.surroundings, stop(deps, taskNo))

/** Stops what of a task is still SENDING. One in flight at that moment cannot be called back, but changes nothing any more. */
async function stop(
  { sql, record, fresh }: RemoveDeps,
  taskNo: string
): Promise<TaskView | 'not_found' | 'nothing'> {
  let stopped = 0
  // Each turn that is overtaken saw the delivery change once more.
  for (let turn = 0; turn < 10; turn++) {
    const task = await readStanding(sql, taskNo)
    if (!task) return 'not_found'
    const sending = task.deliveries.filter(one => one.status === 'SENDING')
    const done = await Promise.all(
      sending.map(async ({ downstream, attempt }) => {
        fresh?.forget(task.id, downstream)
        return record({ move: { taskId: task.id, downstream, attempt, name: 'delete', reason: 'DELETED' } })
      })
    )
    stopped += done.filter(one => one === 'moved').length
    if (done.every(one => one === 'moved')) break
  }
  if (stopped === 0) return 'nothing'
  return (await readTasks(sql, [taskNo])).get(taskNo) ?? 'not_found'
}
