import { readTasks } from '../db/read.ts'
import type { Sql } from '../db/open.ts'
import { readStanding } from '../db/standing.ts'
import type { TaskView } from '../db/view.ts'
import type { LoadedHandler } from '../handler/define.ts'
import { defaultTimes, limitOf } from '../task/decide.ts'
import { prompt } from './prompt.ts'
import type { Record } from './record.ts'
import type { Surroundings } from './surroundings.ts'

export interface RedeliverDeps {
  sql: Sql
  record: Record
  surroundings: Surroundings
  handlers: ReadonlyMap<string, LoadedHandler>
  /** Something became due. */
  wake: () => void
}

/** `force` redelivers what is HANDLED too, and what may no longer be sent after its deliverBefore. */
export interface AskedRedelivery {
  taskNo: string
  downstream?: string
  force: boolean
}

/** A fresh round with a fresh limit for what FAILED; its alarm is resolved by the same statement. Throws Unavailable when PostgreSQL does not answer. */
export const redeliver = (
  deps: RedeliverDeps,
  asked: AskedRedelivery
): Promise<TaskView | 'not_found' | 'nothing' | 'expired'> =>
  prompt(deps.surroundings, startAnew(deps, asked))

async function startAnew(
  deps: RedeliverDeps,
  asked: AskedRedelivery
): Promise<TaskView | 'not_found' | 'nothing' | 'expired'> {
  const task = await readStanding(deps.sql, asked.taskNo)
  if (!task) return 'not_found'
  const eligible = task.deliveries
    .filter(one => one.status === 'FAILED' || (asked.force && one.status === 'HANDLED'))
    .filter(one => asked.downstream === undefined || one.downstream === asked.downstream)
  const wanted = asked.force ? eligible : eligible.filter(one => !one.expired)
  if (wanted.length === 0) return eligible.length > 0 ? 'expired' : 'nothing'
  const downstreams = deps.handlers.get(task.messageCode)?.downstreams ?? []
  const done = await Promise.all(
    wanted.map(({ downstream, attempt, status }) => {
      const policy = downstreams.find(one => one.name === downstream)?.policy
      const limit = policy ? limitOf(task.retryTimes, policy) : (task.retryTimes ?? defaultTimes)
      const name = status === 'HANDLED' ? 'repeat' : 'redeliver'
      return deps.record({ move: { taskId: task.id, downstream, attempt, name, limit } })
    })
  )
  if (!done.some(one => one === 'moved' || one === 'late')) return 'nothing'
  deps.wake()
  return (await readTasks(deps.sql, [asked.taskNo])).get(asked.taskNo) ?? 'not_found'
}
