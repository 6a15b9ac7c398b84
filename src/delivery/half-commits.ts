import { batcher, type Batcher } from '../db/batch.ts'
import { commitTasks } from '../db/prepared.ts'
import type { InsertResult, NewTask } from '../db/tasks.ts'
import { writeTasks, type WriteTasksDeps } from './write-tasks.ts'

/** The group commit of half messages that their producers commit. Plain tasks: `tasks` in accept.ts. */
interface HalfCommits extends Batcher<NewTask, InsertResult> {
  /** Characters of the waiting bodies. */
  readonly text: number
}

export function halfCommits(deps: WriteTasksDeps): HalfCommits {
  const batch = batcher({
    max: 200,
    inFlight: 1,
    write: (tasks: NewTask[]) => writeTasks(deps, tasks, commitTasks)
  })
  const underWay = new Map<string, Promise<InsertResult>>()
  let text = 0
  return {
    add(task) {
      const first = underWay.get(task.id)
      // With the same task twice, the statement would fail for all other tasks.
      if (first) return first.then(() => ({ kind: 'known', content: null }))
      const { length } = task.messageBody
      text += length
      const done = batch.add(task).finally(() => {
        text -= length
        underWay.delete(task.id)
      })
      underWay.set(task.id, done)
      return done
    },
    idle: () => batch.idle(),
    get size() {
      return batch.size
    },
    get text() {
      return text
    }
  }
}
