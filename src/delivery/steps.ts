import { insertSteps } from '../db/steps.ts'
import type { InsertResult, NewTask } from '../db/tasks.ts'
import { uuidv7 } from '../domain/ids.ts'
import type { LoadedHandler } from '../handler/loaded.ts'
import { acceptedTaskOf } from './accepted-task.ts'
import type { WriteDependentsDeps } from './write-dependents.ts'
import { fanOut, type FanOutDeps } from './fan-out.ts'
import { writeTasks, type WriteTasksDeps } from './write-tasks.ts'

/** The task with the tasks that its handler adds to it. 'no_handler': another process may have a handler for each. */
export function withSteps(
  deps: FanOutDeps & { handlers: ReadonlyMap<string, LoadedHandler> },
  first: NewTask,
  { dtm }: LoadedHandler,
  now: Date
): NewTask | 'no_handler' {
  const steps = dtm?.steps(acceptedTaskOf(first, now))
  if (!steps) return first
  const tasks: NewTask[] = []
  for (const step of steps.tasks) {
    const handler = deps.handlers.get(step.messageCode)
    if (!handler) return 'no_handler'
    const { committed: _, ...same } = first
    const task: NewTask = {
      ...same,
      ...step,
      id: uuidv7(),
      contentHash: '',
      contentNormal: null,
      deliveries: []
    }
    task.deliveries = fanOut(deps, handler, task, () => ({
      task: acceptedTaskOf(task, now),
      body: JSON.parse(task.messageBody) as unknown
    }))
    tasks.push(task)
  }
  return { ...first, steps: { inSequence: steps.inSequence, tasks } }
}

/** One statement for each task with steps: they are few, and share nothing. */
export async function writeSteps(
  deps: WriteTasksDeps & Pick<WriteDependentsDeps, 'dependents'>,
  first: NewTask
): Promise<InsertResult> {
  const { steps } = first
  if (!steps) throw new Error('a task without steps is not stored with its steps')
  const { tasks, inSequence } = steps
  const [done] = await writeTasks(deps, inSequence ? [first] : [first, ...tasks], async sql => {
    const inserted = await insertSteps(sql, first, steps)
    if (inSequence && inserted[0]?.kind === 'created') deps.dependents.accepted(tasks.map(task => task.id))
    return inserted
  })
  if (!done) throw new Error('insertSteps answered for fewer tasks than it was given')
  return done
}
