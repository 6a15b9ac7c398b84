import type { NewTask } from '../db/tasks.ts'

/**
 * The order in which the tasks of one call are stored: first the tasks without prerequisites, then the others. A task that comes later in
 * the call than its dependent does not count as a prerequisite. No task overtakes another task of its orderingKey.
 */
export function inTurn<Result extends { kind: string }>(
  store: (task: NewTask, at: number) => Promise<Result>
): (task: NewTask, at: number) => Promise<Result> {
  const created = new Map<string, number>()
  const plain: Promise<unknown>[] = []
  let stored: Promise<unknown> | undefined
  const keys = new Set<string>()
  const put: Promise<unknown>[] = []
  /** Tasks of one key are in different statements: therefore they are stored one by one. */
  let oneByOne = false
  return (task, at) => {
    const { after, orderingKey } = task
    const isBehind = !!orderingKey && keys.has(orderingKey)
    if (after || isBehind) {
      // Not at once: all tasks of the call are put in this same turn.
      stored ??= Promise.resolve().then(() => Promise.allSettled(plain))
      oneByOne ||= isBehind && !after
      const done = (oneByOne ? Promise.allSettled([stored, ...put]) : stored).then(() => {
        const later = new Set(after?.taskNos.filter(taskNo => (created.get(taskNo) ?? -1) > at))
        return store(after && later.size > 0 ? { ...task, after: { ...after, later } } : task, at)
      })
      if (orderingKey) keys.add(orderingKey)
      put.push(done)
      return done
    }
    const done = store(task, at)
    plain.push(
      done.then(
        ({ kind }) => kind === 'created' && created.set(task.taskNo, at),
        () => {}
      )
    )
    return done
  }
}
