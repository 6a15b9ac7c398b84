import type { NewTask } from '../db/tasks.ts'

/**
 * The tasks of one call: those that wait for others are stored after all that wait for none, in their order. What of these came later
 * in the call than the one that names it does not count for that one.
 */
export function inTurn<Result extends { kind: string }>(
  store: (task: NewTask, at: number) => Promise<Result>
): (task: NewTask, at: number) => Promise<Result> {
  const created = new Map<string, number>()
  const plain: Promise<unknown>[] = []
  let stored: Promise<unknown> | undefined
  return (task, at) => {
    if (task.after) {
      const { after } = task
      // Not at once: all of the call are put in this same turn.
      stored ??= Promise.resolve().then(() => Promise.allSettled(plain))
      return stored.then(() => {
        const later = new Set(after.taskNos.filter(taskNo => (created.get(taskNo) ?? -1) > at))
        return store(later.size > 0 ? { ...task, after: { ...after, later } } : task, at)
      })
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
